"""A deployment's feeds: checked, stored with their audit entry, and told with how they go."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import cast

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.deployments.repository import Deployment
from sutler.service.deployments.traffic import feed_repository
from sutler.service.deployments.traffic.feed_repository import FeedSource, StoredSource
from sutler.service.deployments.traffic.feed_schema import (
    FailedUrlResource,
    FeedDocument,
    FeedKind,
    FeedResource,
    FeedsDocument,
    FeedsResource,
)
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.rules import repeats
from sutler.service.documents.validation import validate
from sutler.service.errors import FieldProblem
from sutler.service.outgoing.addresses import Network
from sutler.service.outgoing.destinations import DestinationError, check_url
from sutler.service.web.caller import Caller


async def put(
    connection: AsyncConnection,
    deployment: Deployment,
    document: FeedsDocument,
    caller: Caller,
    *,
    allowed: tuple[Network, ...],
) -> FeedsResource:
    """Makes these the feeds from now on. Raises DocumentError."""
    models = [model.name for model in validate(ProblemDocument, deployment.problem).models]
    sources = [
        FeedSource(feed.model, feed.kind, url, number, feed.every_s, feed.selector or {}, feed.replica)
        for number, feed in enumerate(document.feeds)
        for url in feed.sources
    ]
    problems = [*_wrong(document.feeds, models, allowed), *_twice(sources)]
    if problems:
        raise DocumentError(problems)
    await feed_repository.replace(connection, deployment.id, sources)
    detail = {"feeds": len(document.feeds), "urls": len(sources)}
    await audit.note(connection, caller, "deployment.feeds", deployment.target, detail)
    return await shown(connection, deployment)


async def shown(connection: AsyncConnection, deployment: Deployment) -> FeedsResource:
    """The feeds with how their last readings went."""
    sources = await feed_repository.of_deployment(connection, deployment.id)
    by_feed = groupby(sources, key=lambda stored: stored.source.number)
    return FeedsResource(deployment=deployment.name, feeds=[_shown(list(members)) for _, members in by_feed])


def _wrong(
    feeds: Sequence[FeedDocument], models: Sequence[str], allowed: tuple[Network, ...]
) -> Iterator[FieldProblem]:
    for number, feed in enumerate(feeds):
        if feed.model not in models:
            remedy = f"is none of the deployment's models: {', '.join(models)}"
            yield FieldProblem(f"feeds[{number}].model", repr(feed.model), remedy)
        for place, url in _places(feed):
            try:
                check_url(url, allowed=allowed)
            except DestinationError as error:
                yield FieldProblem(f"feeds[{number}].{place}", error.shown, error.remedy)


def _places(feed: FeedDocument) -> Iterator[tuple[str, str]]:
    if feed.url is not None:
        yield "url", feed.url
    yield from ((f"urls[{i}]", url) for i, url in enumerate(feed.urls or ()))


def _twice(sources: Sequence[FeedSource]) -> Iterator[FieldProblem]:
    """The same traffic must not count twice."""
    for i, _ in repeats(source.identity for source in sources):
        field = f"feeds[{sources[i].number}].{'url' if sources[i].kind == 'prometheus' else 'urls'}"
        yield FieldProblem(field, None, "is read by another feed of the same model: list it once")


def _shown(members: Sequence[StoredSource]) -> FeedResource:
    """One feed. It fails where none of its URLs could be read."""
    first = members[0].source
    failing = [stored for stored in members if stored.error is not None]
    fails = len(failing) == len(members)
    return FeedResource(
        model=first.model,
        kind=cast(FeedKind, first.kind),
        urls=[stored.source.url for stored in members],
        selector=first.selector,
        every_s=first.every_s,
        replica=first.replica,
        read_at=max((stored.read_at for stored in members if stored.read_at is not None), default=None),
        next_at=min((stored.due_at for stored in members if stored.due_at is not None), default=None),
        error=failing[0].error if fails else None,
        failures=min(stored.failures for stored in members),
        partial=[] if fails else [FailedUrlResource(url=s.source.url, error=s.error or "") for s in failing],
    )
