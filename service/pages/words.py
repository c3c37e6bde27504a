"""What templates write numbers, times and states with, beside `service/wording/words.py`."""

from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup

STATUS_WORDS: Final = {
    "calm": ("ok", "calm"),
    "kept": ("ok", "kept"),
    "waiting": ("wait", "waiting"),
    "manual": ("act", "wants a replan"),
    "short": ("bad", "short"),
    "blind": ("bad", "blind"),
    "new": ("wait", "first plan"),
    "met": ("ok", "carried out"),
    "unmet": ("wait", "not yet carried out"),
    "overdue": ("bad", "overdue"),
    "unreported": ("none", "never reported"),
    "live": ("ok", "live"),
    "thin": ("wait", "thin"),
    "silent": ("bad", "silent"),
    "none": ("none", "never reported"),
    "never": ("none", "never reported"),
    "optimal": ("ok", "proven optimal"),
    "feasible": ("ok", "within the gap"),
    "infeasible": ("bad", "infeasible"),
    "unknown": ("bad", "none found"),
    "fresh": ("ok", "fresh"),
    "stale": ("bad", "silent"),
    "unasked": ("none", "never asked"),
    "queued": ("wait", "queued"),
    "running": ("wait", "being made"),
    "cancelled": ("none", "cancelled"),
    "failed": ("bad", "failed"),
}
MARKS: Final = {"ok": "●", "wait": "◐", "act": "▲", "bad": "■", "none": "○"}


def state(name: str) -> Markup:
    """A state as a shape, a word and a colour: none of them alone."""
    kind, words = STATUS_WORDS.get(name, ("none", name))
    return Markup('<span class="state {}"><span aria-hidden="true">{}</span> {}</span>').format(
        kind, MARKS[kind], words
    )


def when(time: datetime | None) -> Markup:
    """An instant; the page's script adds how long ago that is."""
    if time is None:
        return Markup("–")
    moment = time.astimezone(UTC)
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{:%Y-%m-%d %H:%M} UTC</time>').format(moment, moment)


def signed(usd: float) -> str:
    """+1.20 or -0.80."""
    return f"{usd:+,.2f}"
