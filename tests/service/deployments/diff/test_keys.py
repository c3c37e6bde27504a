"""Keys of machines, replicas and routes: what a plan shares with the one before it keeps its key."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sutler.service.deployments.diff.stable_ids import KeyedPlan, keyed
from sutler.service.documents.plan import PlanDocument, PlannedModel, PlannedPrecision
from sutler.service.documents.problem_parts import SloDocument
from tests.service.deployments.diff.fleets import On, a_fleet, a_machine, a_replica, a_route, one_replica_each


def machine_keys(plan: PlanDocument) -> set[str]:
    return {machine.key for machine in keyed(plan).machines}


def replica_keys(plan: PlanDocument) -> set[str]:
    return {replica.key for replica in keyed(plan).replicas}


def key_of(plan: PlanDocument, replica_id: str) -> str:
    [key] = [part.key for part in keyed(plan).replicas if part.replica.id == replica_id]
    return key


def test_a_machine_is_called_after_what_is_rented() -> None:
    assert machine_keys(a_fleet()) == {"vastai/123/on_demand/4xh100-sxm/1"}


def test_a_higher_count_adds_keys_and_keeps_the_others() -> None:
    two, three = one_replica_each(2), one_replica_each(3)
    assert machine_keys(two) < machine_keys(three)
    assert replica_keys(two) < replica_keys(three)
    assert len(machine_keys(three)) == len(replica_keys(three)) == 3


def test_a_rental_that_goes_leaves_the_others_their_keys() -> None:
    both = a_fleet(a_machine("1"), a_machine("2"), replicas=(a_replica("chat-0", On(0)), a_replica("chat-1", On(1))))
    second = a_fleet(a_machine("2"), replicas=(a_replica("chat-0", On(0)),))
    assert machine_keys(second) < machine_keys(both)
    assert key_of(second, "chat-0") == key_of(both, "chat-1")


def test_alike_machines_of_two_rentals_do_not_share_a_key() -> None:
    plan = a_fleet(
        a_machine(storage_gb=140.0),
        a_machine(storage_gb=20.0),
        replicas=(a_replica("chat-0", On(0)), a_replica("code-0", On(1), model="code")),
    )
    assert {key.rpartition("/")[2] for key in machine_keys(plan)} == {"1", "2"}


def test_one_of_several_equals_that_goes_takes_the_last_copy_of_them() -> None:
    """Chat is on copies 1 and 2, code on copy 3."""
    with_code = a_fleet(
        a_machine(count=3),
        replicas=(
            a_replica("code-0", On(machine=0), model="code"),
            a_replica("chat-0", On(machine=1)),
            a_replica("chat-1", On(machine=2)),
        ),
    )
    without = one_replica_each(2)
    assert machine_keys(with_code) - machine_keys(without) == {"vastai/123/on_demand/4xh100-sxm/3"}
    assert replica_keys(with_code) - replica_keys(without) == {key_of(with_code, "code-0")}


def test_equal_replicas_on_one_machine_are_numbered_by_their_gpus() -> None:
    halves = a_fleet(
        replicas=(a_replica("chat-0", On(gpus=2, first=2)), a_replica("chat-1", On(gpus=2))),
    )
    one = a_fleet(replicas=(a_replica("chat-0", On(gpus=2)),))
    assert key_of(halves, "chat-1") == key_of(one, "chat-0")
    assert key_of(halves, "chat-0").removesuffix("/2") == key_of(one, "chat-0").removesuffix("/1")


def test_the_machines_of_a_pipeline_keep_together_on_copies_of_one_offer() -> None:
    straight = a_fleet(
        a_machine(count=4),
        replicas=(
            a_replica("chat-0", On(machine=0), On(machine=1)),
            a_replica("chat-1", On(machine=2), On(machine=3)),
        ),
    )
    crossed = a_fleet(
        a_machine(count=4),
        replicas=(
            a_replica("chat-0", On(machine=3), On(machine=0)),
            a_replica("chat-1", On(machine=1), On(machine=2)),
        ),
    )
    assert replica_keys(straight) == replica_keys(crossed)


def test_settings_and_layers_are_no_part_of_a_replicas_key() -> None:
    stage = a_replica("chat-0").stages[0].model_copy(update={"layers": 40})
    other = a_replica("chat-0", engine_args={"model": "m"}, max_batch=9).model_copy(update={"stages": (stage,)})
    assert replica_keys(a_fleet(replicas=(other,))) == replica_keys(a_fleet())


def test_another_machine_another_layout_or_another_model_is_another_replica() -> None:
    plans = [
        a_fleet(),
        a_fleet(a_machine("124")),
        a_fleet(replicas=(a_replica("chat-0", On(gpus=2), On(gpus=2, first=2)),)),
        a_fleet(replicas=(a_replica("chat-0", model="code"),)),
        a_fleet(replicas=(a_replica("chat-0", role="decode"),)),
    ]
    assert len(set.union(*map(replica_keys, plans))) == len(plans)


def test_another_contract_or_size_is_another_machine() -> None:
    plans = [a_fleet(), a_fleet(a_machine(contract="interruptible")), a_fleet(a_machine(gpus=8))]
    assert len(set.union(*map(machine_keys, plans))) == len(plans)


def test_a_slash_in_a_name_does_not_divide_it() -> None:
    plan = a_fleet(
        replicas=(
            a_replica("a", On(gpus=1), model="a/b"),
            a_replica("b", On(gpus=1, first=1), model="a"),
        ),
        routing=(
            a_route({"a": 1.0}, model="a/b", workload="c"),
            a_route({"b": 1.0}, model="a", workload="b/c"),
        ),
    )
    assert [route.key for route in keyed(plan).routes] == ["a%2Fb/c", "a/b%2Fc"]


def test_a_route_names_replicas_by_key() -> None:
    plan = a_fleet()
    [route] = keyed(plan).routes
    assert route.fractions == {key_of(plan, "chat-0"): 1.0}


# Machines of two offers, each with one or two replicas of one GPU, and pipelines over two machines of their own.
CONTENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from(["chat", "code"]), min_size=1, max_size=2).map(sorted)),
    max_size=5,
)
PIPELINES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab")), max_size=3)


def listed(
    contents: list[tuple[str, list[str]]], pipelines: list[tuple[str, str]], order: st.DataObject
) -> PlanDocument:
    """The fleet as a plan that lists machines and replicas in an order of its own."""
    offers = [offer for offer, _ in contents] + [offer for pair in pipelines for offer in pair]
    places: list[On] = [On()] * len(offers)
    counts = dict.fromkeys(order.draw(st.permutations(sorted(set(offers)))), 0)
    rentals = list(counts)
    for machine in order.draw(st.permutations(range(len(offers)))):
        places[machine] = On(rentals.index(offers[machine]), counts[offers[machine]], gpus=1)
        counts[offers[machine]] += 1
    runs: list[tuple[str, tuple[On, ...]]] = [
        (model, (On(places[at].rental, places[at].machine, 1, first),))
        for at, (_, models) in enumerate(contents)
        for first, model in enumerate(models)
    ]
    start = len(contents)
    runs += [("pair", tuple(places[start + 2 * at : start + 2 * at + 2])) for at in range(len(pipelines))]
    replicas = [
        a_replica(f"r-{number}", *stages, model=model)
        for number, (model, stages) in enumerate(order.draw(st.permutations(runs)))
    ]
    machines = [a_machine(offer, count=count) for offer, count in counts.items()]
    return a_fleet(replicas=tuple(replicas)).model_copy(update={"rentals": tuple(machines)})


def essence(parts: KeyedPlan) -> dict[str, Any]:
    return {
        "machines": [(machine.key, machine.rental.offer_id) for machine in parts.machines],
        "replicas": [(part.key, part.machines, part.replica.model) for part in parts.replicas],
        "routes": [(route.key, dict(sorted(route.fractions.items()))) for route in parts.routes],
    }


@given(CONTENTS, PIPELINES, st.data())
def test_the_order_in_which_a_plan_lists_its_fleet_does_not_matter(
    contents: list[tuple[str, list[str]]], pipelines: list[tuple[str, str]], order: st.DataObject
) -> None:
    one, other = listed(contents, pipelines, order), listed(contents, pipelines, order)
    assert essence(keyed(one)) == essence(keyed(other))


@given(CONTENTS, PIPELINES, st.data())
def test_every_machine_and_every_replica_has_a_key_of_its_own(
    contents: list[tuple[str, list[str]]], pipelines: list[tuple[str, str]], order: st.DataObject
) -> None:
    plan = listed(contents, pipelines, order)
    assert len(machine_keys(plan)) == sum(rental.count for rental in plan.rentals)
    assert len(replica_keys(plan)) == len(plan.replicas)


def test_the_precision_is_part_of_the_key_where_there_was_a_choice() -> None:
    plan = a_fleet(a_machine(), replicas=(a_replica("chat-0", On(0), precision="fp8"),))
    assert "fp8" not in key_of(plan, "chat-0")
    model = PlannedModel(
        name="chat",
        architecture=None,
        precision="bf16",
        kv_precision="bf16",
        prefix_cache_hit_fraction=0.0,
        workloads=(),
        slo=SloDocument(),
        more_precisions=(PlannedPrecision(precision="fp8", kv_precision="bf16"),),
    )
    chosen = plan.model_copy(update={"models": (model,)})
    assert key_of(chosen, "chat-0").startswith("chat/aggregated/fp8/")
