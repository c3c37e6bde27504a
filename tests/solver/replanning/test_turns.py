"""The order of restarts: what is carried at each step, and that no order keeps more of the load."""

from collections import Counter
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import linprog

from sutler.solver.problem import Role
from sutler.solver.replanning import turns
from sutler.solver.replanning.turns import Capacity, Engine, Turn, in_turn
from tests.looped import for_each


def engine(model: str = "chat", *, role: Role = "aggregated", most: float = 1.0, **rates_rps: float) -> Engine:
    return Engine(model, role, most, tuple(rates_rps.items()))


def carried(load_rps: dict[tuple[str, str], float], *engines: Engine) -> float:
    return Capacity(load_rps).carried_fraction(Counter(engines))


SLOW, FAST = engine(short=2.0), engine(short=4.0)


def test_what_one_workload_gets_is_the_sum_of_what_its_engines_sustain() -> None:
    assert carried({("chat", "short"): 10.0}, SLOW, FAST) == pytest.approx(0.6)
    assert carried({("chat", "short"): 10.0}, SLOW, *[FAST] * 3) == 1.0
    assert carried({("chat", "short"): 10.0}, engine(short=4.0, most=0.5), SLOW) == pytest.approx(0.4)


def test_of_two_workloads_each_goes_where_it_is_served_best() -> None:
    load = {("chat", "short"): 4.0, ("chat", "long"): 1.0}
    assert carried(load, engine(short=4.0, long=0.1), engine(short=1.0, long=1.0)) == pytest.approx(1.0)
    assert carried(load, engine(short=4.0), engine(short=4.0)) == 0.0


def test_a_model_that_nobody_runs_is_not_carried_whatever_else_runs() -> None:
    load = {("chat", "short"): 4.0, ("code", "short"): 1.0}
    assert carried(load, FAST) == 0.0
    assert carried(load, FAST, engine("code", short=0.5)) == pytest.approx(0.5)


def test_prompts_and_answers_need_both_and_an_engine_that_does_both_helps_where_it_is_needed() -> None:
    load = {("chat", "short"): 4.0}
    prefill, decode = engine(role="prefill", short=4.0), engine(role="decode", short=2.0)
    assert carried(load, prefill) == 0.0
    assert carried(load, prefill, decode) == pytest.approx(0.5)
    assert carried(load, prefill, decode, SLOW) == pytest.approx(1.0)


def test_nothing_asked_for_is_carried_by_nobody() -> None:
    assert carried({}) == 1.0
    assert carried({("chat", "short"): 0.0}) == 1.0


def test_turns_that_only_add_come_first() -> None:
    """Of three engines one makes room at a time: two are left, and the one that was added."""
    exchange, addition = Turn((SLOW,), (SLOW,)), Turn((), (SLOW,))
    steps = in_turn(Counter([SLOW] * 3), [exchange, exchange, exchange, addition], Capacity({("chat", "short"): 6.0}))
    assert [step.turn for step in steps] == [3, 0, 1, 2]
    assert [step.carried_fraction for step in steps] == [1.0] * 4


def test_engines_that_grow_go_first_where_that_keeps_the_load() -> None:
    """Slow to fast leaves 6 of 8 requests/s and then has 10; fast to slow first would leave 4."""
    shrink, grow = Turn((FAST,), (SLOW,)), Turn((SLOW,), (FAST,))
    steps = in_turn(Counter([FAST, SLOW, SLOW]), [shrink, grow], Capacity({("chat", "short"): 8.0}))
    assert [step.turn for step in steps] == [1, 0]
    assert [step.carried_fraction for step in steps] == pytest.approx([0.75, 0.75])


def drawn(seed: int, most_turns: int) -> tuple[Counter[Engine], list[Turn], Capacity]:
    draw = np.random.default_rng(seed)
    names = ("chat", "code")

    def some(count: int) -> tuple[Engine, ...]:
        rates = (1.0, 2.0, 3.5, 5.0)
        return tuple(
            engine(names[draw.integers(2)], short=rates[draw.integers(4)], long=rates[draw.integers(4)])
            for _ in range(count)
        )

    asked = [
        Turn(some(int(draw.integers(1, 3))), some(int(draw.integers(1, 3))))
        for _ in range(draw.integers(2, most_turns + 1))
    ]
    running = Counter(some(int(draw.integers(0, 3))))
    for turn in asked:
        running.update(turn.stops)
    load = {(name, length): float(draw.uniform(1, 6)) for name in names for length in ("short", "long")}
    return running, asked, Capacity(load)


def lowest(running: Counter[Engine], order: list[Turn], load_rps: dict[tuple[str, str], float]) -> float:
    """Of the shares while each turn is taken, by a linear program over single engines."""
    shares, now = [], list(running.elements())
    for turn in order:
        for one in turn.stops:
            now.remove(one)
        for model in ("chat", "code"):
            own = sorted(one.rates_rps for one in now if one.model == model)
            asked = tuple((name, rps) for (of, name), rps in load_rps.items() if of == model)
            shares.append(by_single_engines(tuple(own), asked))
        now += turn.starts
    return min(shares)


@cache  # many orders lead through the same engines
def by_single_engines(
    engines: tuple[tuple[tuple[str, float], ...], ...], asked: tuple[tuple[str, float], ...]
) -> float:
    """`engines`: of one model, the rates of each; `asked`: the load by name."""
    own, load_rps = [dict(rates) for rates in engines], dict(asked)
    names = list(load_rps)
    width = len(own) * len(names)
    equal = np.zeros((len(names), 1 + width))
    room = np.zeros((len(own), 1 + width))
    for row, name in enumerate(names):
        equal[row, 0] = -load_rps[name]
        for k, rates in enumerate(own):
            equal[row, 1 + k * len(names) + row] = rates[name]
            room[k, 1 + k * len(names) + row] = 1.0
    found = linprog(
        [-1.0, *np.zeros(width)], A_ub=room, b_ub=np.ones(len(own)), A_eq=equal, b_eq=np.zeros(len(names))
    )
    return float(min(1.0, found.x[0]))


@for_each("seed", range(60), quick=6)
def test_no_order_keeps_more_than_the_one_that_is_found(seed: int) -> None:
    running, asked, capacity = drawn(seed, most_turns=4)
    steps = in_turn(running, asked, capacity)
    assert sorted(step.turn for step in steps) == list(range(len(asked)))
    load = dict(capacity.load_rps)
    found = lowest(running, [asked[step.turn] for step in steps], load)
    assert found == pytest.approx(min(step.carried_fraction for step in steps), abs=1e-7)
    best = max(lowest(running, list(order), load) for order in permutations(asked))
    assert found == pytest.approx(best, abs=1e-7)


@for_each("seed", range(20), quick=4)
def test_one_by_one_no_step_is_worse_than_any_that_could_be_next(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST_STATES", 0)
    running, asked, capacity = drawn(seed, most_turns=6)
    steps = in_turn(running, asked, capacity)
    assert sorted(step.turn for step in steps) == list(range(len(asked)))
    now, left = running.copy(), list(asked)
    for step in steps:
        shares = []
        for turn in left:
            meanwhile = now.copy()
            meanwhile.subtract(turn.stops)
            shares.append(capacity.carried_fraction(meanwhile))
        assert step.carried_fraction == pytest.approx(max(shares))
        taken = asked[step.turn]
        left.remove(taken)
        now.subtract(taken.stops)
        now.update(taken.starts)
