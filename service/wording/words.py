"""Numbers, units and layouts in words, as people read them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import floor, log10

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.plan import RentalDocument, StageDocument

_OF_THE_LINK = re.compile(r"(link|net|disk|storage|included)\d")
_OBJECTIVE_UNITS = {"max_throughput": "req/s", "min_makespan": "s", "min_cost": "$/h", "min_power": "W"}
_UNIT_WORDS = {
    "rps": "req/s",
    "usd_per_hour": "$/h",
    "seconds": "s",
    "s": "s",
    "watts": "W",
    "watt": "W",
    "gpu": "GPU",
    "gpus": "GPU",
    "machine": "machines",
    "gb_per_s": "GB/s",
}


def number(value: float | None, *, digits: int = 4) -> str:
    """`digits` significant digits, thousands separated, no more decimals than that; a dash for nothing."""
    if value is None:
        return "–"
    size = abs(value)
    if size == 0:
        return "0"
    if size < 1e-3 or size >= 1e9:
        return f"{value:.3g}"
    whole_digits = max(1, 1 + floor(log10(size)))
    return f"{value:,.{max(0, digits - whole_digits)}f}"


def price(usd: float | None) -> str:
    """Dollars and cents, tenths of a cent below 10 $; what is free costs 0."""
    if usd is None:
        return "–"
    if usd == 0:
        return "0"
    return f"{usd:,.2f}" if abs(usd) >= 10 else f"{usd:.3f}"


def percent(fraction: float) -> str:
    """12 %, 3.4 %, 0.06 %, 0 %."""
    value = 100 * fraction
    if abs(value) < 1e-3:
        return "0 %"
    if abs(value) >= 10:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if abs(value) >= 1 else f"{value:.2g} %"


def span(values: Sequence[float]) -> str:
    """`81 %` or `81–97 %`."""
    low, high = (f"{100 * value:.0f}" for value in (min(values), max(values)))
    return f"{low} %" if low == high else f"{low}–{high} %"


def objective_unit(kind: str) -> str:
    """The unit of an objective's value."""
    return _OBJECTIVE_UNITS[kind]


def unit_words(unit: str) -> str:
    """`usd_per_hour` as $/h; also where more words follow."""
    return " ".join(_UNIT_WORDS.get(word, word.replace("_", " ")) for word in unit.split(" "))


def contract_words(contract: str) -> str:
    """A contract as people call it: on demand, spot, reserved; JSON says interruptible."""
    return "spot" if contract == "interruptible" else contract.replace("_", " ")


def constraint_words(name: str) -> str:
    """A constraint as people read it; the JSON has its whole name.

    `supply/h100-sxm@vastai:host-9@link450@interruptible/4` is the supply of h100-sxm, vastai:host-9, spot,
    in pieces of at least 4.
    """
    kind, _, rest = name.partition("/")
    if kind != "supply":
        return name
    pool, _, size = rest.rpartition("/")
    gpu, *marks = pool.split("@")
    shown = ("spot" if mark == "interruptible" else mark for mark in marks if not _OF_THE_LINK.match(mark))
    pieces = "" if size == "1" else f" in pieces of at least {size}"
    return f"supply of {', '.join([gpu, *shown])}{pieces}"


def fleet(rentals: Sequence[RentalDocument]) -> str:
    """`4 × h100, 5 × a40`: GPUs by type; a dash for nothing."""
    gpus: dict[str, int] = {}
    for rental in rentals:
        gpus[rental.gpu] = gpus.get(rental.gpu, 0) + rental.gpus * rental.count
    return ", ".join(f"{count} × {gpu}" for gpu, count in gpus.items()) or "–"


def place(site: str | None, provider: str) -> str:
    """The site, with its provider where it does not say that itself."""
    where = site or provider
    return where if provider in where else f"{provider} · {where}"


def engine_words(of: CalibrationDocument) -> str:
    """`vllm 0.10, 0.11`."""
    return f"{of.engine} {', '.join(of.engine_versions)}".strip()


def layout(stages: Sequence[StageDocument], data_parallel: int = 1) -> str:
    """`h100-sxm TP4`, `h200-sxm TP2·DP4·EP8`, `4 stages of a40 TP2 at 150 W`, or
    `h100-sxm TP4 (50 layers) → a100 TP4 (30)`."""
    first = stages[0]
    if len(stages) == 1:
        return _group(first, data_parallel)
    if all(_group(stage) == _group(first) and stage.layers == first.layers for stage in stages):
        return f"{len(stages)} stages of {_group(first)}"
    return " → ".join(_with_layers(stage, is_first=i == 0) for i, stage in enumerate(stages))


def parallelism(tensor_parallel: int, data_parallel: int = 1) -> str:
    """`TP4`; with ranks of attention `DP4·EP4` or `TP2·DP4·EP8`."""
    if data_parallel == 1:
        return f"TP{tensor_parallel}"
    ranks = f"DP{data_parallel}·EP{tensor_parallel * data_parallel}"
    return ranks if tensor_parallel == 1 else f"TP{tensor_parallel}·{ranks}"


def _group(stage: StageDocument, data_parallel: int = 1) -> str:
    size = "" if stage.gpus == 1 else f" {parallelism(stage.tensor_parallel, data_parallel)}"
    cap = "" if stage.power_cap_watts is None else f" at {stage.power_cap_watts:.0f} W"
    return f"{stage.gpu}{size}{cap}"


def _with_layers(stage: StageDocument, *, is_first: bool) -> str:
    if stage.layers is None:
        return _group(stage)
    return f"{_group(stage)} ({stage.layers}{' layers' if is_first else ''})"


def age(seconds: float) -> str:
    """A length of time in the largest unit that fits twice."""
    for unit, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def ago(then: datetime, now: datetime) -> str:
    """`12 minutes ago`; where clocks differ, nothing lies ahead."""
    return f"{age(max(0.0, (now - then).total_seconds()))} ago"


def counted(count: int, what: str) -> str:
    """`1 machine`, `2 machines`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def machine(gpu: str, gpus: int) -> str:
    """`h100-sxm`, or `4 × h100-sxm`."""
    return gpu if gpus == 1 else f"{gpus} × {gpu}"


def moment(time: datetime) -> str:
    """2026-11-20T12:00:00Z, as logs have it."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
