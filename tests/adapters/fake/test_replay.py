"""Playing back a folder with a manifest."""

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from sutler.adapters.fake.errors import FakeSetupError, ReplayError
from sutler.adapters.fake.replay import ReplayFolder
from sutler.adapters.fake.server import FakeCloud
from tests.adapters.fake.builders import a_cloud, polled

NODES = "/api/public/v1/nodes"
CATALOG = "/v2/catalog/gpus"


def entry(file: str, **changes: Any) -> dict[str, Any]:
    usual = {"provider": "lium", "method": "GET", "path": NODES, "status": 200}
    return {"file": file, "headers": {"Content-Type": "application/json"}, **usual, **changes}


def a_folder(path: Path, *entries: Any, bodies: dict[str, str] | None = None) -> Path:
    for listed in entries:
        if isinstance(listed, dict) and isinstance(listed.get("file"), str):
            content = (bodies or {}).get(listed["file"], json.dumps({"nodes": [], "of": listed["file"]}))
            (path / listed["file"]).write_text(content, encoding="utf-8")
    (path / "manifest.json").write_text(json.dumps(entries), encoding="utf-8")
    return path


def get(cloud: FakeCloud, path: str, **params: str) -> requests.Response:
    return requests.get(cloud.base_url + path, params=params, timeout=10)


def test_the_first_file_of_a_path_answers_until_another_is_selected(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, entry("a.json"), entry("b.json", status=503, headers={"Retry-After": "4"}))
    with FakeCloud.replay(folder) as cloud:
        assert get(cloud, NODES).json()["of"] == "a.json"
        cloud.select("b.json")
        answer = get(cloud, NODES, any="query")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "4")
        requests.post(f"{cloud.base_url}/_fake/replay", json={"file": "a.json"}, timeout=10).raise_for_status()
        assert get(cloud, NODES).json()["of"] == "a.json"


def test_entries_that_differ_by_query_answer_their_own(tmp_path: Path) -> None:
    v2 = {"provider": "runpod"}
    folder = a_folder(
        tmp_path,
        entry("all.json", path=f"{CATALOG}?include=AVAILABILITY&product=POD", **v2),
        entry("plain.json", path=CATALOG, **v2),
    )
    with FakeCloud.replay(folder) as cloud:
        assert get(cloud, CATALOG).json()["of"] == "plain.json"
        assert get(cloud, CATALOG, product="POD", include="AVAILABILITY").json()["of"] == "all.json"
        assert get(cloud, CATALOG, product="POD", include="AVAILABILITY", count="8").json()["of"] == "all.json"


def test_a_selected_file_answers_only_where_its_path_fits(tmp_path: Path) -> None:
    folder = a_folder(
        tmp_path, entry("a.json"), entry("b.json"), entry("other.json", path="/other"), entry("c.json", method="post")
    )
    with FakeCloud.replay(folder) as cloud:
        cloud.select("other.json")
        assert get(cloud, NODES).json()["of"] == "a.json"
        assert get(cloud, "/other").json()["of"] == "other.json"
        assert requests.post(cloud.base_url + NODES, timeout=10).json()["of"] == "c.json"
        assert get(cloud, CATALOG).status_code == 404


def test_bodies_come_to_the_byte(tmp_path: Path) -> None:
    cut = '{"nodes": [{"id": "é'
    with FakeCloud.replay(a_folder(tmp_path, entry("cut.json"), bodies={"cut.json": cut})) as cloud:
        assert get(cloud, NODES).content == cut.encode()
        assert polled(cloud, "lium").outcome == "bad_body"


@pytest.mark.parametrize("kind", ["garbage_rows", "empty", "truncated", "broken_off"])
def test_a_body_that_is_no_json_can_still_fail(tmp_path: Path, kind: str) -> None:
    with FakeCloud.replay(a_folder(tmp_path, entry("a.json"), bodies={"a.json": "<html>"})) as cloud:
        cloud.fail("lium", kind)
        assert polled(cloud, "lium").outcome == "bad_body"


def test_failures_come_before_the_folder(tmp_path: Path) -> None:
    with FakeCloud.replay(a_folder(tmp_path, entry("a.json"))) as cloud:
        cloud.fail("lium", "http_500", times=1)
        assert [get(cloud, NODES).status_code for _ in range(2)] == [500, 200]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], r"manifest\.json: must be a list of at least one entry"),
        (["a.json"], r"\[0\]: must be an object"),
        ([entry("a.json", provider=None)], r"\[0\]\.provider: None must be text"),
        ([entry("a.json"), entry("a.json", method=3)], r"\[1\]\.method: 3 must be text"),
        ([entry("a.json", path="nodes")], r"\[0\]\.path: 'nodes' must start with /"),
        ([entry("a.json", status="200")], r"\[0\]\.status: '200' must be a status"),
        ([entry("a.json", status=True)], r"\[0\]\.status: True must be a status"),
        ([entry("a.json", headers={"Retry-After": 7})], r"\[0\]\.headers: must be an object of one-line texts"),
        ([entry("a.json", headers={"X": "a\r\nY: b"})], r"\[0\]\.headers: must be an object of one-line texts"),
        ([entry("a.json", headers=[])], r"\[0\]\.headers: must be an object"),
    ],
)
def test_a_wrong_manifest_names_entry_and_field(tmp_path: Path, entries: list[Any], message: str) -> None:
    with pytest.raises(ReplayError, match=message):
        ReplayFolder(a_folder(tmp_path, *entries))


def test_a_file_that_is_missing_or_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = a_folder(tmp_path, entry("a.json"))
    (folder / "a.json").unlink()
    with pytest.raises(ReplayError, match=r"\[0\]\.file: 'a\.json' cannot be read \(no such file"):
        ReplayFolder(folder)
    (folder / "manifest.json").write_text(json.dumps([entry("../secret.json")]), encoding="utf-8")
    with pytest.raises(ReplayError, match="must be a name in that folder"):
        ReplayFolder(folder)


def test_a_folder_without_a_readable_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"manifest\.json: cannot be read \(no such file"):
        ReplayFolder(tmp_path)
    (tmp_path / "manifest.json").write_text("[{", encoding="utf-8")
    with pytest.raises(ReplayError, match=r"manifest\.json: is no JSON"):
        ReplayFolder(tmp_path)


def test_a_file_that_is_not_listed_cannot_be_selected(tmp_path: Path) -> None:
    with FakeCloud.replay(a_folder(tmp_path, entry("a.json"))) as cloud:
        with pytest.raises(ReplayError, match=r"b\.json: is not in .*, which lists a\.json"):
            cloud.select("b.json")
        answer = requests.post(f"{cloud.base_url}/_fake/replay", json={"file": "b.json"}, timeout=10)
    assert answer.status_code == 422
    assert "b.json" in answer.json()["error"]


def test_without_a_folder_nothing_can_be_selected() -> None:
    with pytest.raises(FakeSetupError, match="--payloads DIR"):
        a_cloud().select("a.json")
