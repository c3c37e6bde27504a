"""`If-None-Match`: which versions the caller has. https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match"""

from fastapi import Request


def tags_of(request: Request) -> frozenset[str]:
    """The tags that the request names, as strong ones."""
    lines = request.headers.getlist("if-none-match")
    return frozenset(tag.strip().removeprefix("W/") for line in lines for tag in line.split(",") if tag.strip())
