"""The market as people read it, and as `--json` prints it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from sutler.service.cli.terminal.output import rfc3339
from sutler.service.cli.views.layout import bars, listed, section, table_of
from sutler.service.documents.market import MARKET_SCHEMA, OfferDocument
from sutler.service.market.history import HistoryPoint
from sutler.service.market.repository import PollReport, ProviderReport
from sutler.service.market.resources import InterruptionsPage, LastPollResource, OutlookPage
from sutler.service.market.selection import usd_per_gpu_hour
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.wording.words import age, contract_words, counted, price, span
from sutler.solver.units import SECONDS_PER_HOUR


def poll_records(reports: Iterable[PollReport]) -> list[dict[str, Any]]:
    """What scripts read of a poll."""
    return [
        {
            "provider": report.provider,
            "outcome": report.poll.outcome,
            "kept": report.poll.kept,
            "rejected": report.poll.rejected_by_reason,
            "not_available": dict(report.poll.not_available),
            "flags": dict(report.flags),
            "retry_at": report.retry_at,
            "detail": report.poll.detail,
            "http_status": report.poll.http_status,
            "at": report.at,
            "seconds": round(report.seconds, 3),
            "requests": report.poll.requests,
            "opened": report.opened,
            "closed": report.closed,
        }
        for report in reports
    ]


def poll_view(reports: Sequence[PollReport]) -> Iterator[RenderableType]:
    """One row per cloud, then what went wrong and what to do."""
    table = table_of(
        texts=("provider", "outcome"), numbers=("kept", "rejected", "not for rent", "changed", "seconds")
    )
    for report in reports:
        not_for_rent, changed = sum(report.poll.not_available.values()), report.opened + report.closed
        table.add_row(
            report.provider,
            report.poll.outcome.replace("_", " "),
            *(f"{count:,}" for count in (report.poll.kept, len(report.poll.rejected), not_for_rent, changed)),
            f"{report.seconds:.1f}",
        )
    yield table
    yield from listed("Remarks", (remark for report in reports for remark in _remarks(report)))
    if any(report.poll.is_usable for report in reports):
        yield Text(
            "\n`sutler market offers` lists what is for rent; `sutler market providers` says what was rejected."
        )


def _remarks(report: PollReport) -> Iterator[str]:
    if report.poll.detail:
        yield f"{report.provider}: {report.poll.detail}"
    if report.retry_at is not None:
        yield f"{report.provider}: ask again after {rfc3339(report.retry_at)}; its last offers stay and grow older"
    if report.poll.rejected:
        yield f"{report.provider}: rejected: {_counts(report.poll.rejected_by_reason)}"
    for flag, count in report.flags.items():
        yield f"{report.provider}: {_flag_words(flag, count)}"


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count:,}" for name, count in ordered) or "–"


def _flag_words(flag: str, count: int) -> str:
    words = {
        "duplicate_conflict": f"{count} offers came twice with different prices; the dearer one is kept",
        "price_mismatch": f"{count} prices contradict the list price by more than 20 %; the list price is kept",
        "suspect_empty": "an empty answer after offers is not believed yet; the next poll has to confirm it",
        "maybe_cut": "the answer reached its limit: dearer offers may be missing from it and are kept as they were",
    }
    return words.get(flag, f"{flag} {count}")


def snapshot_record(market: StoredMarket) -> dict[str, Any]:
    """The market snapshot contract; `offers` may be empty here."""
    offers = [{**offer.model_dump(exclude_none=True), "observed_at": offer.observed_at} for offer in market.offers]
    return {"schema": MARKET_SCHEMA, "taken_at": market.taken_at, "offers": offers}


def offers_view(market: StoredMarket, *, most: int, cheapest_first: bool = True) -> Iterator[RenderableType]:
    """The first offers, and what the rest amounts to."""
    if not market.offers:
        yield Text("No offers match." if market.last_seen else "No cloud has answered yet: run `sutler market poll`.")
        return
    texts, numbers = ("gpu", "provider", "offer", "where", "contract"), ("GPUs", "$/GPU/h", "$/h", "up")
    table = table_of(texts=texts, numbers=numbers)
    table.columns[4].no_wrap, table.dispensable = True, (8, 3)
    for offer in market.offers[:most]:
        table.add_row(*_offer_cells(offer))
    yield table
    left_out = len(market.offers) > most
    shown = f"{most} cheapest" if cheapest_first else f"first {most}"
    yield Text(f"\n{_summary(market)}{f', the {shown} shown (--limit)' if left_out else ''}.")


def _offer_cells(offer: OfferDocument) -> tuple[str, ...]:
    return (
        offer.gpu,
        offer.provider,
        offer.offer_id,
        offer.region or "–",
        contract_words(offer.contract),
        _gpus_words(offer),
        price(usd_per_gpu_hour(offer)),
        price(offer.price_usd_per_hour),
        "–" if offer.reliability_fraction is None else f"{100 * offer.reliability_fraction:.1f} %",
    )


def _gpus_words(offer: OfferDocument) -> str:
    """8; 1–8: any number up to that; 12 × 8: so many offers; ≥: a lower bound; (8): not known to be for rent."""
    gpus = f"1–{offer.gpus}" if offer.divisible and offer.gpus > 1 else f"{offer.gpus}"
    if offer.availability_basis == "list":
        return f"({gpus})"
    many = f"{offer.available} × " if offer.available > 1 else ""
    return f"{'≥ ' if offer.availability_basis == 'lower_bound' else ''}{many}{gpus}"


def _summary(market: StoredMarket) -> str:
    gpus = len({offer.gpu for offer in market.offers})
    oldest_s = max((market.taken_at - (o.observed_at or market.taken_at)).total_seconds() for o in market.offers)
    when = f"{market.taken_at:%Y-%m-%d %H:%M:%S} UTC"
    seen = f"seen up to {age(max(0.0, oldest_s))} before"
    return f"{len(market.offers):,} offers of {counted(gpus, 'GPU type')} as of {when}, {seen}"


def history_view(gpu: str, contract: str, points: Sequence[HistoryPoint]) -> Iterator[RenderableType]:
    """Two plots over the same time, and the figures at their ends."""
    known = [point for point in points if point.gpus is not None]
    if not known:
        what = f"{gpu} ({contract_words(contract)})"
        yield Text(f"The store knows nothing of {what} in that time: nobody polled, or nothing was kept.")
        return
    labels = (f"{points[0].at:%m-%d %H:%M}", f"{points[-1].at:%m-%d %H:%M} UTC")
    yield Text(f"{gpu}, {contract_words(contract)}")
    yield from section("GPUs for rent", bars([point.gpus for point in points], labels=labels))
    yield from section("Cheapest $/GPU/h", bars([p.least_usd_per_gpu_hour for p in points], labels=labels))
    least = [point.least_usd_per_gpu_hour for point in known if point.least_usd_per_gpu_hour is not None]
    last = known[-1]
    table = table_of(texts=("",), numbers=("least", "mean", "most", "last"))
    gpus = [point.gpus or 0.0 for point in known]
    table.add_row("GPUs", *(f"{value:,.0f}" for value in (min(gpus), sum(gpus) / len(gpus), max(gpus), gpus[-1])))
    if least:
        ends = (min(least), sum(least) / len(least), max(least), last.least_usd_per_gpu_hour)
        table.add_row("cheapest $/GPU/h", *(price(value) for value in ends))
    yield from section("In figures", table)


def outlook_view(found: OutlookPage) -> Iterator[RenderableType]:
    """One row per kind of offer, then what the figures mean."""
    if not found.items:
        yield Text(
            "The store has not watched any such machine: poll for some hours (`sutler serve`). Clouds that "
            "tell their stock by words only are never watched."
        )
        return
    soon, late = f"in {age(found.within_s)}", f"for {age(found.for_s)}"
    numbers = ("GPUs", "for rent", soon, late, "lasts", "lives", "ends", "ends/h")
    table = table_of(texts=("gpu", "provider", "contract"), numbers=numbers)
    table.columns[2].no_wrap, table.dispensable = True, (10, 8, 4)
    for kind in found.items:
        table.add_row(
            kind.gpu,
            kind.provider,
            contract_words(kind.contract),
            f"{kind.gpus}",
            f"{kind.for_rent:,}",
            span((kind.within.low_fraction, kind.within.high_fraction)),
            span((kind.lasting.low_fraction, kind.lasting.high_fraction)),
            age(kind.expected_lifetime_s),
            f"{kind.lives:,}",
            f"{kind.deaths:,}",
            f"{kind.rate_per_hour:.2g}",
        )
    yield table
    cells = sorted({(kind.provider, ", ".join(kind.cell)) for kind in found.items})
    yield Text(
        "\nThe chance that as many GPUs of a machine are for rent still (90 % interval), of those that are now on "
        "average, and how much longer they will be."
    )
    yield from listed("Told apart by", (f"{provider}: {cell}" for provider, cell in cells))


def interruptions_view(found: InterruptionsPage) -> Iterator[RenderableType]:
    """One row per kind of machine, then what the figures mean."""
    table = table_of(
        texts=("contract", "provider", "gpu"), numbers=("once in", "per hour", "90 %", "lost", "machine-hours")
    )
    for kind in found.items:
        interval = f"{kind.low_per_hour:.2g}–{kind.high_per_hour:.2g}"
        table.add_row(
            contract_words(kind.contract),
            kind.provider or "all",
            kind.gpu or "all",
            age(SECONDS_PER_HOUR / kind.per_hour),
            f"{kind.per_hour:.2g}",
            interval,
            f"{kind.losses:,}",
            f"{kind.machine_hours:,.0f}",
        )
    yield table
    yield Text(
        "\nHow often each machine is taken away: learnt from what deployments report to hold, within providers and "
        "GPUs as far as they differ; without machine-hours it is assumed."
    )


def provider_records(reports: Iterable[ProviderReport]) -> list[dict[str, Any]]:
    """What scripts read of the clouds."""
    own = ("provider", "offers", "last_seen_at", "next_poll_at", "failures_in_a_row")
    return [{**_named(report, own), "last_poll": _poll_record(report.last_poll)} for report in reports]


def _poll_record(poll: LastPollResource | None) -> dict[str, Any] | None:
    names = ("outcome", "kept", "rejected", "not_available", "flags", "retry_at", "detail")
    return None if poll is None else {"at": poll.ended_at, **_named(poll, names)}


def _named(one: object, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(one, name) for name in names}


def providers_view(reports: Sequence[ProviderReport], *, now: datetime) -> Iterator[RenderableType]:
    """One row per cloud, then why rows were rejected and what failed."""
    table = table_of(texts=("provider", "last poll", "outcome"), numbers=("data age", "offers", "kept", "rejected"))
    for report in reports:
        poll = report.last_poll
        table.add_row(
            report.provider,
            "never" if poll is None else f"{age((now - poll.ended_at).total_seconds())} ago",
            "–" if poll is None else poll.outcome.replace("_", " "),
            "–" if report.last_seen_at is None else age((now - report.last_seen_at).total_seconds()),
            f"{report.offers:,}",
            "–" if poll is None else f"{poll.kept:,}",
            "–" if poll is None else f"{sum(poll.rejected.values()):,}",
        )
    yield table
    yield from listed("Remarks", (remark for report in reports for remark in _provider_remarks(report)))
    if all(report.last_poll is None for report in reports):
        yield Text("\n`sutler market poll` asks them.")


def _provider_remarks(report: ProviderReport) -> Iterator[str]:
    poll = report.last_poll
    if poll is None:
        return
    if poll.rejected:
        yield f"{report.provider}: rejected: {_counts(poll.rejected)}"
    if poll.not_available:
        yield f"{report.provider}: not for rent: {_counts(poll.not_available)}"
    if poll.detail:
        yield f"{report.provider}: {poll.detail}"
    if report.failures_in_a_row:
        next_at = report.next_poll_at and rfc3339(report.next_poll_at)
        yield f"{report.provider}: {report.failures_in_a_row} failures in a row; next {next_at}"
    for flag, count in poll.flags.items():
        yield f"{report.provider}: {_flag_words(flag, count)}"
