"""Headers that several endpoints take; they are documented here and read where they are used."""

from typing import Annotated, Final

from fastapi import Header, Query

MOST_WAIT_S: Final = 3_600.0  # the most that SUTLER_LONGEST_WAIT_S may allow

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Names the request: sent again within 24 hours, it is done once."),
]
Prefer = Annotated[
    str | None,
    Header(alias="Prefer", description="`respond-async`: answer 202 at once; `wait=10`: after 10 seconds at most."),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="Only if the `ETag` is still this one.")]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="304 without a body while the `ETag` is this one.")
]
WaitS = Annotated[float, Query(ge=0, le=MOST_WAIT_S, description="Seconds to wait for a plan that is being made.")]
