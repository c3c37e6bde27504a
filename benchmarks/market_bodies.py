"""A search answer of Vast.ai with as many offers as wanted, and a loopback server that gives it to everybody.

The rows are those of the fake cloud, with all documented fields; a filler brings each to the size of the real ones.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import requests

from sutler.adapters.base import USUAL_PRICE_BAND, Offer
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.adapters.vastai import parse
from sutler.adapters.vastai_searches import SEARCH_PATH, SEARCH_TYPES, SearchAnswer, SearchedContract

ROW_BYTES: Final = 3_300
INSTANT_S: Final = 1_790_000_000.0  # any instant does; a fixed one gives the same market every time
_MACHINES: Final = 6_000
_MOST_ROWS: Final = 20_000


def vast_rows(offers: int, *, contract: SearchedContract = "on_demand") -> list[dict[str, Any]]:
    """Rows of so many offers, spread over the whole range of prices, the cheapest first."""
    search = {"type": SEARCH_TYPES[contract], "order": [["dph_total", "asc"]], "limit": _MOST_ROWS}
    with (
        FakeCloud(Market(seed=1, machines=_MACHINES), clock=lambda: INSTANT_S) as cloud,
        requests.Session() as session,
    ):
        found = session.post(cloud.base_url + SEARCH_PATH, json=search, timeout=60).json()["offers"]
    if len(found) < offers:
        raise ValueError(f"offers: {offers} are more than the {len(found)} of the fake market")
    return [found[i * len(found) // offers] for i in range(offers)]


def vast_offers(offers: int, contract: SearchedContract) -> tuple[Offer, ...]:
    """Such rows as the adapter reads them."""
    search = SearchAnswer(contract, tuple(vast_rows(offers, contract=contract)), is_cut=False)
    return parse([search], price_band=USUAL_PRICE_BAND, now_s=INSTANT_S).offers


def vast_body(rows: list[dict[str, Any]]) -> bytes:
    """The answer with these rows, `ROW_BYTES` each."""
    padded = [{**row, "filler": "x" * max(0, ROW_BYTES - len(json.dumps(row)) - 16)} for row in rows]
    return json.dumps({"success": True, "offers": padded}).encode()


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    """A server on loopback that answers every POST with this JSON; its base URL."""

    class _Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
