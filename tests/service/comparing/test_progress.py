"""What is said while strategies run."""

from sutler.service.cli.views.progress import strategies_line
from sutler.solver.strategies.comparing import Ran
from sutler.solver.strategies.registry import compare
from tests.service.comparing.builders import a_translation


def test_progress_says_how_far_it_is_and_what_came_last() -> None:
    assert strategies_line(0.5, ()) == "0.5 s · 0 done"
    ran: list[Ran] = []
    compare(a_translation().problem, names=("homogeneous",), on_ran=ran.append)
    assert strategies_line(1.25, ran).startswith("1.2 s · 3 done · homogeneous-unlimited/h100-sxm: ")
    assert strategies_line(2.0, ran, expected=9).startswith("2.0 s · 3 of 9 done · ")
