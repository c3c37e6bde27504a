"""Names made of any text: valid, unique, the same every time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.export.naming import LONGEST_NAME, dns_labels, label_value, one_line

LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035, the narrower of the two
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@given(st.lists(st.text() | st.sampled_from(["chat-0", "Chat-0", "chat_0", "chat 0", "-", ""]), unique=True))
def test_names_are_valid_unique_and_stable(texts: list[str]) -> None:
    names = dns_labels(texts)
    assert list(names) == texts
    assert all(LABEL.fullmatch(name) and len(name) <= LONGEST_NAME for name in names.values())
    assert len(set(names.values())) == len(texts)
    assert dns_labels(reversed(texts)) == names


def test_a_good_name_stays_and_others_stay_recognisable() -> None:
    names = dns_labels(["chat-0", "Chat 0", "0-chat", "?", "x" * 99])
    assert names["chat-0"] == "chat-0"
    assert re.fullmatch(r"chat-0-[0-9a-f]{8}", names["Chat 0"])
    assert re.fullmatch(r"r-0-chat-[0-9a-f]{8}", names["0-chat"])
    assert re.fullmatch(r"r-[0-9a-f]{8}", names["?"])
    assert re.fullmatch(r"x{31}-[0-9a-f]{8}", names["x" * 99])


@given(st.text())
def test_label_values_are_valid(text: str) -> None:
    assert VALUE.fullmatch(label_value(text))
    assert len(label_value(text)) <= 63


@given(st.text())
def test_a_comment_stays_on_its_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    assert one_line(text).isprintable()


@pytest.mark.parametrize(("text", "shown"), [("a\nb", r"a\nb"), ("a\x1b[31m", r"a\x1b[31m"), ("\u202e", r"\u202e")])
def test_what_does_not_print_is_shown(text: str, shown: str) -> None:
    assert one_line(text) == shown
