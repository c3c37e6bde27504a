"""What a form of ours sends: a few short fields, as browsers encode them."""

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from sutler.service.web.errors import BodyTooLargeError, UnsupportedMediaTypeError

MOST_BYTES: Final = 64_000  # chosen: far more than any form of ours, and nothing to read
MOST_FIELDS: Final = 100
MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields by name, the last where one is there several times.

    Raises UnsupportedMediaTypeError, BodyTooLargeError.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise UnsupportedMediaTypeError(f"Content-Type: send {MEDIA_TYPE}, as forms do")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise BodyTooLargeError(f"the form is over {MOST_BYTES:,} bytes: send less")
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise UnsupportedMediaTypeError("the form cannot be read: send it as browsers do") from None


Fields = Annotated[Mapping[str, str], Depends(form_of)]
"""Of the form that was sent."""
