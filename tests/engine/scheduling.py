"""Which tokens vLLM's scheduler puts into each step, beside what the simulator does with the same requests."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.simulation.engine import EngineSettings
from sutler.solver.simulation.fleet import SimulatedReplica, simulate
from sutler.solver.simulation.requests import RequestKind, Requests
from sutler.solver.simulation.step_times import Line, StepTimes
from tests.engine.beside import Clocked

Step = tuple[int, int]

# One that decodes, and prompts that come at once while it does: equal ones, and some that take several steps.
BURSTS: Final = {
    "ten of 512": [512] * 10,
    "of 30 to 3,000": [1900, 30, 700, 64, 3000, 512, 100, 2048, 1],
}
_DECODING: Final = (0.0, 64, 80)


@dataclass(frozen=True)
class _Told(StepTimes):
    """Seconds of no engine; tells which steps it was asked for."""

    steps: list[Step] = field(default_factory=list)

    def mixed_s(self, tokens: float, attention_s: object, sequences: int, context: float, *, parts: int = 1) -> float:
        """Notes the step."""
        self.steps.append((sequences, round(tokens)))
        return 0.1


def of_the_engine(engine: Clocked, prompts: list[int]) -> list[Step]:
    """Steps with prompts in them: sequences that decode, tokens of prompts."""
    served = engine.serve([_DECODING, *((1e-6, prompt, 4) for prompt in prompts)])
    return [(int(sequences), int(tokens)) for sequences, tokens, _ in served.steps if tokens]


def of_the_simulator(prompts: list[int]) -> list[Step]:
    """The same of the simulator."""
    most = 256
    line = (Line(0.01, 0.0),)
    zero = ((0.0, 0.0),)
    times = _Told((line,) * (most + 1), (1.0, 4096.0), zero, zero, (0.01,), (0.0, 0.0), 60_000)
    inputs = np.array([_DECODING[1], *prompts])
    outputs = np.array([_DECODING[2], *(4 for _ in prompts)])
    arrival_s: FloatArray = np.array([0.0, *(1e-6 for _ in prompts)])
    kind = RequestKind("tiny", "any", 512.0, 32.0, 1.0, 0.0)
    requests = Requests((kind,), np.zeros(len(inputs), dtype=np.int64), arrival_s, inputs, outputs)
    simulate([SimulatedReplica("tiny-0", times, EngineSettings(most))], np.ones((1, 1)), requests)
    return times.steps
