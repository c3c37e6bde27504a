"""Looks at another market that need no solver, since an earlier one has found what holds there, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sutler.service.deployments.replanning.memory import Memory, remembered
from sutler.service.deployments.replanning.verdict import look
from sutler.solver.replanning import consider
from tests.service.deployments.replanning import worlds
from tests.service.deployments.replanning.builders import a_market, an_offer, traffic
from tests.service.deployments.replanning.worlds import World, a_world, machines

LATER_S = 601.0  # what is new has settled


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every question that the solver was asked."""
    questions: list[Any] = []

    def noted(question: Any) -> Any:
        questions.append(question)
        return consider(question)

    monkeypatch.setattr(worlds, "consider", noted)
    return questions


def with_bolt_at(price: float, *more: Any) -> tuple[Any, ...]:
    acme, bolt, small = a_market()
    return acme, bolt.model_copy(update={"price_usd_per_hour": price}), small, *more


@contextmanager
def the_solver_is_not_asked(questions: list[Any]) -> Iterator[None]:
    before = len(questions)
    yield
    assert len(questions) == before


def looked_at(*offers: Any, world: World | None = None) -> World:
    """A world that has been looked at on a market that is not that of its plan."""
    world = world or a_world()
    world.poll(*offers)
    world.look()
    return world


def on_another_market() -> World:
    """The same on a market that changes nothing, and is yet to be looked at."""
    world = looked_at(*with_bolt_at(2.3))
    world.passes(60)
    world.poll(*with_bolt_at(2.25))
    return world


def test_what_changes_nothing_is_found_without_the_solver_which_would_say_the_same(asked: list[Any]) -> None:
    world = looked_at(*with_bolt_at(2.3))
    assert len(asked) == 1
    first = world.verdicts[-1]
    world.passes(60)
    world.poll(*with_bolt_at(2.25))
    by_solver = look(world.facts(memory=world.memory.model_copy(update={"kept": None})), consider)
    with the_solver_is_not_asked(asked):
        found = world.look()
    assert found.prepared.known is not None
    assert by_solver.prepared.known is None
    assert replace(found.state, detail="") == replace(by_solver.state, detail="")
    assert found.state.detail.startswith("no change can net more than ")
    assert found.plan is None
    assert found.memory.market_version == world.version
    assert found.memory.kept == first.memory.kept


def test_an_offer_that_is_worth_a_change_is_taken_as_soon_as_it_has_settled(asked: list[Any]) -> None:
    world = looked_at(*with_bolt_at(2.3))
    world.passes(60)
    world.poll(*with_bolt_at(2.3, an_offer("cheap", price_usd_per_hour=0.9)))
    with the_solver_is_not_asked(asked):
        world.look()
    world.passes(LATER_S)
    world.poll()
    assert world.look().plan is not None
    assert machines(world) == {"acme/cheap": 2}
    assert world.memory.kept is None


def test_another_load_is_another_question(asked: list[Any]) -> None:
    world = on_another_market()
    world.traffic = traffic(40.0, 4.0, at=world.now, policy=world.policy)
    assert world.look().plan is not None
    assert len(asked) == 2


def test_machines_that_were_lost_are_another_question(asked: list[Any]) -> None:
    world = on_another_market()
    assert world.holdings is not None
    world.reports([holding.model_copy(update={"count": 1}) for holding in world.holdings])
    assert world.look().plan is not None
    assert len(asked) == 2


def test_another_policy_is_another_question(asked: list[Any]) -> None:
    world = on_another_market()
    world.policy = world.policy.model_copy(update={"startup_s": world.policy.startup_s + 60})
    world.look()
    assert len(asked) == 2


def test_in_the_cool_down_the_market_is_not_asked_about(asked: list[Any]) -> None:
    world = a_world(policy={"cooldown_s": 3600.0}, settled_in=False)
    world.passes(LATER_S)
    looked_at(*with_bolt_at(2.3, an_offer("cheap", price_usd_per_hour=0.9)), world=world)
    state = world.verdicts[-1].state
    assert state.detail == "what runs carries the load, and within the cool-down no change is made for money"
    assert not world.verdicts[-1].memory.most_net_usd
    world.passes(60)
    world.poll(*with_bolt_at(2.3, an_offer("cheap", price_usd_per_hour=0.8)))
    with the_solver_is_not_asked(asked):
        world.look()
    assert world.verdicts[-1].state == state
    world.passes(world.policy.cooldown_s)
    world.poll()
    assert world.look().plan is not None  # what has settled meanwhile counts when it is over
    assert machines(world) == {"acme/cheap": 2}


def test_what_is_known_is_stored_as_json_and_read_again() -> None:
    world = looked_at(*with_bolt_at(2.3))
    stored = world.memory.model_dump(mode="json")
    assert remembered(stored, revision=world.memory.revision) == world.memory
    assert world.memory.kept is not None
    assert world.memory.kept.lasting is not None
    stored["kept"]["lasting"]["worth"] = "much"
    assert remembered(stored, revision=1) == Memory(revision=1)
