"""What is said while strategies run."""

from sutler.service.cli.comparing import Comparing
from tests.service.comparing.builders import a_translation


def test_progress_says_how_far_it_is_and_what_came_last() -> None:
    comparing = Comparing(("homogeneous",))
    assert comparing.words(0.5) == "0.5 s · 0 done"
    comparing.run(a_translation().problem)
    assert comparing.words(1.25).startswith("1.2 s · 3 done · homogeneous-unlimited/h100-sxm: ")
    comparing.expect(6)
    assert comparing.words(2.0).startswith("2.0 s · 3 of 9 done · ")
