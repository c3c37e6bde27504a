"""One replica over HTTP, as vLLM and SGLang answer: what it serves, and when the tokens of one request come.

Protocol: OpenAI's /v1/models and /v1/completions with server-sent events; `ignore_eos` and prompts of token ids are
what both engines add (https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
https://docs.sglang.ai/basic_usage/openai_api_completions.html). Nothing here logs prompts, answers or keys.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import requests
from urllib3.exceptions import ReadTimeoutError

from sutler.service.trial.errors import TrialError

CONNECT_S: Final = 10.0  # chosen: across oceans and tunnels it takes a second or two
LOOPBACK: Final = ("http://127.", "http://localhost", "http://[::1]")
MOST_SAID: Final = 200  # characters of what a replica says of an error
REASONS: Final = {
    401: ("wants a key", "set SUTLER_REPLICA_KEY to the one that it was started with"),
    403: ("refuses the key", "set SUTLER_REPLICA_KEY to the one that it was started with"),
    404: ("has nothing there", "give the address of an OpenAI-compatible server, without a path behind /v1"),
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica answers. `name`: its id in the plan, for messages. `silence_s`: when a replica that sends
    nothing has failed."""

    name: str
    url: str
    key: str | None = field(default=None, repr=False)
    silence_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ServedName:
    """A model as a server lists it. `root`: what it was loaded from; None where the server does not say."""

    id: str
    root: str | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """One request, in seconds from its sending, and the tokens as the server counted them."""

    ttft_s: float
    e2e_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int


class Engine:
    """A connection to one replica; of one thread. Raises TrialError wherever it does not answer as it must."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._session = requests.Session()
        self._session.auth = self._with_key  # else a .netrc would win over the key
        self._session.trust_env = not address.url.startswith(LOOPBACK)  # no proxy for this machine

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def served(self) -> tuple[ServedName, ...]:
        """The models that it answers as."""
        with self._asked("GET", "/v1/models") as reply:
            found = self._json(reply.content)
        listed = found.get("data") if isinstance(found, dict) else None
        rows = [one for one in listed or () if isinstance(one, dict) and isinstance(one.get("id"), str)]
        if not rows:
            raise self._wrong("lists no model at /v1/models", "give the address of an OpenAI-compatible server")
        return tuple(ServedName(one["id"], _text(one.get("root")), _whole(one.get("max_model_len"))) for one in rows)

    def version(self) -> str:
        """The engine's version where it says it at /version, as vLLM does; else empty."""
        try:
            with self._asked("GET", "/version") as reply:
                found = json.loads(reply.content)
        except (TrialError, ValueError):
            return ""
        return (_text(found.get("version")) or "") if isinstance(found, dict) else ""

    def timed(self, model: str, prompt: Sequence[int], output_tokens: int) -> Timed:
        """Sends a prompt of token ids and reads exactly so many tokens back."""
        body = {
            "model": model,
            "prompt": list(prompt),
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        usage: dict[str, Any] = {}
        first = last = None
        started = time.perf_counter()
        with self._asked("POST", "/v1/completions", json=body) as reply:
            for event, at in self._events(reply):
                if event.get("error") is not None:
                    raise self._wrong(f"broke a request off ({self._said(str(event['error']))})", "see its log")
                if event.get("choices"):
                    first, last = first or at, at
                usage = event.get("usage") or usage
        counted = [_whole(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
        if first is None or last is None or None in counted:
            remedy = "give the address of vLLM or SGLang, which stream tokens and count them (stream_options)"
            raise self._wrong("answers without tokens, or without `usage`", remedy)
        details = usage.get("prompt_tokens_details")
        cached = _whole(details.get("cached_tokens")) if isinstance(details, dict) else None
        return Timed(first - started, last - started, counted[0] or 0, counted[1] or 0, cached or 0)

    def _with_key(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._address.key is not None:
            request.headers["Authorization"] = f"Bearer {self._address.key}"
        return request

    @contextmanager
    def _asked(self, method: str, path: str, **others: Any) -> Iterator[requests.Response]:
        """An answer that is no error. A redirect is one: the key is for this address alone."""
        try:
            with self._session.request(
                method,
                self._address.url + path,
                stream=True,
                allow_redirects=False,
                timeout=(CONNECT_S, self._address.silence_s),
                **others,
            ) as reply:
                if reply.status_code != requests.codes.ok:
                    raise self._refused(path, reply)
                yield reply
        except requests.RequestException as error:
            if any(isinstance(one, requests.ReadTimeout | ReadTimeoutError) for one in (error, *error.args)):
                waited = f"sent nothing for {self._address.silence_s:g} s"
                raise self._wrong(waited, "see its log, or give it longer (--silence-s)") from None
            remedy = "start it, or correct its address in --at"
            raise self._wrong("cannot be reached, or went away", remedy) from None

    def _refused(self, path: str, reply: requests.Response) -> TrialError:
        reason, remedy = REASONS.get(reply.status_code, ("refuses", "see its log"))
        said = self._said(reply.content.decode(errors="replace"))
        return self._wrong(f"{reason} ({path} answered {reply.status_code}: {said})", remedy)

    def _events(self, reply: requests.Response) -> Iterator[tuple[dict[str, Any], float]]:
        """Server-sent events, each with the time at which its bytes were there."""
        rest = b""
        for chunk in reply.iter_content(None):
            at = time.perf_counter()
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                content = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and content != b"[DONE]":
                    event = self._json(content)
                    if isinstance(event, dict):
                        yield event, at

    def _json(self, content: bytes) -> object:
        try:
            return json.loads(content)
        except ValueError:
            raise self._wrong("answers something that is no JSON", "give the address of vLLM or SGLang") from None

    def _said(self, text: str) -> str:
        """What a server says, short, and without the key if it repeats that."""
        plain = " ".join(text.split())
        return (plain.replace(self._address.key, "***") if self._address.key else plain)[:MOST_SAID]

    def _wrong(self, reason: str, remedy: str) -> TrialError:
        return TrialError(f"{self._address.name} at {self._address.url} {reason}", remedy)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
