"""What docs/traffic.md says is so."""

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from sutler.service.cli.deployments.app import deployments
from sutler.service.deployments.traffic import (
    exposition,
    feed_schema,
    fetching,
    reader,
    reading,
    repository,
    schemas,
    slices,
    window,
)
from sutler.service.deployments.traffic import service as traffic
from sutler.service.deployments.traffic.feed_schema import FeedDocument, FeedResource, FeedsDocument
from sutler.service.deployments.traffic.schemas import ModelTrafficResource, ObservationDocument
from sutler.service.documents.validation import validate
from sutler.service.settings import known_variables
from tests.service.deployments.traffic.builders import TOKENS

PAGE: Final = (Path(__file__).parents[4] / "docs" / "traffic.md").read_text(encoding="utf-8")
FLOWING: Final = re.sub(r"\s+", " ", PAGE)


def bodies(what: str) -> list[Any]:
    """Of the curl examples for a path, as a shell sends them."""
    written = re.findall(rf"/{what} -H [^\n]* -d '(\{{.*?\}})'", PAGE, re.DOTALL)
    piped = re.findall(rf"/{what} -H [^\n]* -d @- (<<END\n.*?\nEND\n)", PAGE, re.DOTALL)
    said = [subprocess.run(["sh"], input=f"cat {one}".encode(), capture_output=True, check=True) for one in piped]
    return [json.loads(body) for body in (*written, *(one.stdout for one in said))]


def test_the_observations_on_the_page_are_taken_whenever_they_are_sent() -> None:
    windows, requests = (validate(ObservationDocument, body) for body in bodies("observations"))
    assert windows.buckets is not None
    assert len(requests.requests or ()) == 2
    for document in (windows, requests):
        begin, end = traffic.check_times(document, datetime.now(UTC))  # raises for what is too old
        assert begin <= end


def test_the_feeds_on_the_page_are_taken() -> None:
    [feed] = validate(FeedsDocument, bodies("feeds")[0]).feeds
    assert feed.sources == ("http://10.0.0.5:8000/metrics",)
    assert validate(FeedsDocument, {"feeds": []}).feeds == ()


def test_every_field_of_a_feed_is_on_the_page_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:the model's|`vllm`|with|seconds)", PAGE, re.MULTILINE)
    assert set(rows) == set(FeedDocument.model_fields)
    assert {"read_at", "error", "partial"} <= set(FeedResource.model_fields)


def test_every_state_and_no_other_is_explained() -> None:
    rows = re.findall(r"^\| `(never|silent|thin|live|\w+)` \| .* \| .* \|$", PAGE, re.MULTILINE)
    states = get_args(ModelTrafficResource.model_fields["state"].annotation)
    assert [row for row in rows if row in states] == list(states)


def test_every_metric_on_the_page_is_read() -> None:
    read = {name for one in exposition.ENGINES.values() for name in one.wanted}
    ends = ("_total", "_bucket", "_sum", "_count")
    known = {next((name.removesuffix(end) for end in ends if name.endswith(end)), name) for name in read}
    named = {name.removesuffix("_total") for name in re.findall(r"`((?:vllm|sglang):\w+)`", PAGE)}
    assert named == known - {exposition.BEGAN}
    assert f"`{exposition.BEGAN}`" in PAGE
    assert TOKENS[:6] == (1, 2, 5, 10, 20, 50)


def test_variables_and_commands_on_the_page_are_there() -> None:
    assert set(re.findall(r"`(SUTLER_\w+)`", PAGE)) <= set(known_variables())
    known = {c.name or c.callback.__name__ for c in deployments.registered_commands if c.callback}
    assert set(re.findall(r"sutler deployments (\w+)", PAGE)) <= known


@pytest.mark.parametrize(
    "said",
    [
        f"{schemas.MOST_REQUESTS:,} requests, or {schemas.MOST_BUCKETS:,} buckets",
        f"windows of {'ten' if slices.SLICE_S == 10 else '?'} seconds",
        f"no gap of less than {'ten' if slices.LONGEST_GAP.total_seconds() == 600 else '?'} minutes",
        f"within {'ten' if reading.LONGEST_GAP.total_seconds() == 600 else '?'} minutes",
        f"increase over {'four' if reading.RANGES == 4 else '?'} times `every_s`",
        f"up to {'five' if reader.LONGEST_WAIT_S == 300 else '?'} minutes",
        f"holds less than {window.ENOUGH_REQUESTS} requests",
        f"older than {'three' if window.SILENT_AFTER == 3 else '?'} windows",
        f"less than {'half' if window.LEAST_COVERED == 0.5 else '?'} of `window_s`",
        f"more than {'five' if window.AHEAD.total_seconds() == 5 else '?'} seconds ahead",
        f"up to {traffic.LONGEST_WINDOWS:g} times `window_s`",
        f"more than {'a minute' if traffic.AHEAD.total_seconds() == 60 else '?'} ahead",
        f"more than {'a day' if traffic.OLDEST.days == 1 else '?'} old",
        f"{feed_schema.MOST_FEEDS}, each of at most {feed_schema.MOST_URLS} URLs",
        f"labels of a selector: {feed_schema.MOST_LABELS}",
        f"{feed_schema.SHORTEST_S:g} to {feed_schema.LONGEST_S:g}",
        f"within {fetching.LIMITS.whole_s:g} s, at most {fetching.MOST_BYTES // 1_000_000} MB",
        f"reads {reader.AT_ONCE} URLs at the same time, at most {reader.MOST_OF_ONE} of one deployment",
        f"kept for {'eight' if repository.KEPT.days == 8 else '?'} days",
    ],
)
def test_the_figures_on_the_page_are_those_of_the_code(said: str) -> None:
    assert said in FLOWING
