"""How often rented machines are taken away: what a few losses tell, and that intervals hold, also where machines go
together."""

import numpy as np
import pytest

from sutler.solver.outlook.interruptions import PRIORS, LearntRate, Rented, learnt

SEEDS = 400


def spot(
    machine_hours: float, losses: int, *, provider: str = "acme", gpu: str = "h100-sxm", fleet: float = 1.0
) -> Rented:
    return Rented(provider, "interruptible", gpu, machine_hours, losses, fleet)


def of(rates: tuple[LearntRate, ...], provider: str | None = None, gpu: str | None = None) -> LearntRate:
    (found,) = [r for r in rates if (r.contract, r.provider, r.gpu) == ("interruptible", provider, gpu)]
    return found


def test_where_nothing_was_held_each_contract_has_what_is_assumed_of_it() -> None:
    rates = learnt((), {})
    assert [(r.contract, r.provider, r.gpu, r.per_hour) for r in rates] == [
        (contract, None, None, prior.per_hour) for contract, prior in PRIORS.items()
    ]
    assert all(r.low_per_hour < r.per_hour < r.high_per_hour and r.machine_hours == 0 for r in rates)


def test_many_losses_tell_the_rate_of_a_kind_and_the_narrowest_comes_first() -> None:
    kinds = (spot(1000.0, 500), spot(1000.0, 10, gpu="l4"), spot(1000.0, 20, provider="bolt"))
    rates = learnt(kinds, {"interruptible": [1] * 530})
    assert of(rates, "acme", "h100-sxm").per_hour == pytest.approx(0.5, rel=0.1)
    assert of(rates, "acme", "l4").per_hour == pytest.approx(0.01, rel=0.6)
    assert of(rates, "acme").losses == 510
    assert of(rates).machine_hours == 3000.0
    widths = [(r.provider is not None) + (r.gpu is not None) for r in rates if r.contract == "interruptible"]
    assert widths == sorted(widths, reverse=True)


def test_a_kind_that_was_hardly_held_is_like_its_provider() -> None:
    seen = tuple(spot(500.0, 50, gpu=gpu) for gpu in ("a", "b", "c", "d"))
    rates = learnt((*seen, spot(1.0, 0, gpu="new")), {"interruptible": [1] * 200})
    assert of(rates, "acme", "new").per_hour == pytest.approx(0.1, rel=0.15)


def test_machines_that_go_together_tell_less_of_the_rate_and_the_same_of_its_size() -> None:
    kinds = (spot(1000.0, 100),)
    apart = of(learnt(kinds, {"interruptible": [1] * 100}))
    together = of(learnt(kinds, {"interruptible": [25] * 4}))
    assert together.per_hour == pytest.approx(apart.per_hour, rel=0.15)
    assert together.high_per_hour - together.low_per_hour > 3 * (apart.high_per_hour - apart.low_per_hour)
    assert together.losses == 100
    assert together.machine_hours == pytest.approx(1000.0)


@pytest.mark.parametrize("at_once", [1, 8])
def test_nine_intervals_of_ten_hold_the_true_rate(at_once: int) -> None:
    draw = np.random.default_rng(7)
    held = 0
    for _ in range(SEEDS):
        per_hour, hours = draw.gamma(2.0, 0.05), 200.0
        incidents = draw.poisson(per_hour * hours / at_once)
        rate = of(
            learnt((spot(hours, incidents * at_once, fleet=at_once),), {"interruptible": [at_once] * incidents})
        )
        held += rate.low_per_hour <= per_hour <= rate.high_per_hour
    assert 0.84 <= held / SEEDS <= 0.96
