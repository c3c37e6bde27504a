"""The problem with the traffic that is seen in the place of what was stated."""

from datetime import timedelta

import pytest

from sutler.service.deployments.replanning.load import LEAST_SHARE, at_least, carries_load, has_rates, seen
from sutler.service.deployments.traffic.planned import shapes, stated_rps
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import SloDocument
from tests.service.deployments.replanning.builders import START, a_problem, known_of, observed, traffic

MIX = {"kind": "max_throughput"}


def rates(problem: ProblemDocument) -> dict[str, float]:
    return {w.name: w.rate_rps or 0.0 for model in problem.models for w in model.workloads or ()}


def sizes(problem: ProblemDocument) -> dict[str, tuple[float, float]]:
    return {w.name: (w.input_tokens, w.output_tokens) for model in problem.models for w in model.workloads or ()}


def test_traffic_that_is_known_takes_the_place_of_what_was_stated() -> None:
    found = rates(seen(a_problem(), traffic(40.0, 3.0), a_problem()))
    assert found == {"question": pytest.approx(40.0), "document": pytest.approx(3.0)}


def test_requests_that_have_grown_are_planned_at_their_size() -> None:
    found = sizes(seen(a_problem(), traffic(40.0, 4.0, tokens_factor=1.3), a_problem()))
    assert found == {"question": pytest.approx((650.0, 325.0)), "document": pytest.approx((3900.0, 390.0))}


def test_growth_counts_at_once_and_less_only_once_it_has_lasted() -> None:
    before = observed(20.0, 2.0, until=START - timedelta(seconds=600))
    quiet = known_of([*before, *observed(5.0, 0.5, length_s=600.0)])
    assert sum(rates(seen(a_problem(), quiet, a_problem())).values()) == pytest.approx(22.0)
    lasting = traffic(5.0, 0.5)
    assert sum(rates(seen(a_problem(), lasting, a_problem())).values()) == pytest.approx(5.5)


def test_traffic_that_is_yet_to_come_is_planned_for_where_it_is_asked_for() -> None:
    [stated] = a_problem(40.0, 1.0).models
    known = at_least(traffic(20.0, 2.0)["chat"], stated)
    found = rates(seen(a_problem(40.0, 1.0), {"chat": known}, a_problem(40.0, 1.0)))
    assert found == {"question": pytest.approx(40.0), "document": pytest.approx(2.0)}
    assert known.rate_rps == pytest.approx(42.0)
    assert known.newer_rps == pytest.approx(42.0)
    silent = known_of(observed(90.0, 9.0, until=START - timedelta(hours=5)))["chat"]
    assert at_least(silent, stated) == silent


def test_a_lull_after_more_than_was_planned_is_planned_for_what_was_planned_at_most() -> None:
    before = observed(60.0, 6.0, until=START - timedelta(seconds=600))
    quiet = known_of([*before, *observed(5.0, 0.5, length_s=600.0)])
    assert sum(rates(seen(a_problem(), quiet, a_problem())).values()) == pytest.approx(22.0)


def test_a_workload_that_nobody_sends_any_more_stays_servable() -> None:
    found = rates(seen(a_problem(), traffic(30.0, 0.0), a_problem()))
    assert found["document"] == pytest.approx(LEAST_SHARE * 2.0)


def test_without_any_request_the_plan_is_never_for_nothing() -> None:
    assert rates(seen(a_problem(), traffic(0.0, 0.0), a_problem())) == {"question": 20.0, "document": 2.0}


def test_a_feed_that_is_silent_keeps_what_the_plan_was_made_for() -> None:
    planned = a_problem(31.0, 4.0)
    silent = known_of(observed(90.0, 9.0, until=START - timedelta(hours=5)), planned=planned)
    assert silent["chat"].state == "silent"
    for known in (silent, known_of([]), {}):
        assert rates(seen(a_problem(), known, planned)) == {"question": 31.0, "document": 4.0}


def test_what_is_stated_anew_is_news_where_nothing_is_seen() -> None:
    assert rates(seen(a_problem(7.0, 1.0), {}, None)) == {"question": 7.0, "document": 1.0}


def test_workloads_that_were_renamed_do_not_get_the_old_plans_traffic() -> None:
    [model] = a_problem().models
    workloads = tuple(w.model_copy(update={"name": f"new-{w.name}"}) for w in model.workloads or ())
    renamed = a_problem(9.0, 1.0).model_copy(update={"models": (model.model_copy(update={"workloads": workloads}),)})
    assert rates(seen(renamed, {}, a_problem(31.0, 4.0))) == {"new-question": 20.0, "new-document": 2.0}


def test_a_batch_has_no_traffic_and_a_mix_is_no_load() -> None:
    mix = a_problem(objective=MIX, budget_usd_per_hour=10)
    assert (has_rates(a_problem()), carries_load(a_problem())) == (True, True)
    assert (has_rates(mix), carries_load(mix)) == (True, False)


def test_where_only_the_mix_counts_less_is_less_at_once() -> None:
    mix = a_problem(objective=MIX, budget_usd_per_hour=10)
    before = observed(20.0, 2.0, until=START - timedelta(seconds=600))
    quiet = known_of([*before, *observed(5.0, 0.5, length_s=600.0)])
    assert sum(rates(seen(mix, quiet, mix)).values()) == pytest.approx(5.5)


def test_a_model_is_watched_by_the_sizes_of_its_workloads() -> None:
    [model] = a_problem().models
    assert [(shape.name, shape.input_tokens) for shape in shapes(model)] == [
        ("question", 500.0),
        ("document", 3000.0),
    ]
    assert stated_rps(model) == 22.0


def with_own_limits(problem: ProblemDocument, seconds: float) -> ProblemDocument:
    slo = SloDocument(ttft_p90_s=seconds)
    models = tuple(
        model.model_copy(
            update={"workloads": tuple(w.model_copy(update={"slo": slo}) for w in model.workloads or ())}
        )
        for model in problem.models
    )
    return problem.model_copy(update={"models": models})


def own_limits(problem: ProblemDocument) -> set[float | None]:
    return {w.slo.ttft_p90_s if w.slo else None for model in problem.models for w in model.workloads or ()}


def test_limits_of_workloads_are_those_that_are_stated_whatever_traffic_is_seen() -> None:
    stated, planned = with_own_limits(a_problem(), 1.0), with_own_limits(a_problem(), 2.0)
    assert own_limits(seen(stated, traffic(40.0, 3.0), planned)) == {1.0}
    unseen = seen(stated, {}, with_own_limits(a_problem(31.0, 4.0), 2.0))
    assert (own_limits(unseen), rates(unseen)) == ({1.0}, {"question": 31.0, "document": 4.0})
    assert own_limits(seen(a_problem(), {}, planned)) == {None}
