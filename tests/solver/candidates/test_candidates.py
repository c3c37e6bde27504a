"""Which configurations exist on a market, by hand and against asking for each of them alone."""

from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any, Final

import numpy as np
import pytest

from sutler.solver import throughput
from sutler.solver.candidates.enumerate import enumerate_candidates, layouts_of
from sutler.solver.catalog import load_gpus
from sutler.solver.market.pools import checkpoint_gb
from sutler.solver.market.supply import build_supply
from sutler.solver.problem import EngineName, LatencyLimit, Limits, MeasuredRate, Offer, Problem, Search
from tests.builders import a_model, a_problem, an_offer, measured, random_estimated_problem, random_problem
from tests.looped import for_each
from tests.solver.planning_builders import candidate_with, polytope_of, stages_of
from tests.solver.throughput.builders import a_dense_spec

NETWORK: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
CARDS = load_gpus()
H100, A100 = "h100-sxm", "a100-sxm4-80gb"
Layout = tuple[tuple[str, int], ...]


def estimated(*offers: Offer, **others: Any) -> Problem:
    """A tiny dense model of 8 heads and 4 layers on estimated rates, for an engine that runs any layout."""
    others.setdefault("models", [a_model(spec=a_dense_spec(), engine="any-layout")])
    return a_problem(
        offers=offers,
        gpus=[CARDS[slug] for slug in {offer.gpu for offer in offers}],
        measured_only=False,
        **others,
    )


def layouts(problem: Problem) -> list[Layout]:
    """The stages of every candidate, before dominance."""
    polytope = polytope_of(problem, pruned=False)
    return sorted(tuple(stages_of(polytope, c)) for c in range(len(polytope.candidates)))


def test_tensor_parallelism_never_leaves_a_machine() -> None:
    """Two machines of 2 on one network: TP 2 and pipelines over them, but no TP 4."""
    found = layouts(estimated(an_offer(H100, 2, available=2, **NETWORK)))
    assert max(degree for stages in found for _, degree in stages) == 2
    assert ((H100, 2), (H100, 2)) in found


def test_a_degree_that_does_not_divide_the_heads_is_no_candidate() -> None:
    six_heads = a_model(spec=a_dense_spec(heads=6))
    degrees = {degree for stages in layouts(estimated(an_offer(H100, 8), models=[six_heads])) for _, degree in stages}
    assert degrees == {1, 2}


def test_only_the_asked_degrees_are_tried() -> None:
    problem = estimated(an_offer(H100, 8), search=Search(tensor_parallel=(1, 4), max_pipeline_stages=1))
    assert layouts(problem) == [((H100, 1),), ((H100, 4),)]


def test_pipelines_have_at_most_the_asked_number_of_stages() -> None:
    problem = estimated(an_offer(H100, 8, available=2, **NETWORK))
    for most in (1, 2, 3):
        found = layouts(replace(problem, search=Search(max_pipeline_stages=most)))
        assert max(len(stages) for stages in found) == most


def test_a_pipeline_has_no_more_stages_than_the_model_has_layers() -> None:
    two_layers = a_model(spec=a_dense_spec(layers=2))
    problem = estimated(an_offer(H100, 8, available=2, **NETWORK), models=[two_layers])
    assert max(len(stages) for stages in layouts(problem)) == 2


def test_inside_a_machine_a_replica_takes_1_2_4_or_8_gpus() -> None:
    """On a machine of 8: TP x PP with a product of 1, 2, 4 or 8 and at most 4 stages; never 1 x 3."""
    expected = {(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4) if tp * pp <= 8}
    found = layouts(estimated(an_offer(H100, 8)))
    assert {(stages[0][1], len(stages)) for stages in found} == expected
    assert len(found) == len(expected)


def test_a_stage_that_cannot_hold_the_weights_is_not_a_candidate() -> None:
    """Cards of 24 GB: 40 GB of weights fit on two of them, 48 GB with nothing left for a request only on four."""
    spec = a_dense_spec(layers=8, total_params=20e9, active_params=20e9)
    problem = estimated(an_offer("rtx-4090", 4), models=[a_model(spec=spec)])
    assert {sum(degree for _, degree in stages) for stages in layouts(problem)} == {2, 4}
    larger = a_model(spec=replace(spec, total_params=24e9, active_params=24e9))
    assert {sum(degree for _, degree in stages) for stages in layouts(replace(problem, models=(larger,)))} == {4}


@for_each("seed", range(6))
def test_no_estimated_candidate_holds_less_memory_than_its_weights(seed: int) -> None:
    problem = random_estimated_problem(seed)
    polytope = polytope_of(problem, pruned=False)
    for c in range(len(polytope.candidates)):
        model = problem.models[int(polytope.candidates.model[c])]
        assert model.spec is not None
        if any(row.model == model.name for row in problem.measured):
            continue
        memory_gb = sum(problem.gpus[gpu].memory_gb * degree for gpu, degree in stages_of(polytope, c))
        body_gb = (
            checkpoint_gb(model.spec, model.precision) - 4 * model.spec.vocab_size * model.spec.hidden_size / 1e9
        )
        assert memory_gb > body_gb


def test_a_disk_too_small_for_the_weights_leaves_no_candidate() -> None:
    """8 GB of weights need 8.8 GB of disk; a quarter of 30 GB is too little for one of four GPUs, a half is not."""
    model = a_model(spec=a_dense_spec(total_params=4e9, active_params=4e9))
    search = Search(max_pipeline_stages=1)

    def degrees(disk_gb: float | None) -> list[int]:
        problem = estimated(an_offer(H100, 4, disk_gb=disk_gb, divisible=True), models=[model], search=search)
        return [degree for ((_, degree),) in layouts(problem)]

    assert degrees(None) == [1, 2, 4]
    assert degrees(30.0) == [2, 4]
    assert degrees(8.7) == []


def test_every_stage_across_machines_keeps_the_whole_checkpoint_on_its_disk() -> None:
    """8.8 GB a stage: a machine of one GPU with 8 GB of disk hosts none, however many there are."""
    model = a_model(spec=a_dense_spec(total_params=4e9, active_params=4e9))
    for disk_gb, expected in ((8.0, []), (9.0, [((H100, 1),), ((H100, 1), (H100, 1))])):
        offer = an_offer(H100, available=2, disk_gb=disk_gb, **NETWORK)
        assert layouts(estimated(offer, models=[model], search=Search(max_pipeline_stages=2))) == expected


def test_storage_is_charged_for_every_piece_of_a_candidate() -> None:
    """8.8 GB at 0.1 $/GB and month: once for a pair inside a machine, twice for a pipeline across two."""
    model = a_model(spec=a_dense_spec(total_params=4e9, active_params=4e9))
    offer = an_offer(H100, available=2, disk_gb=100.0, disk_usd_per_gb_month=0.1, **NETWORK)
    problem = estimated(offer, models=[model], search=Search(max_pipeline_stages=2))
    polytope = polytope_of(problem, pruned=False)
    charged = polytope.candidates.storage_usd_per_hour
    once = 8.8 * 0.1 / 720
    assert charged[candidate_with(polytope, H100)] == pytest.approx(once)
    assert charged[candidate_with(polytope, H100, H100)] == pytest.approx(2 * once)
    inside = polytope_of(estimated(replace(offer, gpus=2, site=None), models=[model]), pruned=False)
    assert inside.candidates.storage_usd_per_hour == pytest.approx(once)


def test_gpus_are_mixed_in_a_pipeline_only_across_a_network() -> None:
    def mixed(**where: Any) -> list[Layout]:
        found = layouts(estimated(an_offer(H100, **where), an_offer(A100, **where)))
        return [stages for stages in found if len({gpu for gpu, _ in stages}) > 1]

    assert mixed() == []
    assert mixed(site="s1") == []
    assert mixed(**NETWORK) == [((H100, 1), (A100, 1))]


def test_a_pipeline_does_not_reach_from_one_site_to_another() -> None:
    offers = [an_offer(H100, **NETWORK), an_offer(A100, **{**NETWORK, "site": "s2"})]
    assert layouts(estimated(*offers)) == [((A100, 1),), ((H100, 1),)]


def test_pipelines_keep_to_one_gpu_type_where_mixing_is_off() -> None:
    problem = estimated(
        an_offer(H100, 2, available=2, **NETWORK),
        an_offer(A100, 2, available=2, **NETWORK),
        search=Search(max_pipeline_stages=3, mixed_gpu_pipelines=False),
    )
    found = layouts(problem)
    assert all(len({gpu for gpu, _ in stages}) == 1 for stages in found)
    assert any(len(stages) == 3 for stages in found)
    assert any(len({degree for _, degree in stages}) > 1 for stages in found)


def test_a_pipeline_uses_no_more_gpus_than_there_are() -> None:
    """Three single H100 on a network: pipelines of up to three stages, though four are allowed."""
    found = layouts(estimated(an_offer(H100, available=3, **NETWORK)))
    assert max(len(stages) for stages in found) == 3


def test_a_pipeline_that_the_budget_does_not_pay_for_is_not_enumerated() -> None:
    """5 $/h pay for two H100 at 2 $/h, for five A100 at 1 $/h, and for one H100 with three A100."""
    offers = [an_offer(H100, price=2.0, available=4, **NETWORK), an_offer(A100, price=1.0, available=4, **NETWORK)]
    found = layouts(estimated(*offers, budget_usd_per_hour=5.0))
    spent = [sum({H100: 2.0, A100: 1.0}[gpu] * degree for gpu, degree in stages) for stages in found]
    assert max(spent) == 5.0
    assert ((H100, 1), (H100, 1), (A100, 1)) in found
    assert ((H100, 1), (A100, 1), (A100, 1), (A100, 1)) in found


def expected_across_a_network(stage_types: list[tuple[str, int]], *, deepest: int, gpus: int) -> set[Layout]:
    """Every multiset of stages that the GPUs of each type suffice for."""
    found = set()
    for depth in range(2, deepest + 1):
        for stages in combinations_with_replacement(stage_types, depth):
            used = {gpu: sum(degree for name, degree in stages if name == gpu) for gpu, _ in stages}
            if all(count <= gpus for count in used.values()):
                found.add(stages)
    return found


def test_every_multiset_of_stages_that_fits_a_networked_site_is_a_candidate() -> None:
    """Two machines of 2 of each type: stages of 1 or 2 GPUs, three at most, four GPUs of a type at most."""
    problem = estimated(
        an_offer(H100, 2, available=2, **NETWORK),
        an_offer(A100, 2, available=2, **NETWORK),
        search=Search(max_pipeline_stages=3),
    )
    types = [(H100, 1), (H100, 2), (A100, 1), (A100, 2)]
    across = expected_across_a_network(types, deepest=3, gpus=4)
    polytope = polytope_of(problem, pruned=False)
    found = [tuple(stages_of(polytope, c)) for c in np.flatnonzero(~polytope.candidates.one_piece).tolist()]
    assert len(found) == len(set(found))
    assert set(found) == across


def on_an_engine(engine: EngineName, mixed_gpus: bool | None, *rows: MeasuredRate) -> set[Layout]:
    """Across machines of two H100 and two A100: pipelines of two stages."""
    problem = estimated(
        an_offer(H100, 2, available=2, **NETWORK),
        an_offer(A100, 2, available=2, **NETWORK),
        models=[a_model(spec=a_dense_spec(), engine=engine)],
        rows=rows,
        search=Search(max_pipeline_stages=2, mixed_gpu_pipelines=mixed_gpus),
    )
    return {stages for stages in layouts(problem) if len(stages) > 1}


ONE_TYPE: Final = {((gpu, degree), (gpu, degree)) for gpu in (H100, A100) for degree in (1, 2)}
ONE_DEGREE: Final = ONE_TYPE | {((H100, degree), (A100, degree)) for degree in (1, 2)}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_engines_have_one_degree_in_a_pipeline_and_mix_gpus_where_asked(engine: EngineName) -> None:
    assert on_an_engine(engine, None) == on_an_engine(engine, False) == ONE_TYPE
    assert on_an_engine(engine, True) == ONE_DEGREE


def test_what_was_measured_exists_for_whatever_engine() -> None:
    row = measured([f"{H100}:2", f"{A100}:1"], {"w1": 1.0})
    assert on_an_engine("vllm", None, row) == ONE_TYPE | {((H100, 2), (A100, 1))}


@pytest.mark.parametrize(("engine", "deepest"), [("vllm", 1), ("sglang", 1), ("tensorrt-llm", 3), ("any-layout", 3)])
def test_prefill_and_decode_are_pipelines_where_the_engine_hands_over_between_them(
    engine: EngineName, deepest: int
) -> None:
    problem = estimated(
        an_offer(H100, 2, available=4, **NETWORK),
        models=[a_model(spec=a_dense_spec(), engine=engine)],
        search=Search(max_pipeline_stages=3, disaggregation="only"),
    )
    assert max(len(stages) for stages in layouts(problem)) == deepest


def test_a_layout_holds_one_request_of_all_the_context_that_servers_accept() -> None:
    """4 KiB a token (two values of 16 bits, 4 layers, 2 heads of 128): some 17 million on 80 GB."""
    offer, spec = an_offer(H100), a_dense_spec(max_context_tokens=10**9)

    def found(context: int | None) -> list[Layout]:
        return layouts(estimated(offer, models=[a_model(spec=spec, max_context_tokens=context)]))

    assert found(None) == found(16_000_000) == [((H100, 1),)]
    assert found(18_000_000) == []


def test_a_measured_row_of_one_gpu_type_stands_in_one_machine_or_across_a_network() -> None:
    rows = [measured(["a", "a"], {"w1": 1.0})]
    inside = polytope_of(a_problem(offers=[an_offer("a", 2)], rows=rows), pruned=False)
    assert inside.candidates.one_piece.tolist() == [True]
    assert inside.candidates.piece_size.tolist() == [[2, 0]]
    across = polytope_of(a_problem(offers=[an_offer("a", available=2, **NETWORK)], rows=rows), pruned=False)
    assert across.candidates.one_piece.tolist() == [False]
    assert across.candidates.piece_size.tolist() == [[1, 1]]
    both = polytope_of(a_problem(offers=[an_offer("a", 2, available=2, **NETWORK)], rows=rows), pruned=False)
    assert sorted(both.candidates.one_piece.tolist()) == [False, True]
    neither = polytope_of(a_problem(offers=[an_offer("a", available=2)], rows=rows), pruned=False)
    assert len(neither.candidates) == 0


def test_a_mixed_measured_row_needs_a_network() -> None:
    rows = [measured(["a", "b"], {"w1": 1.0})]
    apart = a_problem(offers=[an_offer("a", 2), an_offer("b", 2)], rows=rows)
    assert layouts(apart) == []
    together = a_problem(offers=[an_offer("a", 2, **NETWORK), an_offer("b", 2, **NETWORK)], rows=rows)
    assert layouts(together) == [(("a", 1), ("b", 1))]


def test_a_measured_row_keeps_the_order_of_its_stages() -> None:
    offers = [an_offer(gpu, **NETWORK) for gpu in "ab"]
    rows = [measured(["b", "a"], {"w1": 1.0}), measured(["a", "b"], {"w1": 2.0})]
    polytope = polytope_of(a_problem(offers=offers, rows=rows), pruned=False)
    assert polytope.candidates.rps[candidate_with(polytope, "b", "a"), 0] == 1.0
    assert polytope.candidates.rps[candidate_with(polytope, "a", "b"), 0] == 2.0


@pytest.mark.parametrize(
    ("stages", "piece"), [(["a", "a", "a"], 4), ("a:3", 4), (["a:2", "a"], 4), (["a:2", "a:3"], 8), ("a:8", 8)]
)
def test_a_replica_of_an_odd_size_keeps_the_next_piece_size(stages: list[str] | str, piece: int) -> None:
    rows = [measured(stages, {"w1": 1.0})]
    polytope = polytope_of(a_problem(offers=[an_offer("a", 8)], rows=rows))
    assert polytope.candidates.piece_size[:, 0].tolist() == [piece]
    for gpus in range(1, piece):
        polytope = polytope_of(a_problem(offers=[an_offer("a", gpus)], rows=rows))
        filled = [gpus] if gpus == sum(stage.tensor_parallel for stage in rows[0].stages) else []
        assert polytope.candidates.piece_size[:, 0].tolist() == filled


def test_a_replica_of_more_than_eight_gpus_stands_only_in_a_machine_that_it_fills() -> None:
    rows = [measured(["a:8", "a:8"], {"w1": 1.0})]
    assert layouts(a_problem(offers=[an_offer("a", 24)], rows=rows)) == []
    assert layouts(a_problem(offers=[an_offer("a", 16)], rows=rows)) == [(("a", 8), ("a", 8))]


def test_workloads_that_a_row_leaves_out_have_rate_zero() -> None:
    problem = random_problem(3)
    polytope = polytope_of(problem, pruned=False)
    for c in range(len(polytope.candidates)):
        model = problem.models[int(polytope.candidates.model[c])]
        stages = stages_of(polytope, c)
        (row,) = (
            row
            for row in problem.measured
            if row.model == model.name and [(s.gpu, s.tensor_parallel) for s in row.stages] == stages
        )
        known = [row.rps.get(workload.name, 0.0) for workload in model.workloads]
        assert polytope.candidates.rps[c, : len(known)].tolist() == known
        assert not polytope.candidates.rps[c, len(known) :].any()


def test_a_configuration_that_serves_nothing_is_no_candidate() -> None:
    rows = [measured("a", {"w1": 0.0}), measured("a:2", {"other": 5.0})]
    assert layouts(a_problem(offers=[an_offer("a", 2)], rows=rows)) == []


def test_a_measured_rate_replaces_the_estimate_of_the_same_configuration() -> None:
    rows = [measured(f"{H100}:2", {"w1": 123.0})]
    problem = estimated(an_offer(H100, 2), rows=rows, search=Search(max_pipeline_stages=1))
    polytope = polytope_of(problem, pruned=False)
    assert layouts(problem) == [((H100, 1),), ((H100, 2),)]
    assert polytope.candidates.rps[candidate_with(polytope, f"{H100}:2"), 0] == 123.0


def test_a_measured_pipeline_replaces_its_estimate_in_any_order_of_stages() -> None:
    offers = [an_offer(gpu, **NETWORK) for gpu in (H100, A100)]
    rows = [measured([A100, H100], {"w1": 7.0})]
    assert layouts(estimated(*offers, rows=rows)) == [((A100, 1),), ((A100, 1), (H100, 1)), ((H100, 1),)]


def test_each_model_has_its_own_candidates() -> None:
    models = [a_model(name="chat"), a_model(name="code")]
    rows = [measured("a", {"w1": 1.0}, "chat"), measured("a", {"w1": 3.0}, "code")]
    polytope = polytope_of(a_problem(offers=[an_offer("a")], models=models, rows=rows))
    assert polytope.candidates.rps[candidate_with(polytope, "a", model=0), 0] == 1.0
    assert polytope.candidates.rps[candidate_with(polytope, "a", model=1), 0] == 3.0


@pytest.mark.slow
@for_each("seed", range(5))
def test_points_of_all_layouts_at_once_are_those_of_each_alone(seed: int) -> None:
    problem = random_estimated_problem(seed)
    supply = build_supply(problem)
    candidates = enumerate_candidates(problem, supply)
    for c in range(0, len(candidates), max(1, len(candidates) // 7)):
        one = candidates.take(np.array([c]))
        model = problem.models[int(one.model[0])]
        points = throughput.points(problem, model, layouts_of(problem, supply.pools, one, None, "aggregated"))
        found = [
            batch
            for batch, rps in zip(points.max_batch.tolist(), points.rps, strict=True)
            if one.rps[0, : len(rps)] == pytest.approx(rps)
        ]
        assert found == [int(one.max_batch[0])]


@pytest.mark.slow
@for_each("seed", range(10))
def test_no_candidate_appears_twice(seed: int) -> None:
    candidates = polytope_of(random_estimated_problem(seed), pruned=False).candidates
    keys = [
        (
            int(candidates.model[c]),
            bool(candidates.one_piece[c]),
            tuple(zip(candidates.pool[c].tolist(), candidates.tensor_parallel[c].tolist(), strict=True)),
            int(candidates.max_batch[c]),
            tuple(candidates.rps[c].tolist()),
        )
        for c in range(len(candidates))
    ]
    assert len(set(keys)) == len(keys)


def test_a_latency_limit_is_already_in_the_rates() -> None:
    """A limit that nothing meets leaves no candidate; one that everything meets at some batch lowers the rates."""
    offer = an_offer(H100)
    free = polytope_of(estimated(offer)).candidates.rps

    def limited(seconds: float) -> Problem:
        slo = (LatencyLimit("tpot", 90, seconds),)
        return estimated(offer, models=[a_model(spec=a_dense_spec(), slo=slo)])

    assert layouts(limited(1e-6)) == []
    slower = polytope_of(limited(0.001)).candidates.rps
    assert slower.shape == free.shape
    assert (slower < free).all()


def test_replicas_are_used_up_to_the_utilisation_limit() -> None:
    """1 req/s at 80 % utilisation is 0.8."""
    problem = a_problem(
        offers=[an_offer("a")],
        rows=[measured("a", {"w1": 1.0})],
        limits=Limits(max_utilisation_fraction=0.8),
    )
    polytope = polytope_of(problem)
    assert polytope.rate.tolist() == [[0.8]]


@pytest.mark.parametrize("seed", range(3))
def test_the_last_bits_of_rates_which_differ_between_processors_change_no_candidate(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between fleets that are as good as each other the search would choose by them."""
    problem = random_estimated_problem(seed)
    supply = build_supply(problem)
    found = enumerate_candidates(problem, supply)
    points_as_they_are, rng = throughput.points, np.random.default_rng(seed)

    def points(*given: Any, **options: Any) -> Any:
        made = points_as_they_are(*given, **options)
        noise = 1 + np.finfo(float).eps * rng.integers(-3, 4, made.rps.shape)
        assert ((made.rps * noise != made.rps) & (made.rps > 0)).any()
        return replace(made, rps=made.rps * noise, low_rps=made.low_rps * noise)

    monkeypatch.setattr(throughput, "points", points)
    again = enumerate_candidates(problem, supply)
    assert found.rps.tobytes() == again.rps.tobytes()
    assert found.low_rps.tobytes() == again.low_rps.tobytes()
