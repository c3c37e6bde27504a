"""What browsers load with the pages: our style and script, and the libraries that the build fetched.

Addresses hold a digest of the contents, so that browsers keep a file for as long as it stays the same.
"""

import gzip
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from sutler.service.web.errors import NotFoundError

HERE: Final = Path(__file__).parent
FILES: Final = {
    "sutler.css": (HERE / "assets/sutler.css", "text/css; charset=utf-8"),
    "sutler.js": (HERE / "assets/sutler.js", "text/javascript; charset=utf-8"),
    "icon.svg": (HERE / "assets/icon.svg", "image/svg+xml"),
    "htmx.min.js": (HERE / "libraries/htmx.min.js", "text/javascript; charset=utf-8"),
    "echarts.min.js": (HERE / "libraries/echarts.min.js", "text/javascript; charset=utf-8"),
}
FETCH: Final = f"python {HERE / 'fetch.py'}"
"""The command that brings the libraries into a checkout that was not built."""
FOREVER: Final = "public, max-age=31536000, immutable"
router = APIRouter(prefix="/ui", include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file in the two ways that it is sent."""

    digest: str
    media_type: str
    raw: bytes = field(repr=False)
    compressed: bytes = field(repr=False)


@cache
def asset(name: str) -> Asset:
    """One of the FILES, which is there."""
    path, media_type = FILES[name]
    raw = path.read_bytes()
    return Asset(sha256(raw).hexdigest()[:16], media_type, raw, gzip.compress(raw, mtime=0))


def url_of(name: str) -> str | None:
    """Where browsers find it; None where the build did not fetch it."""
    return f"/ui/assets/{asset(name).digest}/{name}" if FILES[name][0].exists() else None


@router.get("/assets/{digest}/{name}", name="asset")
def get_asset(request: Request, digest: str, name: str) -> Response:
    """A file, as long as it is the one that the page meant."""
    if name not in FILES or not FILES[name][0].exists() or asset(name).digest != digest:
        raise NotFoundError("there is no such file: load the page again")
    found = asset(name)
    headers = {"Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            found.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.media_type
        )
    return Response(found.raw, headers=headers, media_type=found.media_type)
