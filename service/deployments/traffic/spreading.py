"""From the two histograms of sizes to buckets of requests. Pure.

vLLM counts prompts and generations separately. Which prompt went with which generation is lost (their joint
distribution), and so is where in its bin a size lay. Both are put back from the shapes of the planned workloads: as
far as the histograms leave it open, requests are taken to be as planned. The totals of requests, input tokens and
output tokens are the counted ones.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from typing import Final

from sutler.service.deployments.traffic.counters import Counters
from sutler.service.deployments.traffic.histograms import Histogram
from sutler.service.deployments.traffic.window import WorkloadShape, nearest

Bucket = tuple[float, float, float]
TINY: Final = 1e-6  # requests, or tokens: what is extrapolated may be next to nothing
ROUNDS: Final = 60  # chosen: each costs bins x bins; what has not converged by then is close
CLOSE_ENOUGH: Final = 1e-9  # of all requests: less is rounding
REACH: Final = 0.12  # in logarithms of tokens: beyond its bin a size is a planned one's if it is that much off
UNEXPECTED: Final = 1e-3  # the share of what is near no planned workload, before the counts are known


@dataclass(frozen=True, slots=True)
class _Bin:
    """Requests of sizes from `low` to `high` tokens: their mean size, and their share of all."""

    low: float
    high: float
    size: float
    share: float

    def has(self, size: float) -> bool:
        return self.low < size <= self.high


def buckets_of(counters: Counters, shapes: Sequence[WorkloadShape]) -> tuple[Bucket, ...]:
    """(input tokens, output tokens, requests), one for each workload that requests are nearest to."""
    requests = counters.requests
    if requests < TINY or not shapes:
        return ()
    prompts = _bins(counters.prompt, [shape.input_tokens for shape in shapes])
    generations = _bins(counters.generation, [shape.output_tokens for shape in shapes])
    if not prompts or not generations:  # finished, but not yet in the histograms
        share = requests / len(shapes)
        return tuple((shape.input_tokens, shape.output_tokens, share) for shape in shapes)
    shares = _fitted(_seed(prompts, generations, shapes), [b.share for b in prompts], [b.share for b in generations])
    cells = [
        (*_sizes(prompt, generation, shapes), share * requests)
        for prompt, row in zip(prompts, shares, strict=True)
        for generation, share in zip(generations, row, strict=True)
        if share > 0
    ]
    return _scaled(_merged(cells, shapes), counters)


def _sizes(prompt: _Bin, generation: _Bin, shapes: Sequence[WorkloadShape]) -> tuple[float, float]:
    """The sizes of the planned workload that these are taken for, where the bins allow it; else the bins' means.

    Two workloads may share a bin of one of their sizes: in it they differ by what is planned.
    """
    shape = max(shapes, key=lambda shape: _closeness(shape, prompt, generation))
    size = shape.input_tokens if prompt.has(shape.input_tokens) else prompt.size
    length = shape.output_tokens if generation.has(shape.output_tokens) else generation.size
    return size, length


def _bins(histogram: Histogram, planned: Sequence[float]) -> list[_Bin]:
    """Mean size and share of every bin that has requests; the sizes add up to the total where they can."""
    count = histogram.count
    if count < TINY:
        return []
    ends = (0.0, *(max(bound, 0.0) for bound in histogram.bounds), inf)
    kept = [
        (low, high, n / count)
        for low, high, n in zip(ends, ends[1:], histogram.counts, strict=False)
        if n > TINY * count
    ]
    mean = histogram.total / count
    kept = [(low, high if high < inf else max(2.0 * low, mean, 1.0), share) for low, high, share in kept]
    guesses = [_guess(low, high, planned) for low, high, _ in kept]
    missing = mean - sum(guess * share for guess, (_, _, share) in zip(guesses, kept, strict=True))
    towards = [high if missing > 0 else low for low, high, _ in kept]
    room = sum((end - guess) * share for end, guess, (_, _, share) in zip(towards, guesses, kept, strict=True))
    part = min(1.0, missing / room) if room else 0.0
    sizes = (guess + part * (end - guess) for guess, end in zip(guesses, towards, strict=True))
    return [_Bin(low, high, size, share) for size, (low, high, share) in zip(sizes, kept, strict=True)]


def _guess(low: float, high: float, planned: Sequence[float]) -> float:
    """The planned sizes within the bin, else its middle on a scale of logarithms."""
    inside = [size for size in planned if low < size <= high]
    middle = sum(inside) / len(inside) if inside else sqrt(max(low, 0.5) * max(high, 0.5))
    return min(max(middle, low), high)


def _seed(prompts: Sequence[_Bin], generations: Sequence[_Bin], shapes: Sequence[WorkloadShape]) -> list[list[float]]:
    """What prompts and generations are expected together: those of planned workloads."""
    return [
        [UNEXPECTED + sum(_closeness(shape, prompt, generation) for shape in shapes) for generation in generations]
        for prompt in prompts
    ]


def _closeness(shape: WorkloadShape, prompt: _Bin, generation: _Bin) -> float:
    across, up = _off(shape.input_tokens, prompt), _off(shape.output_tokens, generation)
    return exp(-(across * across + up * up) / 2)


def _off(planned: float, bin_: _Bin) -> float:
    """How far the planned size is from a bin; in it, not at all."""
    return 0.0 if bin_.has(planned) else log(max(bin_.size, 1.0) / max(planned, 1.0)) / REACH


def _fitted(seed: list[list[float]], rows: Sequence[float], columns: Sequence[float]) -> list[list[float]]:
    """Iterative proportional fitting: of all tables with these sums, the one closest to the seed.

    https://en.wikipedia.org/wiki/Iterative_proportional_fitting
    """
    table = seed
    for _ in range(ROUNDS):
        table = [[cell * wanted / sum(row) for cell in row] for row, wanted in zip(table, rows, strict=True)]
        found = [sum(column) for column in zip(*table, strict=True)]
        if max(abs(is_now - wanted) for is_now, wanted in zip(found, columns, strict=True)) < CLOSE_ENOUGH:
            break
        factors = [wanted / is_now for is_now, wanted in zip(found, columns, strict=True)]
        table = [[cell * factor for cell, factor in zip(row, factors, strict=True)] for row in table]
    return table


def _merged(cells: Sequence[Bucket], shapes: Sequence[WorkloadShape]) -> list[Bucket]:
    """Merges each workload's cells into their mean; they stay alone where the mean would be another workload's."""
    of_workload: dict[str, list[Bucket]] = defaultdict(list)
    for cell in cells:
        of_workload[nearest(shapes, cell[0], cell[1]).name].append(cell)
    merged = []
    for name, members in of_workload.items():
        mean = _mean(members)
        merged += [mean] if nearest(shapes, mean[0], mean[1]).name == name else members
    return merged


def _mean(cells: Sequence[Bucket]) -> Bucket:
    requests = sum(n for _, _, n in cells)
    return (sum(i * n for i, _, n in cells) / requests, sum(o * n for _, o, n in cells) / requests, requests)


def _scaled(buckets: Sequence[Bucket], counters: Counters) -> tuple[Bucket, ...]:
    """Scales the sizes so that the tokens add up to what was counted."""
    size, length, requests = _mean(buckets)
    across = counters.prompt.total / (size * requests) if size * requests > TINY else 0.0
    up = counters.generation.total / (length * requests) if length * requests > TINY else 0.0
    return tuple((i * across, o * up, n) for i, o, n in buckets)
