"""Waiting for plans of a running service: for one, or for each new one of a deployment."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sutler.service.cli.deployments.calls import at, read
from sutler.service.cli.terminal.client import TOO_MANY, Client
from sutler.service.cli.terminal.exits import say
from sutler.service.cli.views.diff import revision_line
from sutler.service.client import calls
from sutler.service.client.calls import WAIT_S
from sutler.service.client.errors import RefusedError, UnreachableError
from sutler.service.client.replies import Reply
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.schemas import DeploymentResource
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans.resources import PlanJobResource
from sutler.service.wording.words import moment

RETRY_S: Final = 5.0  # chosen: a service that restarts is seen soon, one that is away is not pestered
SERVES_NOTHING: Final = 409


def finished(client: Client, url: str) -> Reply:
    """The plan at this URL, once it is there. Raises RefusedError for why there will be none, UnreachableError."""
    while True:
        reply = client.get(url, wait_s=WAIT_S)
        if reply.data["schema"] not in calls.JOBS:
            return reply
        calls.finished(read(PlanJobResource, reply.body))


def watched(client: Client, name: str, *, after: int | None, as_json: bool) -> Iterator[str]:
    """A line for each new plan of the deployment, forever; `after` None: after the one that holds.

    Once it has begun, a service that is away is waited for. Raises RefusedError, UnreachableError.
    """
    newest = _newest(read(DeploymentResource, client.get(at(name)).body))
    last = newest if after is None else min(after, newest)
    if last != after and after is not None:
        _say(name, f"there is no revision {after} yet, the newest is {newest}: waiting for the one after that")
    while True:
        reply = _patiently(name, partial(client.get, at(name, "plan"), wait_s=WAIT_S, after=last))
        if reply is None or not reply.body:
            continue
        newest = read(PlanDocument, reply.body).revision
        for revision in range(last + 1, newest + 1) if newest > last else (newest,):
            line = _line(client, name, revision, as_json=as_json)
            if line is not None:
                yield line
        last = newest


def _newest(deployment: DeploymentResource) -> int:
    """Revision; 0 without a plan."""
    newest = deployment.latest or deployment.plan
    return 0 if newest is None else newest.revision


def _say(name: str, message: str) -> None:
    say(f"{moment(datetime.now(UTC))} {name} {message}")


def _line(client: Client, name: str, revision: int, *, as_json: bool) -> str | None:
    """The line of a plan; None where it serves nothing, and so changes nothing: that is said on stderr."""
    try:
        reply = _insisting(name, partial(client.get, at(name, f"plans/{revision}/diff")))
    except RefusedError as error:
        if error.status != SERVES_NOTHING:
            raise
        _say(name, f"revision {revision}: {error}")
        return None
    if as_json:
        return json.dumps(reply.data, ensure_ascii=False)
    plan = read(PlanDocument, _insisting(name, partial(client.get, at(name, f"plans/{revision}"))).body)
    return revision_line(name, read(DiffDocument, reply.body), plan.created_at)


def _insisting(name: str, ask: Callable[[], Reply]) -> Reply:
    while True:
        reply = _patiently(name, ask)
        if reply is not None:
            return reply


def _patiently(name: str, ask: Callable[[], Reply]) -> Reply | None:
    """What the service answers; None, after a pause, where it is away or asks for patience."""
    try:
        return ask()
    except UnreachableError as error:
        _say(name, f"no answer from {error}: trying again")
        time.sleep(RETRY_S)
    except RefusedError as error:
        if error.status < 500 and error.status != TOO_MANY:
            raise
        time.sleep(RETRY_S if error.retry_after_s is None else error.retry_after_s)
    return None
