"""From two histograms of sizes to buckets of requests."""

from math import exp, inf, isfinite, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.traffic.counters import Counters
from sutler.service.deployments.traffic.histograms import Histogram, histogram_of
from sutler.service.deployments.traffic.spreading import Bucket, buckets_of
from sutler.service.deployments.traffic.window import WorkloadShape, nearest
from tests.service.deployments.traffic.builders import DOCUMENT, QUESTION, SHAPES, counted

TOKENS_SEEN = st.floats(1, 9000)
SIZES = st.lists(st.tuples(TOKENS_SEEN, TOKENS_SEEN), min_size=1, max_size=25)
SHAPE = st.builds(WorkloadShape, st.uuids().map(str), st.floats(1, 50_000), st.floats(1, 5_000))
PLANNED = st.lists(SHAPE, min_size=1, max_size=5)
ODD_BOUNDS = st.lists(st.floats(-10, 1e6), max_size=5, unique=True).map(sorted)
ODD_COUNT = st.one_of(
    st.integers(0, 1000).map(float), st.floats(0, 1e15), st.sampled_from([0.0, 5e-324, 1e-300, 1e15])
)


@st.composite
def odd_histograms(draw: st.DrawFn) -> Histogram:
    """Whatever an engine may say and be believed."""
    bounds = draw(ODD_BOUNDS)
    counts = sorted(draw(st.lists(ODD_COUNT, min_size=len(bounds) + 1, max_size=len(bounds) + 1)))
    return histogram_of(dict(zip([*bounds, inf], counts, strict=True)), draw(ODD_COUNT))


ODD = st.builds(Counters, odd_histograms(), odd_histograms(), st.none() | ODD_COUNT)


def requests_of(buckets: tuple[Bucket, ...]) -> float:
    return sum(n for _, _, n in buckets)


def tokens_of(buckets: tuple[Bucket, ...]) -> tuple[float, float]:
    return sum(i * n for i, _, n in buckets), sum(o * n for _, o, n in buckets)


def by_workload(counters: Counters, shapes: tuple[WorkloadShape, ...] = SHAPES) -> dict[str, float]:
    found = {shape.name: 0.0 for shape in shapes}
    for size, length, requests in buckets_of(counters, shapes):
        found[nearest(shapes, size, length).name] += requests
    return found


@given(SIZES, PLANNED)
def test_requests_and_tokens_are_what_was_counted(
    sizes: list[tuple[float, float]], planned: list[WorkloadShape]
) -> None:
    buckets = buckets_of(counted(*sizes), planned)
    assert requests_of(buckets) == pytest.approx(len(sizes))
    assert tokens_of(buckets) == pytest.approx((sum(i for i, _ in sizes), sum(o for _, o in sizes)))
    assert all(size > 0 and length > 0 and n > 0 for size, length, n in buckets)


@given(SIZES)
def test_the_number_of_the_finished_is_the_number_of_requests(sizes: list[tuple[float, float]]) -> None:
    """Even where the histograms have counted a few more or less, as extrapolated ones do."""
    buckets = buckets_of(counted(*sizes, finished=len(sizes) * 1.02), SHAPES)
    assert requests_of(buckets) == pytest.approx(len(sizes) * 1.02)
    assert tokens_of(buckets)[0] == pytest.approx(sum(i for i, _ in sizes))


@given(st.integers(0, 500), st.integers(0, 500))
def test_requests_as_planned_are_the_planned_workloads(questions: int, documents: int) -> None:
    counters = counted(*[(500, 250)] * questions, *[(3000, 300)] * documents)
    assert by_workload(counters) == pytest.approx({"question": questions, "document": documents}, abs=0.01)


def test_a_long_prompt_goes_with_the_output_that_is_planned_for_it() -> None:
    """Which is nothing that the two histograms tell."""
    shapes = (WorkloadShape("ask", 100, 1500), WorkloadShape("sum up", 4000, 60))
    counters = counted(*[(100, 1500)] * 30, *[(4000, 60)] * 70)
    assert by_workload(counters, shapes) == pytest.approx({"ask": 30, "sum up": 70}, rel=0.02)


@pytest.mark.parametrize("outputs", [(200.0, 300.0), (250.0, 300.0)])
def test_requests_as_planned_have_the_planned_sizes(outputs: tuple[float, float]) -> None:
    """Whether the outputs of both are in one bin or in two."""
    shapes = (WorkloadShape("question", 400, outputs[0]), WorkloadShape("document", 3000, outputs[1]))
    sizes = [(400.0, outputs[0])] * 120 + [(3000.0, outputs[1])] * 60
    question, document = buckets_of(counted(*sizes), shapes)
    assert question == pytest.approx((400, outputs[0], 120), rel=0.01)
    assert document == pytest.approx((3000, outputs[1], 60), rel=0.01)


def test_what_is_planned_otherwise_is_counted_as_it_comes() -> None:
    """The counts win over the plan: most prompts are long, so most requests are documents."""
    found = by_workload(counted(*[(500, 250)] * 10, *[(3000, 300)] * 90))
    assert found == pytest.approx({"question": 10, "document": 90}, abs=0.5)


def test_sizes_that_have_grown_within_a_bin_are_noticed() -> None:
    """Both are between 200 and 500 tokens, where the planned size is."""
    [before] = buckets_of(counted(*[(300, 250)] * 50), (WorkloadShape("question", 300, 250),))
    [after] = buckets_of(counted(*[(450, 250)] * 50), (WorkloadShape("question", 300, 250),))
    assert before == pytest.approx((300, 250, 50))
    assert after == pytest.approx((450, 250, 50))


def test_requests_of_no_planned_size_are_there_too() -> None:
    buckets = buckets_of(counted(*[(9, 1500)] * 40, *[(500, 250)] * 60), SHAPES)
    assert requests_of(buckets) == pytest.approx(100)
    assert tokens_of(buckets) == pytest.approx((40 * 9 + 60 * 500, 40 * 1500 + 60 * 250))


def test_prompts_beyond_the_last_bin_have_their_tokens() -> None:
    assert tokens_of(buckets_of(counted((60_000, 250), (70_000, 250)), SHAPES))[0] == pytest.approx(130_000)


def test_there_is_at_most_one_bucket_for_a_workload_where_the_mean_is_its_own() -> None:
    sizes = [(400.0 + 10 * n, 200.0 + 5 * n) for n in range(20)]
    assert len(buckets_of(counted(*sizes), (QUESTION,))) == 1


def test_what_has_finished_and_is_in_no_histogram_yet_is_as_planned() -> None:
    assert buckets_of(counted(finished=10.0), SHAPES) == ((500, 250, 5), (3000, 300, 5))


@pytest.mark.parametrize(("counters", "shapes"), [(counted(), SHAPES), (counted((1, 1), finished=0.0), SHAPES)])
def test_where_nothing_came_there_is_nothing(counters: Counters, shapes: tuple[WorkloadShape, ...]) -> None:
    assert buckets_of(counters, shapes) == ()


def test_without_workloads_there_is_nothing_to_spread_over() -> None:
    assert buckets_of(counted((1, 1)), ()) == ()


@given(st.sampled_from([QUESTION, DOCUMENT]), st.floats(-0.3, 0.3), st.integers(1, 200))
def test_a_size_near_the_plan_stays_with_its_workload(shape: WorkloadShape, off: float, requests: int) -> None:
    size = (shape.input_tokens * exp(off), shape.output_tokens)
    assert log(size[0] / sqrt(QUESTION.input_tokens * DOCUMENT.input_tokens)) != 0
    assert by_workload(counted(*[size] * requests))[shape.name] == pytest.approx(requests, rel=0.05)


@given(ODD, PLANNED)
def test_whatever_was_counted_the_buckets_are_ones_that_could_be_sent(
    counters: Counters, planned: list[WorkloadShape]
) -> None:
    buckets = buckets_of(counters, planned)
    assert all(isfinite(value) and value >= 0 for bucket in buckets for value in bucket)
    if buckets:
        assert requests_of(buckets) == pytest.approx(counters.requests)
