"""For how long there were no requests, as far as that was told: silence says nothing. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sutler.service.deployments.traffic.window import NEVER, SILENT_AFTER, Observation, Quiet


def quiet(observations: Sequence[Observation], *, now: datetime, window_s: float) -> Quiet:
    """What is known of a model. A source that tells no more may have had requests until it ended, and after: of the
    time before its end nothing is known."""

    def patience(one: Observation) -> timedelta:
        return SILENT_AFTER * max(timedelta(seconds=window_s), one.ended_at - one.started_at)

    ordered = sorted((one for one in observations if one.started_at <= now), key=lambda one: one.ended_at)
    if not ordered:
        return Quiet()
    asked_at = max((one.ended_at for one in ordered if one.requests > 0), default=None)
    newest = {one.source: one for one in ordered}.values()
    ended = [one.ended_at for one in newest if now - one.ended_at > patience(one)]
    since = ordered[-1].ended_at
    for one in reversed(ordered):
        if since - one.ended_at > patience(one):
            break
        since = min(since, one.started_at)
    # A report of more than nothing is of any moment in it.
    since = max([since, *ended, *([] if asked_at is None else [asked_at])])
    until = min((one.ended_at for one in newest if one.ended_at not in ended), default=since)
    return Quiet(asked_at, max(NEVER, until - since))
