"""Vast.ai's searches: how they are asked, what refusals mean, and what to do where an answer was cut at its limit.

https://docs.vast.ai/api-reference/search/search-offers . Searches are limited to one per 3.5 s and ten per minute and
address. A search that was cut is made again in parts by the number of GPUs, so that nothing is cut.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Literal

from sutler.adapters import values
from sutler.adapters.errors import FetchError, QuotaError, RowError, SetupError
from sutler.adapters.http import HttpAnswer, HttpClient, Refusal, message_of, wrong_shape

SEARCH_PATH: Final = "/api/v0/bundles/"
ALLOCATED_STORAGE_GB: Final = 8.0  # the documented default of a search, said because prices depend on it
MOST_OFFERS: Final = 3000  # chosen: asked for per search, so that an answer stays within the time of a poll
LEAST_SEARCH_INTERVAL_S: Final = 3.5
SECONDS_PER_DAY: Final = 86_400.0
# Chosen: with two first searches that leaves two of the ten per minute, and fits into the time of a poll.
MOST_FURTHER_SEARCHES: Final = 6
# A further search waits for its turn, and its answer takes a while.
LEAST_TIME_FOR_A_SEARCH_S: Final = LEAST_SEARCH_INTERVAL_S + 2.0

# Both values: without any filter on it, Vast.ai leaves out hosts that it has not verified.
HOSTS_ASKED: Final[Mapping[str, Mapping[str, Any]]] = {"verified": {"eq": True}, "any": {"in": [True, False]}}

SearchedContract = Literal["on_demand", "interruptible"]
SEARCH_TYPES: Final[Mapping[SearchedContract, str]] = {"on_demand": "on-demand", "interruptible": "bid"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """A part of a search: the offers with `gpus` GPUs, or with any other number than those."""

    gpus: tuple[int, ...]
    is_rest: bool = False

    @property
    def filter(self) -> Mapping[str, Any]:
        return {"notin": list(self.gpus)} if self.is_rest else {"eq": self.gpus[0]}

    def include(self, row: object) -> bool:
        try:
            stated = values.whole(values.as_row(row), "num_gpus")
        except RowError:
            return False
        return stated is not None and (stated in self.gpus) != self.is_rest


# Into how many parts a cut search can be split depends on how many searches were cut.
PARTS: Final[Mapping[int, tuple[Sizes, ...]]] = {
    1: (Sizes((1,)), Sizes((2,)), Sizes((4,)), Sizes((8,)), Sizes((1, 2, 4, 8), is_rest=True)),
    2: (Sizes((1,)), Sizes((2,)), Sizes((1, 2), is_rest=True)),
}


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """One answer: the rows for `contract`, those of `sizes` only or all, and whether it was cut at the limit."""

    contract: SearchedContract
    rows: tuple[Any, ...]
    is_cut: bool
    sizes: Sizes | None = None


@dataclass(slots=True)
class Searches:
    """The searches of one poll for offers of `hosts`, and why they ended early, if they did."""

    http: HttpClient
    hosts: str
    found: list[SearchAnswer] = field(default_factory=list)
    answers: list[HttpAnswer] = field(default_factory=list)
    failure: FetchError | None = None

    def make(self, contract: SearchedContract, sizes: Sizes | None = None) -> None:
        """Asks, unless an earlier search failed."""
        if self.failure is not None:
            return
        try:
            answer = _ask(self.http, self.hosts, contract, sizes)
            self.found.append(_search(contract, answer, sizes))
            self.answers.append(answer)
        except FetchError as error:
            self.failure = error

    def split(self) -> None:
        """Asks for what was cut once more in parts, as far as time and Vast's patience go."""
        cut = [search.contract for search in self.found if search.is_cut]
        parts = [(contract, sizes) for contract in cut for sizes in PARTS[len(cut)]]
        for contract, sizes in parts[:MOST_FURTHER_SEARCHES]:
            if self.http.left_s < LEAST_TIME_FOR_A_SEARCH_S or any(answer.stated_wait_s for answer in self.answers):
                return
            self.make(contract, sizes)


def _ask(http: HttpClient, hosts: str, contract: SearchedContract, sizes: Sizes | None) -> HttpAnswer:
    body = {
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "verified": HOSTS_ASKED[hosts],
        "num_gpus": sizes.filter if sizes else {"gte": 1},
        "type": SEARCH_TYPES[contract],
        "order": [["dph_total", "asc"]],
        "limit": MOST_OFFERS,
        "allocated_storage": ALLOCATED_STORAGE_GB,
    }
    return http.post(SEARCH_PATH, body, classify=_own_meaning, least_interval_s=LEAST_SEARCH_INTERVAL_S)


def _own_meaning(refusal: Refusal) -> FetchError | None:
    """Vast says with 404 that a key is wrong, and with 429 that a day's searches are spent."""
    error, said = values.inside(refusal.data, "error"), message_of(refusal)
    words = said.lower()
    if refusal.status == 429 and error == "search_quota_exceeded":
        until_midnight_utc_s = SECONDS_PER_DAY - refusal.at_s % SECONDS_PER_DAY
        detail = f"Vast.ai: the day's searches are spent: {said}"
        return QuotaError(detail, http_status=429, wait_s=refusal.wait_s or until_midnight_utc_s)
    is_about_the_key = error == "auth_error" or any(
        hint in words for hint in ("user key", "api key", "session expired", "log in")
    )
    if refusal.status in {401, 403} or (refusal.status in {400, 404} and is_about_the_key):
        detail = f"Vast.ai refuses the key: {said}; set SUTLER_VASTAI_API_KEY to a key with the misc permission"
        return SetupError("auth_error", detail, http_status=refusal.status)
    return None


def _search(contract: SearchedContract, answer: HttpAnswer, sizes: Sizes | None) -> SearchAnswer:
    rows = values.inside(answer.data, "offers")
    if not isinstance(rows, list):
        raise wrong_shape("Vast.ai: the answer has no list of offers", http_status=answer.status)
    return SearchAnswer(contract, tuple(rows), is_cut=len(rows) >= MOST_OFFERS, sizes=sizes)


@dataclass(frozen=True, slots=True)
class Merged:
    """All that was found for a contract; where it is not the whole market, it is certain up to a price."""

    contract: SearchedContract
    rows: tuple[Any, ...]
    certain_up_to_usd_per_hour: float | None

    @property
    def is_cut(self) -> bool:
        return self.certain_up_to_usd_per_hour is not None


def merged_by_contract(searches: Iterable[SearchAnswer]) -> list[Merged]:
    """Makes one per contract: its first answer, with the parts that were asked for again in place of its rows."""
    by_contract: dict[SearchedContract, list[SearchAnswer]] = {}
    for search in searches:
        by_contract.setdefault(search.contract, []).append(search)
    return [_merged(contract, *found) for contract, found in by_contract.items()]


def _merged(contract: SearchedContract, first: SearchAnswer, *parts: SearchAnswer) -> Merged:
    parts = tuple(part for part in parts if not _is_suspect(part, first))
    return Merged(contract, _rows(first, parts), _certain_up_to(first, parts))


def _is_suspect(part: SearchAnswer, first: SearchAnswer) -> bool:
    """Whether a part has nothing where there has just been something."""
    return not part.rows and any(part.sizes is None or part.sizes.include(row) for row in first.rows)


def _rows(first: SearchAnswer, parts: Collection[SearchAnswer]) -> tuple[Any, ...]:
    """A part knows better than the answer before it: what a whole part no longer has is gone."""
    told_again = {values.optional_identifier(row, "id") for part in parts for row in part.rows} - {None}
    whole_parts = [part.sizes for part in parts if part.sizes and not part.is_cut]
    left = (row for row in first.rows if not any(sizes.include(row) for sizes in whole_parts))
    kept = (row for row in left if values.optional_identifier(row, "id") not in told_again)
    return (*kept, *(row for part in parts for row in part.rows))


def _certain_up_to(first: SearchAnswer, parts: Collection[SearchAnswer]) -> float | None:
    """The USD per hour up to which the answers are whole, None where they are altogether."""
    if not first.is_cut:
        return None
    certain = _cut_after(first.rows)
    if {part.sizes for part in parts} not in [set(split) for split in PARTS.values()]:
        return certain
    cut = [_cut_after(part.rows) for part in parts if part.is_cut]
    return max(certain, min(cut)) if cut else None


def _cut_after(rows: Iterable[Any]) -> float:
    """Finds the USD per hour up to which a cut answer is whole. It comes cheapest first, and more may cost its last.

    Where a row is cheaper than the one before it, others of its price or above may be missing as well.
    """
    totals = [total for row in rows if (total := _stated_total(row)) is not None]
    out_of_order = (later for earlier, later in pairwise(totals) if later < earlier)
    certain_below = min(out_of_order, default=totals[-1] if totals else 0.0)
    return max((total for total in totals if 0 < total < certain_below), default=0.0)


def _stated_total(row: object) -> float | None:
    try:
        return values.number(values.as_row(row), "dph_total")
    except RowError:
        return None
