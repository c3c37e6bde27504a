"""Observations that come twice, out of order and at the same time count once, and lead to one revision."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

import pytest

from tests.postgres import Server
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import results

ORDERLY: Final = "orderly"
WILD: Final = "wild"
WINDOW_S: Final = 10
SENT_AT_ONCE: Final = 8
PLANNED_RPS: Final = (20.0, 2.0)
SIZES: Final = ((500, 250), (3000, 300))

Document = dict[str, Any]


@pytest.fixture(scope="module")
def site(postgres: Server) -> Iterator[Standing]:
    """Two equal deployments with a plan each; their worker has gone."""
    with standing(postgres, ORDERLY, WILD, policy={"cooldown_s": 0}, SUTLER_CHANGES_PER_MINUTE="10000") as made:
        work(made, {ORDERLY: 0, WILD: 0})
        yield made


def work(site: Standing, before: dict[str, int]) -> None:
    """A worker comes, does what there is to do, which is to issue one revision of each at most, and goes."""
    worker = site.scene.worker()
    site.until_moved(before)
    site.assert_whole()
    assert worker.stop() == 0


def windows(until: datetime, *, times: float) -> list[Document]:
    """Four minutes of `times` the traffic that was planned for."""
    ends = [until - timedelta(seconds=WINDOW_S * n) for n in reversed(range(24))]
    buckets = [
        {"input_tokens": size[0], "output_tokens": size[1], "requests": times * rate * WINDOW_S}
        for size, rate in zip(SIZES, PLANNED_RPS, strict=True)
    ]
    common = {"model": "chat", "source": "gateway", "window_s": WINDOW_S, "buckets": buckets}
    return [{**common, "observed_at": end.isoformat()} for end in ends]


def requests_of(until: datetime, *, source: str) -> list[Document]:
    """Two minutes of two requests a second, ten in each document."""
    times = [until - timedelta(seconds=0.5 * n + 0.25) for n in reversed(range(240))]
    requests = [{"at": at.isoformat(), "input_tokens": 500, "output_tokens": 250} for at in times]
    return [{"model": "chat", "source": source, "requests": requests[n : n + 10]} for n in range(0, 240, 10)]


def send(site: Standing, name: str, documents: Sequence[Document]) -> float:
    """One after the other; returns how many requests were accepted."""
    accepted = 0.0
    for document in documents:
        answer = site.api.post(f"/v1/deployments/{name}/observations", document)
        assert answer.status_code == 202, answer.text
        accepted += answer.json()["accepted_requests"]
    return accepted


def wildly(site: Standing, name: str, documents: Sequence[Document]) -> float:
    """Each three times, in any order, several at the same time."""
    shuffled = [*documents] * 3
    Random(11).shuffle(shuffled)
    works: list[Callable[[], float]] = [
        partial(send, site, name, shuffled[n::SENT_AT_ONCE]) for n in range(SENT_AT_ONCE)
    ]
    return float(sum(results(*works)))


def traffic(site: Standing, name: str) -> Document:
    (model,) = site.api.get(f"/v1/deployments/{name}/traffic").json()["models"]
    found: Document = model
    return found


def test_traffic_that_is_reported_wildly_leads_to_the_revision_that_it_leads_to_in_order(site: Standing) -> None:
    before, documents = site.revisions, windows(datetime.now(UTC), times=2.0)
    assert send(site, ORDERLY, documents) == wildly(site, WILD, documents) == 2 * 22 * 240
    assert traffic(site, WILD) == traffic(site, ORDERLY)
    assert traffic(site, WILD)["state"] == "live"
    work(site, before)
    plans = [site.api.get(f"/v1/deployments/{name}/plan").json() for name in (ORDERLY, WILD)]
    assert plans[0]["rentals"] == plans[1]["rentals"]
    assert wildly(site, WILD, documents) == 0
    assert site.is_calm()


def test_single_requests_that_are_reported_backwards_are_known_at_their_rate(site: Standing) -> None:
    """Beside another source, whose rate adds up with theirs."""
    found = []
    for name, step in ((ORDERLY, 1), (WILD, -1)):
        before = traffic(site, name)["rate_rps"]
        now_s = datetime.now(UTC).timestamp()
        documents = requests_of(datetime.fromtimestamp(now_s - now_s % 10, UTC), source=f"router {step}")
        assert send(site, name, documents[::step]) == 240
        found.append(traffic(site, name)["rate_rps"] - before)
    assert found == pytest.approx([2.0, 2.0], rel=0.1)


def test_single_requests_that_are_reported_wildly_count_once(site: Standing) -> None:
    documents = requests_of(datetime.now(UTC), source="proxy")
    assert send(site, ORDERLY, documents) == 240
    assert wildly(site, WILD, documents) == 240
    assert wildly(site, WILD, documents) == 0
