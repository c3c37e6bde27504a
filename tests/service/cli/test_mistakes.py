"""What people get wrong, and what they are told: the field, the value and the remedy."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from sutler.service.cli.app import app

PROBLEM: Final = """\
objective: {kind: min_cost, headroom_fraction: 0.2}
models:
  - name: chat
    model: llama-3.1-8b
    slo: {ttft_p90_s: 2.0, tpot_p90_s: 0.05}
    workloads:
      - {name: question, input_tokens: 500, output_tokens: 250, rate_rps: 20}
market:
  offers:
    schema: sutler/market/v1
    taken_at: 2026-11-20T12:00:00Z
    offers:
      - {provider: acme, offer_id: a, gpu: rtx-4090, gpus: 1, available: 8, price_usd_per_hour: 0.4,
         contract: on_demand}
"""
RATE, TPOT = "models[0].workloads[0].rate_rps", "models[0].slo.tpot_p90_s"


def sutler(*arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "chat.yaml"
    path.write_text(PROBLEM, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "llama-3.1-8b",
            "llama-3.1-8",
            "models[0].model: 'llama-3.1-8': no such model in the catalogue; did you mean",
        ),
        ("rtx-4090", "rtx4090", "offers[0].gpu: 'rtx4090': is no GPU of the catalogue; did you mean rtx-4090?"),
        ("rtx-4090", "h100", "offers[0].gpu: 'h100': is no GPU of the catalogue; did you mean h100-sxm?"),
        ("headroom_fraction", "headroom", "objective.headroom: 0.2: unknown key (did you mean headroom_fraction?)"),
        ("min_cost", "mincost", "objective.kind: 'mincost': must be one of 'max_throughput'"),
        ("min_cost", "mincost", "(did you mean min_cost?)"),
        ("tpot_p90_s: 0.05", "tpot_p90_ms: 50", "unknown key (did you mean tpot_p90_s?)"),
        ("0.05", "50ms", f"{TPOT}: '50ms': must be a number of seconds, without a unit: write 0.05"),
        ("0.05", "2 min", f"{TPOT}: '2 min': must be a number of seconds, without a unit: write 120"),
        ("rate_rps", "rate", "models[0].workloads[0].rate: 20: unknown key (did you mean rate_rps?)"),
        ("rate_rps: 20", "rate_rps: '20'", f"{RATE}: '20': must be a number, not text: remove the quotes"),
        ("rate_rps: 20", "rate_rps: 20 req/s", "write 20 if that is requests per second"),
        ("rate_rps: 20", "rate_rps: twenty", f"{RATE}: 'twenty': must be a number, not text"),
        ("rate_rps: 20", "rate_rps: -1", f"{RATE}: -1: must be above 0"),
        (
            "rate_rps",
            "requests",
            "does not go with min_cost, which counts requests per second: give rate_rps instead",
        ),
        ("input_tokens: 500", "input_tokens: 0", "input_tokens: 0: must be at least 1"),
        ("fraction: 0.2", "fraction: 20%", "headroom_fraction: '20%': must be a fraction of 1: write 0.2"),
        ("on_demand", "ondemand", "contract: 'ondemand': must be 'on_demand'"),
        ("on_demand", "ondemand", "(did you mean on_demand?)"),
        ("hour: 0.4", "hour: $0.40", "'$0.40': must be a number, in the unit that the name of the field says"),
        ("T12:00:00Z", "", "taken_at: '2026-11-20': needs a time zone"),
        (
            "min_cost, headroom_fraction: 0.2",
            "max_throughput",
            "say how many USD per hour may be spent, or use min_cost",
        ),
        ("models:", "model:", "unknown key (did you mean models?)"),
        (
            "  - name: chat",
            "  name: chat",
            "is not valid YAML: mapping values are not allowed in this context at line 4",
        ),
        ("available: 8", "available: 0", "none of 1 offers is left (dropped by available 1"),
        ("llama-3.1-8b", "llama-3.1-8b\n    precision: fp9", "models[0].precision"),
    ],
)
def test_a_wrong_problem_is_said_to_be_wrong_where_it_is(written: Path, right: str, wrong: str, said: str) -> None:
    assert right in PROBLEM
    written.write_text(PROBLEM.replace(right, wrong, 1), encoding="utf-8")
    done = sutler("plan", str(written))
    assert done.exit_code in (2, 4)
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("plan nothere.yaml", "does not exist: check the path"),
        ("plan .", "is a folder: name a file in it"),
        ("plan {plan}", "is a plan, which is not what is wanted here"),
        ("simulate {problem} --poisson", "this looks like a problem where a plan is wanted"),
        ("export {problem} --format vllm", "this looks like a problem where a plan is wanted"),
        ("plan {problem} --budgt 3", "No such option: --budgt"),
        ("pln {problem}", "Did you mean 'plan'?"),
        ("plan {problem} --budget twenty", "budget_usd_per_hour: 'twenty': must be a number, not text"),
        ("plan {problem} --set budget", "give KEY=VALUE, as budget_usd_per_hour=20"),
        (
            "plan {problem} --set models.chatt.precision=fp8",
            "models.chatt: 'chatt': leads nowhere: known there are chat",
        ),
        ("plan {problem} --set budget_usd=20", "(did you mean budget_usd_per_hour?)"),
        ("plan {problem} --budget 1,2 --validate", "--validate goes with one plan"),
        (
            "plan {problem} --set objective.kind=max_throughput --budget 3",
            "objective.headroom_fraction: 0.2: does not go with kind: max_throughput: leave it out",
        ),
        (
            "plan {problem} --exclude h10-sxm",
            "--exclude: 'h10-sxm': is no GPU of the catalogue and no provider; did",
        ),
        ("plan {problem} --exclude rtx-4090,vast", "did you mean vastai?"),
        ("plan {problem} --set budget_usd_per_hour=", "is given no value: null takes away what stands there"),
        ("plan {problem} --budget 3,", "is given no value"),
        ("plan {problem} --set models[3].precision=fp8", "models[3]: '3': leads nowhere"),
        ("plan {problem} --contract spto", "spot is read as interruptible"),
        ("compare {problem} --only homogenous", "did you mean homogeneous"),
        ("market poll vast", "did you mean vastai? there are vastai, runpod"),
        ("plan {problem} --set market.filter.providers=[acm]", "(the market has offers of acme)"),
        ("export {plan} --format helm", "'helm' is not one of"),
        ("deployments show chat", "start it with `sutler serve`, or set SUTLER_URL"),
    ],
)
def test_a_wrong_command_is_answered_with_the_right_one(
    written: Path, arguments: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUTLER_URL", "http://127.0.0.1:9")
    plan = written.with_name("plan.json")
    plan.write_text(json.dumps({"schema": "sutler/plan/v1"}), encoding="utf-8")
    if "{plan} --format" in arguments:
        plan = written
    done = sutler(*arguments.format(problem=written, plan=plan).split())
    assert done.exit_code != 0
    assert said in re.sub(r"[\s│]+", " ", done.stderr)


def test_names_are_excluded_as_people_spell_them(written: Path) -> None:
    for name in ("RTX 4090", "rtx-4090", "ACME", "acme/a"):
        done = sutler("plan", str(written), "--exclude", name)
        assert (done.exit_code, "filter.exclude 1" in done.stderr) == (4, True), name


def test_hosts_and_machines_are_excluded_by_the_word_before_their_ids(written: Path) -> None:
    told = PROBLEM.replace("available: 8", "available: 1, host_id: h9, machine_id: m7")
    written.write_text(told, encoding="utf-8")
    for name in ("host:h9", "host:acme/h9", "machine:acme/m7"):
        done = sutler("plan", str(written), "--exclude", name)
        assert (done.exit_code, "filter.exclude 1" in done.stderr) == (4, True), name
    kept = sutler("plan", str(written), "--exclude", "machine:m7", "--no-alternatives", "--json")
    assert any("exclude.machines: m7 is none of the offers" in note for note in json.loads(kept.stdout)["notes"])


def test_a_limit_that_cannot_be_meant_draws_a_warning(written: Path) -> None:
    written.write_text(PROBLEM.replace("0.05", "50"), encoding="utf-8")
    done = sutler("plan", str(written), "--no-alternatives", "--json")
    assert done.exit_code == 0
    [warning] = json.loads(done.stdout)["warnings"]
    assert warning.startswith(
        "chat: tpot_p90_s of 50 s limits next to nothing: if milliseconds were meant, write 0.05"
    )
