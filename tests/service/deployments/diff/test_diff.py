"""What two plans differ in: machines to keep, start and stop, engines to restart, requests that go elsewhere."""

from typing import Any

import pytest

from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.diff.schema import DiffDocument, MachineChange
from sutler.service.deployments.diff.stable_ids import keyed, offer_key
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.fields import document_json
from sutler.service.documents.plan import PlanDocument
from tests.service.deployments.diff.fleets import (
    On,
    a_fleet,
    a_machine,
    a_replica,
    a_route,
    an_infeasible_fleet,
    one_replica_each,
)


def a_holding(offer_id: str = "123", **others: Any) -> HoldingDocument:
    given: dict[str, Any] = {"provider": "vastai", "gpu": "h100-sxm", "gpus": 4, "price_usd_per_hour": 9.05}
    return HoldingDocument(**{**given, "offer_id": offer_id, **others})


def between(before: PlanDocument | None, after: PlanDocument, **others: Any) -> DiffDocument:
    return difference(before, after, reason="a test", **others)


def counts(items: tuple[MachineChange, ...]) -> dict[str, int]:
    """Machines by offer."""
    return {item.offer_id: item.count for item in items}


def on_halves(*models: str, **others: Any) -> PlanDocument:
    """One machine whose halves serve these models."""
    replicas = [
        a_replica(f"{model}-{number}", On(gpus=2, first=2 * number), model=model)
        for number, model in enumerate(models)
    ]
    return a_fleet(replicas=tuple(replicas), **others)


def test_the_same_plan_again_leaves_everything_as_it_is() -> None:
    diff = between(one_replica_each(3), one_replica_each(3, revision=2))
    [kept] = diff.keep
    assert (diff.start, diff.stop, diff.reroute) == ((), (), ())
    assert (kept.count, kept.restart, kept.phase) == (3, (), None)
    assert kept.reason == "serves chat-0, chat-1 and chat-2 as before"
    assert diff.usd_per_hour.change == 0


def test_the_first_plan_starts_everything() -> None:
    diff = between(None, one_replica_each(2))
    [started] = diff.start
    [route] = diff.reroute
    assert (diff.from_, diff.to, diff.keep, diff.stop) == (None, 1, (), ())
    assert (started.count, started.phase, started.usd_per_hour) == (2, 1, 18.1)
    assert started.reason == "new in this plan: serves chat-0 and chat-1"
    assert (route.before, route.moved_fraction) == ({}, 1.0)
    assert diff.usd_per_hour.model_dump() == {"before": 0.0, "after": 18.1, "change": 18.1}


def test_a_machine_less_is_stopped_after_its_requests_went_elsewhere() -> None:
    diff = between(one_replica_each(3), one_replica_each(2, revision=2))
    [kept], [stopped], [route] = diff.keep, diff.stop, diff.reroute
    assert (kept.count, kept.restart, stopped.count, diff.start) == (2, (), 1, ())
    assert stopped.phase is not None
    assert route.phase is not None
    assert route.phase < stopped.phase
    assert stopped.usd_per_hour == 9.05
    assert stopped.reason == "not needed any more: chat-2 of the plan before ran on it"
    assert set(route.before) > set(route.after)
    assert route.moved_fraction == pytest.approx(1 / 3)
    assert route.reason == "33.3 % of its requests go to other replicas than before"


def test_another_offer_is_started_before_the_old_one_is_stopped() -> None:
    diff = between(a_fleet(a_machine("old")), a_fleet(a_machine("new"), revision=2))
    [started], [stopped] = diff.start, diff.stop
    assert (started.offer_id, started.phase) == ("new", 1)
    assert (stopped.offer_id, stopped.phase) == ("old", 3)
    assert [route.phase for route in diff.reroute] == [2]


@pytest.mark.parametrize(
    "others", [{"contract": "interruptible"}, {"gpus": 8}, {"gpu": "h200-sxm"}, {"provider": "runpod"}]
)
def test_another_contract_size_gpu_or_provider_is_another_machine(others: dict[str, Any]) -> None:
    diff = between(a_fleet(), a_fleet(a_machine(**others)))
    assert (diff.keep, counts(diff.start), counts(diff.stop)) == ((), {"123": 1}, {"123": 1})
    assert diff.start[0].key != diff.stop[0].key


def test_a_rental_whose_price_moved_is_kept_at_the_new_price_and_both_are_named() -> None:
    diff = between(a_fleet(a_machine(price_usd_per_hour=9.05)), a_fleet(a_machine(price_usd_per_hour=9.4)))
    [kept] = diff.keep
    assert kept.usd_per_hour == 9.4
    assert kept.reason == "serves chat-0 as before; now at 9.4 $ instead of 9.05 $ per machine and hour"
    assert diff.usd_per_hour.change == pytest.approx(0.35)


def test_held_machines_stay_at_their_price_and_dearer_ones_of_the_same_offer_are_new() -> None:
    dear, held = a_machine(price_usd_per_hour=10.0), a_machine(price_usd_per_hour=9.05, held=True)
    replicas = (a_replica("chat-0", On(0)), a_replica("chat-1", On(1)))
    diff = between(a_fleet(), a_fleet(dear, held, replicas=replicas))
    assert (diff.keep[0].usd_per_hour, diff.start[0].usd_per_hour) == (9.05, 10.0)


def test_engines_stay_where_they_run_whatever_the_new_plan_calls_them() -> None:
    """Code runs on the second machine of three; the new plan has it on its first of two."""
    before = a_fleet(
        a_machine(count=3),
        replicas=(
            a_replica("chat-0", On(machine=0)),
            a_replica("code-0", On(machine=1), model="code"),
            a_replica("chat-1", On(machine=2)),
        ),
    )
    after = a_fleet(
        a_machine(count=2),
        replicas=(a_replica("code-0", On(machine=0), model="code"), a_replica("chat-0", On(machine=1))),
    )
    diff = between(before, after)
    assert diff.keep[0].restart == ()
    assert counts(diff.stop) == {"123": 1}
    assert [route.model for route in diff.reroute] == ["chat"]


def test_a_machine_with_another_model_on_it_is_kept_and_its_engine_started_anew() -> None:
    before = on_halves("chat", "chat")
    after = on_halves("chat", "code")
    [kept] = between(before, after).keep
    assert (kept.replicas, kept.restart, kept.phase) == (("chat-0", "code-1"), ("code-1",), 2)
    assert kept.reason == "serves chat-0 as before; to serve code-1, started anew"


def test_machines_are_matched_by_what_most_gpus_of_them_go_on_serving() -> None:
    """Of two machines one is left: the one whose halves both serve chat, not the one that shares a half."""
    before = a_fleet(
        a_machine(count=2),
        replicas=(
            a_replica("chat-0", On(machine=0, gpus=2)),
            a_replica("code-0", On(machine=0, gpus=2, first=2), model="code"),
            a_replica("chat-1", On(machine=1, gpus=2)),
            a_replica("chat-2", On(machine=1, gpus=2, first=2)),
        ),
    )
    after = a_fleet(
        replicas=(a_replica("chat-0", On(gpus=2)), a_replica("chat-1", On(gpus=2, first=2))),
    )
    [kept] = between(before, after).keep
    assert kept.restart == ()


def test_a_pipeline_stays_whole() -> None:
    """Two pipelines over two machines each; the new plan has one of them, and a replica on a machine of its own."""
    pairs = (a_replica("chat-0", On(machine=0), On(machine=1)), a_replica("chat-1", On(machine=2), On(machine=3)))
    before = a_fleet(a_machine(count=4), replicas=pairs)
    left = (a_replica("chat-0", On(machine=2)), a_replica("chat-1", On(machine=0), On(machine=1)))
    [kept] = between(before, a_fleet(a_machine(count=3), replicas=left)).keep
    assert (kept.count, kept.restart) == (3, ("chat-0",))


def test_a_pipeline_that_loses_a_machine_is_started_anew_on_the_other() -> None:
    before = a_fleet(a_machine("1"), a_machine("2"), replicas=(a_replica("chat-0", On(0), On(1)),))
    after = a_fleet(a_machine("1"), a_machine("3"), replicas=(a_replica("chat-0", On(0), On(1)),))
    diff = between(before, after)
    assert (counts(diff.keep), diff.keep[0].restart) == ({"1": 1}, ("chat-0",))


@pytest.mark.parametrize(
    ("others", "is_restarted"),
    [
        ({"max_num_seqs": 64}, True),
        ({"max_model_len": 4096}, False),
        ({"max_model_len": 16384}, True),
        ({"max_num_batched_tokens": 2048}, False),
        ({"tensor_parallel_size": 1, "pipeline_parallel_size": 1}, False),
        ({"quantization": "fp8"}, True),
    ],
)
def test_settings_that_a_running_engine_cannot_serve_with_call_for_a_restart(
    others: dict[str, Any], is_restarted: bool
) -> None:
    settings = {"model": "m", "max_num_seqs": 200, "max_model_len": 8192}
    before = a_fleet(replicas=(a_replica("chat-0", engine_args=settings),))
    after = a_fleet(replicas=(a_replica("chat-0", engine_args={**settings, **others}),))
    assert between(before, after).keep[0].restart == (("chat-0",) if is_restarted else ())


@pytest.mark.parametrize(("engine", "is_restarted"), [("any-layout", False), ("sglang", True)])
def test_an_engine_of_another_kind_calls_for_a_restart(engine: str, is_restarted: bool) -> None:
    after = a_fleet(replicas=(a_replica("chat-0").model_copy(update={"engine": engine}),))
    assert between(a_fleet(), after).keep[0].restart == (("chat-0",) if is_restarted else ())


def test_an_engine_without_the_limits_that_plans_have_come_to_state_runs_on() -> None:
    """Plans of measured rates named no sequences, and none named the tokens of a step."""
    earlier = {"model": "m", "max_model_len": 8192, "tensor_parallel_size": 1, "pipeline_parallel_size": 1}
    later = {**earlier, "max_num_seqs": 256, "max_num_batched_tokens": 2048}
    unknown = {"max_batch": None}
    before, after = (
        a_fleet(replicas=(a_replica("chat-0", engine_args=settings).model_copy(update=unknown),))
        for settings in (earlier, later)
    )
    assert between(before, after).keep[0].restart == ()


def test_another_load_ceiling_changes_nothing_about_a_running_engine() -> None:
    before = a_fleet(replicas=(a_replica("chat-0", max_load_fraction=0.6),))
    after = a_fleet(replicas=(a_replica("chat-0", max_load_fraction=0.8),))
    assert between(before, after).keep[0].restart == ()


def test_another_split_of_the_layers_calls_for_a_restart() -> None:
    stage = a_replica("chat-0").stages[0].model_copy(update={"layers": 40})
    after = a_fleet(replicas=(a_replica("chat-0").model_copy(update={"stages": (stage,)}),))
    assert between(a_fleet(), after).keep[0].restart == ("chat-0",)


def test_a_machine_on_which_nothing_runs_any_more_says_so() -> None:
    diff = between(one_replica_each(1), a_fleet(replicas=()))
    assert diff.keep[0].reason == "stays rented, nothing runs on it"


def test_only_workloads_that_go_elsewhere_are_routed_anew() -> None:
    def fleet(share: float) -> PlanDocument:
        routing = (
            a_route({"chat-0": share, "chat-1": 1 - share}),
            a_route({"chat-0": 0.5, "chat-1": 0.5}, workload="short"),
        )
        replicas = (a_replica("chat-0", On(machine=0)), a_replica("chat-1", On(machine=1)))
        return a_fleet(a_machine(count=2), replicas=replicas, routing=routing)

    [route] = between(fleet(0.9), fleet(0.6)).reroute
    assert (route.key, route.usd_per_hour, route.phase) == ("chat/long-short", 0.0, 2)
    assert route.moved_fraction == pytest.approx(0.3)
    assert sorted(route.replica_ids.values()) == ["chat-0", "chat-1"]
    assert between(fleet(0.9), fleet(0.9 + 1e-9)).reroute == ()


def test_workloads_that_come_and_go_are_named() -> None:
    before = a_fleet(routing=(a_route({"chat-0": 1.0}, workload="old"),))
    after = a_fleet(routing=(a_route({"chat-0": 1.0}, workload="new"),))
    reasons = {route.workload: route.reason for route in between(before, after).reroute}
    assert reasons == {
        "old": "no longer served: not in the new plan",
        "new": "new in this plan: goes to chat-0",
    }


def test_what_is_held_without_a_plan_is_stopped() -> None:
    held = [a_holding(count=3), a_holding("spare", price_usd_per_hour=5.0)]
    stops = between(one_replica_each(1), one_replica_each(1), held=held).stop
    assert {(stop.offer_id, stop.count, stop.usd_per_hour) for stop in stops} == {("123", 2, 18.1), ("spare", 1, 5.0)}
    assert {stop.reason for stop in stops} == {"held, in neither plan"}


def test_what_is_held_and_newly_planned_is_not_rented_again_but_its_engine_is_started() -> None:
    held = [a_holding(count=2, price_usd_per_hour=8.0)]
    diff = between(None, one_replica_each(1), held=held)
    [kept], [stopped] = diff.keep, diff.stop
    assert (diff.start, kept.count, kept.restart) == ((), 1, ("chat-0",))
    assert "1 held already, in no plan before" in kept.reason
    assert "9.05 $ instead of 8 $" in kept.reason
    assert (stopped.reason, stopped.usd_per_hour) == ("held, not in the plan", 8.0)


def test_a_lost_machine_that_is_planned_again_is_started_and_needs_no_stop() -> None:
    diff = between(one_replica_each(3), one_replica_each(3), held=[a_holding(count=2)])
    [kept], [started], [gone] = diff.keep, diff.start, diff.stop
    assert (kept.count, started.count, gone.count) == (2, 1, 1)
    assert started.reason == "planned before, but not held: serves chat-2"
    assert gone.held is False
    assert gone.reason == "in the plan before, but not held: there is nothing to stop; send no request to it any more"


def test_nothing_held_is_another_thing_than_nothing_known() -> None:
    assert counts(between(one_replica_each(2), one_replica_each(2), held=[]).start) == {"123": 2}
    assert counts(between(one_replica_each(2), one_replica_each(2)).keep) == {"123": 2}


def test_a_plan_that_rents_nothing_costs_nothing() -> None:
    diff = between(one_replica_each(1), an_infeasible_fleet())
    assert (diff.usd_per_hour.after, counts(diff.stop)) == (0.0, {"123": 1})


def test_the_key_of_an_offer_begins_the_keys_of_its_machines() -> None:
    odd = a_machine("a/b c", provider="p%q", gpu="rtx 4090/ti")
    [machine] = keyed(a_fleet(odd, replicas=())).machines
    assert machine.key == f"{offer_key(odd)}/1"


def test_many_replicas_are_counted_not_listed_in_the_reason() -> None:
    [started] = between(None, one_replica_each(9)).start
    assert started.reason == "new in this plan: serves chat-0, chat-1, chat-2 and 6 more"


def test_the_document_is_read_back_as_it_was() -> None:
    diff = between(one_replica_each(3), one_replica_each(2, revision=2), held=[a_holding(count=4)])
    assert DiffDocument.model_validate_json(document_json(diff)) == diff
    assert '"from": 1' in document_json(diff)


def test_machines_of_an_offer_that_has_become_cheaper_are_rented_anew_where_the_plan_says_so() -> None:
    """Those that are held keep the price at which they were rented."""
    held = (a_holding(count=2),)
    cheaper = a_fleet(
        a_machine(count=2, price_usd_per_hour=7.0, held=False),
        replicas=(a_replica("chat-2", On(rental=0)), a_replica("chat-3", On(rental=0, machine=1))),
        revision=2,
    )
    swapped = between(one_replica_each(2), cheaper, held=held, of_running=True)
    assert (counts(swapped.keep), counts(swapped.start), counts(swapped.stop)) == ({}, {"123": 2}, {"123": 2})
    kept = between(one_replica_each(2), cheaper, held=held)
    assert (counts(kept.keep), counts(kept.start), counts(kept.stop)) == ({"123": 2}, {}, {})
