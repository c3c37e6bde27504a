"""How many rivals a comparison shows, and what it claims beside an equal."""

from rich.console import Console

from sutler.service.cli.views.comparison import claim, comparison_view
from sutler.solver.strategies.comparing import Ran
from tests.service.comparing.builders import a_comparison, a_strategy, ran

RIVALS = [ran(a_strategy(f"r{number}"), 3.0 + number / 10) for number in range(8)]


def shown(*rivals: Ran, most: int | None) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        for part in comparison_view(a_comparison(*rivals), most=most):
            console.print(part)
    return captured.get()


def test_the_best_five_are_shown_and_the_rest_counted() -> None:
    text = shown(*RIVALS, most=5)
    assert [number for number in range(8) if f"r{number} " in text] == [3, 4, 5, 6, 7]
    assert "--all shows 3 more" in text
    assert "--all" not in shown(*RIVALS, most=None)
    assert "--all" not in shown(*RIVALS[:5], most=5)


def test_what_is_no_plan_of_this_market_comes_last() -> None:
    own = ran(a_strategy("elsewhere", own_market=True), 9.0)
    nothing = ran(a_strategy("nothing"), None)
    text = shown(own, nothing, *RIVALS[:4], most=5)
    assert "elsewhere" not in text
    assert "nothing" in text


def test_beside_an_equal_no_more_than_a_tie_is_claimed() -> None:
    found = claim(a_comparison(ran(a_strategy("h100"), 3.2), ran(a_strategy("same"), 4.0)))
    assert found.endswith("for 9.050 $/h: as good as the best rival on the same supply, same (4.000 req/s)")
    twin = ran(a_strategy("aggregated-only", "aggregated"), 4.0)
    found = claim(a_comparison(ran(a_strategy("h100"), 3.2), twin))
    assert "for 9.050 $/h, as aggregated-only does: 25 % more than the best of the others" in found
