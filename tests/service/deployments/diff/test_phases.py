"""Prefill and decode replicas, what goes between them, and power caps: in keys, Terraform outputs and diffs."""

import json
from typing import Any

import pytest

from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.documents.plan import KvTransferDocument, PlanDocument
from tests.service.deployments.diff.fleets import On, a_fleet, a_machine, a_replica, a_route, on_four
from tests.service.deployments.test_terraform import misfits, state, values
from tests.service.export.plans import in_two_phases, plan_of


def in_phases(*shares: float, cap_watts: float | None = None, revision: int = 1) -> PlanDocument:
    """One machine that prefills for as many others as there are shares."""
    prefill = a_replica("chat-0", On(), role="prefill")
    if cap_watts is not None:
        stages = tuple(stage.model_copy(update={"power_cap_watts": cap_watts}) for stage in prefill.stages)
        prefill = prefill.model_copy(update={"stages": stages})
    decode = [a_replica(f"chat-{n}", On(1, n - 1), role="decode") for n in range(1, len(shares) + 1)]
    transfers = tuple(
        KvTransferDocument(
            model="chat",
            workload="long-short",
            prefill="chat-0",
            decode=one.id,
            fraction=share,
            kv_gb=0.3,
            exposed_s=0.01,
        )
        for one, share in zip(decode, shares, strict=True)
    )
    return a_fleet(
        a_machine("1"),
        a_machine("2", count=len(shares)),
        replicas=(prefill, *decode),
        routing=(a_route({"chat-0": 1.0}),),
        kv_transfers=transfers,
        revision=revision,
    )


def changed(before: PlanDocument | None, after: PlanDocument) -> DiffDocument:
    return difference(before, after, reason="a test")


def test_outputs_say_what_is_handed_over_by_keys_of_replicas() -> None:
    found = values(in_phases(0.25, 0.75))
    transfers = list(found["kv_transfers"].values())
    assert sorted(one["fraction"] for one in transfers) == [0.25, 0.75]
    assert {found["replicas"][one["prefill"]]["role"] for one in transfers} == {"prefill"}
    assert {found["replicas"][one["decode"]]["role"] for one in transfers} == {"decode"}
    assert len({one["decode"] for one in transfers}) == 2


def test_rounded_fractions_of_what_is_handed_over_sum_to_one() -> None:
    transfers = values(in_phases(1 / 3, 1 / 3, 1 / 3))["kv_transfers"].values()
    assert sum(round(one["fraction"] * 1_000_000) for one in transfers) == 1_000_000


def test_outputs_say_which_gpus_are_capped() -> None:
    found = values(in_phases(1.0, cap_watts=350.0))
    [(machine, cap)] = found["power_caps"].items()
    assert machine == "vastai/1/on_demand/4xh100-sxm/1"
    assert cap == {"watts": {"0": 350.0, "1": 350.0, "2": 350.0, "3": 350.0}}


@pytest.mark.parametrize("plan", [in_phases(0.5, 0.5, cap_watts=350.0), plan_of(in_two_phases())])
def test_every_output_has_exactly_the_type_it_states(plan: PlanDocument) -> None:
    outputs = state(plan)["outputs"]
    assert [found for output in outputs.values() for found in misfits(output["value"], output["type"])] == []
    plain = state(a_fleet())["outputs"]
    assert {name: output["type"] for name, output in outputs.items()} == {
        name: output["type"] for name, output in plain.items()
    }


def test_a_replica_of_one_phase_is_started_so_that_it_hands_over() -> None:
    commands = {one["role"]: one["command"] for one in values(in_phases(1.0))["replicas"].values()}
    for role, kv_role in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        words = commands[role]
        assert json.loads(words[words.index("--kv-transfer-config") + 1])["kv_role"] == kv_role


def test_a_pipeline_of_one_phase_has_no_command() -> None:
    pipeline = a_replica("chat-0", On(0), On(1), role="prefill")
    plan = a_fleet(a_machine("1"), a_machine("2"), replicas=(pipeline,))
    assert [one["command"] for one in values(plan)["replicas"].values()] == [[]]


def test_caps_and_shares_leave_replicas_and_routes_as_they_are() -> None:
    old, new = values(in_phases(0.5, 0.5)), values(in_phases(0.4, 0.6, cap_watts=350.0))
    assert {name for name in old if old[name] != new[name]} == {"plan", "kv_transfers", "power_caps"}


def test_where_answers_are_written_is_re_routed() -> None:
    before, after = in_phases(0.5, 0.5), in_phases(0.2, 0.8, revision=2)
    [change] = changed(before, after).reroute
    assert change.key == "chat/long-short/decode"
    assert change.moved_fraction == pytest.approx(0.3)
    assert change.reason == "30 % of it is handed over to other replicas than before"
    assert sorted(change.after.values()) == [0.2, 0.8]


def test_a_plan_that_hands_over_for_the_first_time_says_where_to() -> None:
    first = {change.key: change.reason for change in changed(None, in_phases(1.0)).reroute}
    assert first == {
        "chat/long-short": "new in this plan: goes to chat-0",
        "chat/long-short/decode": "handed over after its prompts: goes on to chat-1",
    }
    back = {change.key: change.reason for change in changed(in_phases(1.0), a_fleet(revision=2)).reroute}
    assert back["chat/long-short/decode"] == "nothing of it is handed over any more"


def test_an_engine_that_sends_and_receives_takes_the_other_phase_by_routing() -> None:
    diff = changed(on_four("ppd"), on_four("pdd", revision=2))
    [kept] = diff.keep
    assert (kept.restart, kept.phase) == ((), 2)
    assert kept.reason.startswith("serves chat-")
    assert kept.reason.endswith(" takes decode instead of prefill, by routing")
    assert [(step.phase, step.restart) for step in diff.capacity] == [(1, ()), (2, ()), (3, ())]
    assert [change.moved_fraction for change in diff.reroute] == [pytest.approx(0.5)]


def test_to_terraform_an_engine_in_the_other_phase_is_the_same_replica() -> None:
    before, after = values(on_four("ppd")), values(on_four("pdd", revision=2))
    for part in ("rentals", "replicas"):
        assert before[part].keys() == after[part].keys()
    changed_roles = [key for key, one in after["replicas"].items() if one != before["replicas"][key]]
    assert len(changed_roles) == 1
    [key] = changed_roles
    assert after["replicas"][key] == {**before["replicas"][key], "role": "decode"}
    started = [values(on_four(roles, bend=False))["replicas"] for roles in ("ppd", "pdd")]
    assert started[0].keys() != started[1].keys()


def test_as_many_engines_as_can_keep_their_phase() -> None:
    """Machines of one offer are interchangeable, whichever the plan names first."""
    for before, after in (("ppd", "dpp"), ("pdpd", "ddpp")):
        [kept] = changed(on_four(before), on_four(after, revision=2)).keep
        assert "by routing" not in kept.reason
        assert (kept.restart, kept.phase) == ((), None)
        assert values(on_four(before))["replicas"] == values(on_four(after))["replicas"]


@pytest.mark.parametrize(("was", "becomes"), [(False, False), (False, True)])
def test_an_engine_started_for_one_phase_starts_anew_for_the_other(was: bool, becomes: bool) -> None:
    [kept] = changed(on_four("ppd", bend=was), on_four("pdd", bend=becomes, revision=2)).keep
    assert len(kept.restart) == 1
    assert "by routing" not in kept.reason


def test_engines_that_were_started_for_one_phase_go_on_in_it() -> None:
    """What is said of them now is another argument: nothing is started anew for that."""
    [kept] = changed(on_four("ppd", bend=False), on_four("ppd", revision=2)).keep
    assert (kept.restart, kept.phase) == ((), None)


@pytest.mark.parametrize(("was", "becomes", "restarts"), [(100, 90, 0), (100, 110, 1)])
def test_engines_with_the_sequences_of_their_phase_start_anew_for_more_of_them(
    was: int, becomes: int, restarts: int
) -> None:
    before, after = on_four("pd", bend=False, decoding=was), on_four("pd", decoding=becomes, revision=2)
    assert sum(len(kept.restart) for kept in changed(before, after).keep) == restarts
    [kept] = changed(on_four("pd", decoding=was), on_four("pd", decoding=becomes, revision=2)).keep
    assert kept.restart == ()


def test_an_engine_that_sends_and_receives_is_started_so() -> None:
    for one in values(on_four("pd"))["replicas"].values():
        words = one["command"]
        assert json.loads(words[words.index("--kv-transfer-config") + 1])["kv_role"] == "kv_both"
        assert words[words.index("--max-num-batched-tokens") + 1] == "2048"


def test_a_replica_that_changes_its_role_is_started_anew() -> None:
    before = a_fleet(replicas=(a_replica("chat-0", role="decode"),))
    after = a_fleet(replicas=(a_replica("chat-0"),), revision=2)
    [kept] = changed(before, after).keep
    assert kept.restart == ("chat-0",)


@pytest.mark.parametrize(("was", "becomes"), [(None, 350.0), (350.0, None), (350.0, 400.0)])
def test_other_caps_are_something_to_do_without_starting_anything_anew(was: Any, becomes: Any) -> None:
    found = changed(in_phases(1.0, cap_watts=was), in_phases(1.0, cap_watts=becomes, revision=2)).keep
    [capped] = [one for one in found if "power caps" in one.reason]
    assert capped.reason == "serves chat-0 as before; other power caps on 1 of them"
    assert (capped.phase, capped.restart) == (2, ())
    assert [one.phase for one in found if one is not capped] == [None]


def test_new_machines_say_that_they_have_caps() -> None:
    started = {one.offer_id: one.reason for one in changed(None, in_phases(1.0, cap_watts=350.0)).start}
    assert started["1"].endswith("serves chat-0; power caps on 1 of them")
    assert "power caps" not in started["2"]


def test_caps_that_stay_are_nothing_to_do() -> None:
    diff = changed(in_phases(1.0, cap_watts=350.0), in_phases(1.0, cap_watts=350.0, revision=2))
    assert [one.phase for one in diff.keep] == [None, None]
    assert diff.reroute == ()


def test_keys_do_not_depend_on_the_order_of_the_plan() -> None:
    plan = in_phases(0.25, 0.75)
    turned = plan.model_copy(update={"kv_transfers": tuple(reversed(plan.kv_transfers))})
    assert keyed(plan).transfers == keyed(turned).transfers
