"""Closed loops against an engine over real HTTP, whose times are known."""

import threading
from dataclasses import replace
from typing import Any

import pytest

from sutler.service.trial.engine import Address, Engine
from sutler.service.trial.errors import TrialError
from sutler.service.trial.load import Load, Measured, measured
from tests.service.trial.fake_engine import FakeEngine, answering

LOAD = Load("llama-3.1-8b", 128_000, 200, 21, concurrency=4, seconds=0.5)
# A busy machine wakes sleepers late: never early, and by less than this.
LATE_FRACTION = 0.5


def run(engine: FakeEngine, load: Load = LOAD, *, key: str | None = None, silence_s: float = 10.0) -> Measured:
    return measured(Address("chat-0", engine.url, key, silence_s), load)


def test_what_is_measured_is_what_the_engine_does() -> None:
    with answering(FakeEngine(step_s=0.03)) as engine:
        found = run(engine)
    ttft_s = engine.base_s + 200 * engine.prefill_s_per_token
    whole_s = ttft_s + 20 * engine.step_s
    assert found.tpot_s == pytest.approx(0.03, rel=LATE_FRACTION)
    assert ttft_s <= found.ttft_s <= ttft_s + 0.05
    assert found.e2e_s == pytest.approx(found.ttft_s + 20 * (found.tpot_s or 0.0))
    assert (1 - LATE_FRACTION) * 4 / whole_s <= found.req_per_s <= 1.01 * 4 / whole_s
    assert engine.most_at_once == 4
    assert found.completed >= 12, "every client sends three, however long they take"


def test_requests_that_wait_for_a_slot_wait_for_their_first_token() -> None:
    with answering(FakeEngine(slots=2)) as engine:
        found = run(engine)
    whole_s = engine.base_s + 200 * engine.prefill_s_per_token + 20 * engine.step_s
    assert engine.most_at_once == 2
    assert found.req_per_s == pytest.approx(2 / whole_s, rel=LATE_FRACTION)
    assert found.ttft_s > 0.5 * whole_s
    assert found.tpot_s == pytest.approx(engine.step_s, rel=LATE_FRACTION)


def test_runs_last_as_long_as_was_asked_for() -> None:
    with answering(FakeEngine(step_s=0.001)) as engine:
        found = run(engine, replace(LOAD, output_tokens=2, seconds=1.0))
    assert 1.0 <= found.duration_s < 2.0
    assert found.completed > 12


def test_no_prompt_is_sent_twice_and_each_has_its_length() -> None:
    with answering(FakeEngine(step_s=0.001)) as engine:
        run(engine)
        run(engine)
    assert {len(prompt) for prompt in engine.prompts} == {200}
    assert len(set(engine.prompts)) == len(engine.prompts)
    assert all(1_000 <= token < 64_000 for prompt in engine.prompts for token in prompt)


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    with answering(FakeEngine()) as engine:
        found = run(engine, replace(LOAD, output_tokens=1))
    assert found.tpot_s is None
    assert found.ttft_s == pytest.approx(found.e2e_s)


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            {"missing_tokens": 3},
            "chat-0 answered 13 tokens of the 16 that were asked for: start an engine that takes",
        ),
        ({"added_tokens": 40}, "chat-0 counted 240 prompt tokens of the 200 that were sent"),
        ({"cached_fraction": 0.5}, "prompt tokens in its prefix cache"),
        ({"counts": False}, "answers without tokens, or without `usage`"),
        ({"silent_after": 3}, "sent nothing for 1 s: see its log, or give it longer (--silence-s)"),
        ({"fails_at": 9}, "refuses (/v1/completions answered 500: "),
        ({"key": "secret-key"}, "wants a key (/v1/completions answered 401"),
    ],
)
def test_what_is_wrong_ends_all_clients_and_says_what_to_do(engine: dict[str, Any], said: str) -> None:
    with answering(FakeEngine(**engine)) as running, pytest.raises(TrialError) as raised:
        run(running, silence_s=1.0)
    assert said in str(raised.value)
    assert "chat-0" in str(raised.value)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trial client")]


def test_an_engine_that_goes_away_is_said_to() -> None:
    with answering(FakeEngine()) as engine:
        pass
    with pytest.raises(TrialError, match=r"chat-0 at http://127.0.0.1:\d+ cannot be reached, or went away: start it"):
        run(engine)


def test_the_key_is_sent_and_never_said() -> None:
    with answering(FakeEngine(key="secret-key", step_s=0.001)) as engine:
        run(engine, key="secret-key")
        assert engine.keys == {"Bearer secret-key"}
        engine.key = "another"
        with pytest.raises(TrialError, match="wants a key") as raised:
            run(engine, key="secret-key")
    assert "secret-key" not in str(raised.value)
    assert "Unauthorized: Bearer ***" in str(raised.value)
    assert "secret-key" not in repr(Address("chat-0", engine.url, "secret-key"))


def test_what_an_engine_says_of_itself() -> None:
    with (
        answering(FakeEngine(model="llama", version="0.13.1")) as running,
        Engine(Address("r", running.url)) as engine,
    ):
        assert [(one.id, one.max_tokens) for one in engine.served()] == [("llama", 8192)]
        assert engine.version() == "0.13.1"
