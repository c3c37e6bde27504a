"""Any text that a stranger can put into a plan arrives at vLLM as that text, in every format, and starts nothing."""

import json
import subprocess
from itertools import takewhile

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.service.export import FORMATS, exported
from tests.service.export.commands import in_compose, in_pod, in_shell, pods
from tests.service.export.plans import plan_of, with_texts

NASTY = [
    "; rm -rf ~",
    "$(reboot)",
    "`reboot`",
    "${HF_TOKEN}",
    "$HF_TOKEN",
    "$$",
    "$$(LWS_LEADER_ADDRESS)",
    "$(LWS_LEADER_ADDRESS)",
    "it's",
    '"quoted"',
    "a\nb: c",
    "\n---\nkind: Secret\n",
    "\r\n...\n",
    "!!python/object/apply:os.system",
    "{{ .Values }}",
    "# comment",
    "&",
    "&anchor *alias <<",
    "- x",
    "yes",
    "1e3",
    "--trust-remote-code",
    "\\",
    "\u2028\u202e\x07\x1b[2J",
    "é日本🙂",
    " ",
    "../../etc/passwd",
]
TEXTS = st.sampled_from(NASTY) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40
)


def carries(environment: dict[str, str], words: list[str], text: str) -> None:
    assert words[:3] == ["vllm", "serve", f"m{text}"]
    for flag in ("--served-model-name", "--tokenizer"):
        expected = [f"{flag}={text}"] if text.startswith("-") else [flag, text]
        start = words.index(expected[0])
        assert words[start : start + len(expected)] == expected
    assert environment["NOTE"] == text


@pytest.mark.parametrize("name", ["shared_machine", "several_machines"])
@given(text=TEXTS)
@settings(max_examples=12)
def test_text_arrives_unchanged_in_every_format(name: str, text: str) -> None:
    plan = plan_of(with_texts(name, text=text))
    count = sum(len({(s.rental, s.machine) for s in replica.stages}) for replica in plan.replicas)
    starts = [
        in_shell(exported(plan, "vllm").content),
        list(in_compose(exported(plan, "compose").content).values()),
        [s for t in yaml.safe_load_all(exported(plan, "skypilot").content) for s in in_shell(t["run"])],
    ]
    for found in starts:
        assert len(found) == count
        for environment, words in found:
            carries(environment, words, text)
    for pod in pods(exported(plan, "kubernetes").content):
        carries(*in_pod(pod), text)


@given(text=TEXTS)
@settings(max_examples=12)
def test_weights_keep_their_names(text: str) -> None:
    plan = plan_of(with_texts("shared_machine", text=text))
    weights = json.loads(exported(plan, "router").content)["weights"]
    assert weights == {text: {route.workload: route.fractions for route in plan.routing}}
    compose = yaml.safe_load(exported(plan, "compose").content)
    assert compose["x-sutler-router"]["weights"] == weights


@pytest.mark.parametrize("text", NASTY)
def test_bash_accepts_the_script_and_the_tasks(text: str) -> None:
    plan = plan_of(with_texts("several_machines", text=text))
    (task,) = yaml.safe_load_all(exported(plan, "skypilot").content)
    for script in (exported(plan, "vllm").content, task["run"]):
        result = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (0, b"")


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "router"])
@given(text=TEXTS)
@settings(max_examples=12)
def test_the_heading_holds_no_line_of_a_stranger(format: str, text: str) -> None:
    def heading(name: str) -> list[str]:
        plan = plan_of(with_texts("shared_machine", text=f"!{name}"))
        lines = exported(plan, format).content.split("\n")  # type: ignore[arg-type]
        return list(takewhile(lambda line: line.startswith("#"), lines))

    assert len(heading(text)) == len(heading("x"))
    assert all(line.isprintable() for line in heading(text))
