"""The simulator's steps beside those that vLLM 0.32 took (`make engine-check` asks it anew)."""

from tests.engine.scheduling import BURSTS, of_the_simulator
from tests.looped import for_each

TAKEN = {
    "ten of 512": [(0, 64), (1, 2047), (4, 2044), (8, 1029)],
    "of 30 to 3,000": [(0, 64), (1, 2047), (3, 2045), (5, 2043), (6, 2042), (6, 178)],
}


@for_each("burst", BURSTS)
def test_steps_have_the_tokens_that_vllm_gives_them(burst: str) -> None:
    assert of_the_simulator(BURSTS[burst]) == TAKEN[burst]
