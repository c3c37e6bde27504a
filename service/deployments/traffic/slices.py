"""Single requests as observations: slices of ten seconds, in which requests of similar size are one bucket."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import floor, log2
from typing import Final

from sutler.service.deployments.traffic.schemas import ObservationDocument, RequestDocument
from sutler.service.deployments.traffic.window import Observation

SLICE_S: Final = 10  # chosen: short against a window, so that its edge cuts little; longer ones are fewer rows
BINS_PER_DOUBLING: Final = 2  # chosen: sizes in a bin differ by 1.4 at most; more bins are more buckets to store
LONGEST_GAP: Final = timedelta(minutes=10)  # a longer silence of who sends requests one by one is no lull

Bin = tuple[int, int]


def observations_of(document: ObservationDocument, *, told_until: datetime | None) -> list[Observation]:
    """Takes a window of buckets as it is, and single requests in slices without a gap.

    `told_until`: until when the source had told before. Who sends requests as they come had none in between.
    """
    if document.buckets is not None and document.observed_at is not None and document.window_s is not None:
        ended_at = document.observed_at.astimezone(UTC)
        buckets = tuple((b.input_tokens, b.output_tokens, b.requests) for b in document.buckets if b.requests > 0)
        started_at = ended_at - timedelta(seconds=document.window_s)
        total = sum(requests for _, _, requests in buckets)
        return [Observation(document.model, document.source, started_at, ended_at, total, buckets)]
    return _sliced(document, document.requests or (), told_until)


def _sliced(
    document: ObservationDocument, requests: Sequence[RequestDocument], told_until: datetime | None
) -> list[Observation]:
    by_slice: dict[int, list[RequestDocument]] = defaultdict(list)
    for request in requests:
        by_slice[floor(request.at.timestamp() / SLICE_S)].append(request)
    found = []
    reached, last = told_until, max(by_slice, default=0)
    for number in sorted(by_slice):
        begin, end = (datetime.fromtimestamp((number + n) * SLICE_S, UTC) for n in (0, 1))
        if number == last:  # more of this slice may come
            end = max(request.at for request in by_slice[number]).astimezone(UTC)
        if reached is not None and begin <= reached + LONGEST_GAP:
            begin = min(reached, end)
        buckets = _buckets(by_slice[number])
        found.append(Observation(document.model, document.source, begin, end, float(len(by_slice[number])), buckets))
        reached = end if reached is None else max(reached, end)
    return found


def _buckets(requests: Sequence[RequestDocument]) -> tuple[tuple[float, float, float], ...]:
    """The buckets, one per bin of sizes, with the true means."""
    bins: dict[Bin, list[RequestDocument]] = defaultdict(list)
    for request in requests:
        bins[_bin(request.input_tokens), _bin(request.output_tokens)].append(request)
    return tuple(
        (
            sum(request.input_tokens for request in members) / len(members),
            sum(request.output_tokens for request in members) / len(members),
            float(len(members)),
        )
        for _, members in sorted(bins.items())
    )


def _bin(tokens: float) -> int:
    return floor(BINS_PER_DOUBLING * log2(max(tokens, 1.0)))
