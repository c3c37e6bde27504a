"""How the requests of a model are written in an application file: drawn, from a file, or one by one.

Used by application_schema.py; files.py reads the file, translate.py turns the rest into the solver's requests.
"""

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from sutler.service.documents.fields import Document, FilePath
from sutler.service.offline.lengths_schema import MOST_ENTRIES, MOST_TOKENS, LengthsDocument

RequestTokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
TokensOfRequests = Annotated[tuple[RequestTokens, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]
ItemCount = Annotated[int, Field(ge=1, le=MOST_ENTRIES)]


class DrawnRequests(Document):
    """So many items, with prompts of these lengths."""

    count: ItemCount
    """How many items: documents, questions, ... Without a chain, each is one request."""
    input_tokens: LengthsDocument
    """Lengths of the prompts; of a chain, those of its chunks."""
    chain_length: LengthsDocument | None = None
    """How many chunks an item has, one request each; only with an edge from the model to itself, and needed there."""


class RecordedFile(Document):
    """A CSV of requests with the columns TIMESTAMP, ContextTokens and GeneratedTokens."""

    file: FilePath
    """Path of the CSV, relative to the application file (command line only)."""
    known_output_tokens: bool = False
    """Whether to plan with the answers' own lengths, as if they were known; else with their distribution."""


class TraceRequests(Document):
    """Requests from a file."""

    trace: RecordedFile
    """Which file."""


class RequestList(Document):
    """The lengths of requests, one by one."""

    input_tokens: TokensOfRequests
    """Of each prompt."""
    output_tokens: TokensOfRequests | None = None
    """Of each answer, where they are known; unset: drawn from the model's `output_tokens`."""


class RecordedRequests(Document):
    """Requests, one by one."""

    recorded: RequestList
    """Their lengths."""


def _kind_of_requests(value: Any) -> str | None:
    given = type(value).model_fields if isinstance(value, Document) else value
    if not isinstance(given, dict):
        return None
    kinds = [kind for kind in ("trace", "recorded") if kind in given]
    if len(kinds) + any(field in given for field in DrawnRequests.model_fields) > 1:
        return None
    return f"{kinds[0]} requests" if kinds else "drawn requests"


RequestsDocument = Annotated[
    Annotated[DrawnRequests, Tag("drawn requests")]
    | Annotated[TraceRequests, Tag("trace requests")]
    | Annotated[RecordedRequests, Tag("recorded requests")],
    Discriminator(
        _kind_of_requests,
        custom_error_type="sutler_choice",
        custom_error_message="must be one of {count: ..., input_tokens: ...}, {trace: ...} and {recorded: ...}",
    ),
]
