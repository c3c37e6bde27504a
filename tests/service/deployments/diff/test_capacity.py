"""What diffs say of capacity: which engines restart together, in which order, and what the others carry meanwhile."""

from typing import Any

import pytest

from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.diff.schema import CapacityStep
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.plan import (
    EvidenceDocument,
    PlanDocument,
    PlannedModel,
    PlannedWorkload,
    ReplicaDocument,
)
from tests.service.deployments.diff.fleets import On, a_fleet, a_machine, a_replica, one_replica_each

OTHER = {"model": "meta-llama/Meta-Llama-3-70B", "max_num_seqs": 100}


def one(name: str, *places: On, rate_rps: float = 4.2, **others: Any) -> ReplicaDocument:
    """A replica with all its time in use."""
    rates = {"throughput_rps": {"long-short": rate_rps}, "sustained_rps": {"long-short": rate_rps}}
    return a_replica(name, *places, utilisation_fraction=1.0, **{**rates, **others})


def steps(
    before: PlanDocument | None, after: PlanDocument, **others: Any
) -> list[tuple[int, tuple[str, ...], float]]:
    def shown(step: CapacityStep) -> tuple[int, tuple[str, ...], float]:
        return step.phase, step.restart, round(step.carried_fraction, 6)

    return [shown(step) for step in difference(before, after, reason="a test", **others).capacity]


def on_machines(count: int, *, started_anew: int = 0, **others: Any) -> PlanDocument:
    """One replica on each machine; so many of them with other settings."""
    anew: dict[str, Any] = {"engine_args": OTHER}
    replicas = [one(f"chat-{n}", On(machine=n), **(anew if n < started_anew else {})) for n in range(count)]
    return a_fleet(a_machine(count=count), replicas=tuple(replicas), **others)


def test_the_first_plan_carries_nothing_until_its_machines_serve() -> None:
    assert steps(None, on_machines(2)) == [(1, (), 0.0), (2, (), 1.0), (3, (), 1.0)]


def test_a_plan_that_changes_nothing_carries_all_the_time() -> None:
    assert steps(on_machines(2), on_machines(2)) == [(1, (), 1.0), (2, (), 1.0), (3, (), 1.0)]


def test_replicas_on_kept_machines_start_anew_one_after_the_other() -> None:
    found = steps(on_machines(3), on_machines(3, started_anew=3))
    assert [(phase, len(ids)) for phase, ids, _ in found] == [(1, 0), (2, 1), (2, 1), (2, 1), (3, 0)]
    assert {name for _, ids, _ in found for name in ids} == {"chat-0", "chat-1", "chat-2"}
    assert [carried for *_, carried in found] == [1.0, *[pytest.approx(2 / 3, abs=1e-6)] * 3, 1.0]


def test_new_machines_stand_in_while_others_start_anew_and_what_goes_stays_until_then() -> None:
    grown = on_machines(3, started_anew=3)
    assert [carried for *_, carried in steps(on_machines(2), grown)] == pytest.approx(
        [2 / 3, 2 / 3, 2 / 3, 1], abs=1e-6
    )
    shrunk = on_machines(2, started_anew=2)
    assert [carried for *_, carried in steps(on_machines(3), shrunk)] == [1.0, 1.0, 1.0, 1.0]


def test_on_one_machine_only_those_stop_whose_gpus_are_needed() -> None:
    def four(**others: Any) -> PlanDocument:
        return a_fleet(replicas=tuple(one(f"chat-{n}", On(gpus=1, first=n), **others) for n in range(4)))

    found = steps(four(), four(engine_args=OTHER))
    assert [(len(ids), carried) for phase, ids, carried in found if phase == 2] == [(1, 0.75)] * 4
    whole = a_fleet(replicas=(one("chat-0", On(gpus=4), rate_rps=16.8),))
    assert [step for step in steps(four(), whole) if step[0] == 2] == [(2, ("chat-0",), 0.0)]
    [step] = [step for step in steps(whole, four()) if step[0] == 2]
    assert (set(step[1]), step[2]) == ({"chat-0", "chat-1", "chat-2", "chat-3"}, 0.0)


def test_an_engine_that_runs_on_keeps_its_gpus_whatever_the_new_plan_numbers_them() -> None:
    """chat stays on GPUs 2 and 3, which the new plan calls 0 and 1: code starts where the one that goes has been."""
    before = a_fleet(replicas=(one("old-0", On(gpus=2), model="old"), one("chat-0", On(gpus=2, first=2))))
    after = a_fleet(replicas=(one("chat-0", On(gpus=2)), one("code-0", On(gpus=2, first=2), model="code")))
    diff = difference(before, after, reason="")
    assert [item.restart for item in diff.keep] == [("code-0",)]
    assert steps(before, after) == [(1, (), 0.0), (2, ("code-0",), 0.0), (3, (), 1.0)]
    only_chat = a_fleet(replicas=(one("chat-0", On(gpus=2)), one("chat-1", On(gpus=2, first=2), engine_args=OTHER)))
    pair = a_fleet(replicas=(one("chat-0", On(gpus=2), engine_args=OTHER), one("chat-1", On(gpus=2, first=2))))
    assert steps(only_chat, pair) == [(1, (), 1.0), (2, (), 1.0), (3, (), 1.0)]


def test_pipelines_that_share_a_machine_start_anew_together() -> None:
    def pairs(**others: Any) -> PlanDocument:
        pair = one("chat-0", On(machine=0, gpus=2), On(machine=1, gpus=2), **others)
        rest = one("chat-1", On(machine=1, gpus=2, first=2), **others)
        return a_fleet(a_machine(count=2), replicas=(pair, rest))

    one_on_each = a_fleet(
        a_machine(count=2),
        replicas=tuple(one(f"chat-{n}", On(machine=n, gpus=2), engine_args=OTHER) for n in range(2)),
    )
    [step] = [step for step in steps(pairs(), one_on_each) if step[1]]
    assert set(step[1]) == {"chat-0", "chat-1"}
    assert [carried for *_, carried in steps(pairs(), pairs(engine_args=OTHER))] == [1.0, 0.5, 0.5, 1.0]


def test_what_is_lost_carries_nothing_and_what_is_found_has_to_start() -> None:
    holding: dict[str, Any] = {"provider": "vastai", "gpu": "h100-sxm", "gpus": 4, "price_usd_per_hour": 9.05}
    one_left = [HoldingDocument(offer_id="123", count=1, **holding)]
    assert steps(on_machines(2), on_machines(2), held=one_left) == [(1, (), 0.5), (2, (), 1.0), (3, (), 1.0)]
    both = [HoldingDocument(offer_id="123", count=2, **holding)]
    found = steps(on_machines(1), on_machines(2), held=both)
    assert found == [(1, (), 0.5), (2, ("chat-1",), 0.5), (3, (), 1.0)]


def test_what_is_left_is_measured_by_what_is_asked_for_not_by_all_that_could_be_served() -> None:
    asked = PlannedWorkload(name="long-short", input_tokens=100.0, output_tokens=100.0, rate_rps=8.4)
    model = {"architecture": None, "precision": "fp16", "kv_precision": "fp16", "prefix_cache_hit_fraction": 0.0}
    planned = PlannedModel.model_validate({"name": "chat", "workloads": (asked,), "slo": {}, **model})
    after = on_machines(3, started_anew=3, models=(planned,))
    assert [carried for *_, carried in steps(on_machines(3), after)] == [1.0] * 5


def test_engines_that_go_are_rated_as_their_plan_rated_them() -> None:
    slower = on_machines(2).model_copy(
        update={"replicas": tuple(one(f"chat-{n}", On(machine=n), rate_rps=2.1, engine_args=OTHER) for n in range(2))}
    )
    assert steps(slower, on_machines(2))[0] == (1, (), 0.5)
    unstated = slower.model_copy(
        update={
            "replicas": tuple(r.model_copy(update={"sustained_rps": {}}) for r in slower.replicas),
            "evidence": tuple(
                EvidenceDocument(
                    replica=r.id, workload="long-short", source="roofline", detail="", rps=2.1, low_rps=1, high_rps=3
                )
                for r in slower.replicas
            ),
        }
    )
    assert steps(unstated, on_machines(2)) == steps(slower, on_machines(2))


def test_nothing_is_said_of_a_plan_that_does_not_state_what_its_replicas_sustain() -> None:
    old = one_replica_each(2)
    unstated = old.model_copy(
        update={"replicas": tuple(r.model_copy(update={"sustained_rps": {}}) for r in old.replicas)}
    )
    assert steps(old, unstated) == []
    assert steps(unstated, old) == [(1, (), 1.0), (2, (), 1.0), (3, (), 1.0)]
