"""What a form of ours sends: a few short fields, as browsers encode them."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from sutler.service.web.errors import BodyTooLargeError, TooSlowError, UnsupportedMediaTypeError

MOST_BYTES: Final = 64_000  # chosen: far more than any form of ours, and nothing to read
MOST_FIELDS: Final = 100
PATIENCE_S: Final = 10.0  # chosen: forms are short
MEDIA_TYPE: Final = "application/x-www-form-urlencoded"


async def form_of(request: Request) -> Mapping[str, str]:
    """The fields by name, the last where one is there several times.

    Raises UnsupportedMediaTypeError, BodyTooLargeError, TooSlowError.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise UnsupportedMediaTypeError(f"Content-Type: send {MEDIA_TYPE}, as forms do")
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BYTES:
                    raise BodyTooLargeError(f"the form is over {MOST_BYTES:,} bytes: send less")
    except TimeoutError:
        raise TooSlowError(f"the form did not arrive within {PATIENCE_S:g} s: send it again") from None
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise UnsupportedMediaTypeError("the form cannot be read: send it as browsers do") from None


Fields = Annotated[Mapping[str, str], Depends(form_of)]
"""Of the form that was sent."""
