"""`sutler simulate`: a plan that the command line has made, replayed."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.cli.terminal.output import check_plots
from sutler.service.documents.errors import DocumentError
from sutler.solver.answer.engine_args import either_phase
from tests.service.builders import a_problem, a_snapshot, an_offer

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SLO = {"ttft_p90_s": 5.0, "tpot_p90_s": 0.2}


def sutler(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def estimated(**others: Any) -> dict[str, Any]:
    """Llama-3-8B for two workloads at a load, on one H100 or several."""
    workloads = [
        {"name": "short", "input_tokens": 500, "output_tokens": 100, "rate_rps": 3.0},
        {"name": "long", "input_tokens": 2000, "output_tokens": 300, "rate_rps": 1.0},
    ]
    model = {"name": "chat", "model": "llama-3-8b", "precision": "bf16", "slo": SLO, "workloads": workloads}
    offers = [an_offer(gpu="h100-sxm", gpus=1, available=4, price_usd_per_hour=2.5)]
    return a_problem(
        objective={"kind": "min_cost", "headroom_fraction": 0.2},
        models=[model],
        market={"offers": a_snapshot(*offers)},
        throughput={},
        **others,
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    (folder / "problem.json").write_text(json.dumps(estimated()))
    made = sutler("plan", folder / "problem.json", "--json")
    assert made.exit_code == 0, made.output
    (folder / "plan.json").write_text(made.stdout)
    return folder / "plan.json"


def a_trace(folder: Path, *, requests: int = 200, apart_s: float = 0.25) -> Path:
    """A request every so often, 800 tokens in and 120 out."""
    rows = (f"2026-01-01 00:{s // 60:02.0f}:{s % 60:09.6f},800,120\n" for s in (n * apart_s for n in range(requests)))
    path = folder / "trace.csv"
    path.write_text(HEADER + "".join(rows))
    return path


def as_json(*arguments: str | Path) -> dict[str, Any]:
    result = sutler("simulate", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_plan_meets_its_limits_at_its_own_load(plan: Path) -> None:
    found = as_json(plan, "--poisson", "--duration-s", "900")
    [chat] = found["models"]
    assert found["meets_all_limits"]
    assert chat["unserved"] == 0
    assert chat["offered_rps"] == pytest.approx(4.0, rel=0.1)
    assert chat["throughput_rps"] == pytest.approx(chat["offered_rps"], rel=0.05)
    assert [w["workload"] for w in found["workloads"]] == ["short", "long"]
    assert {limit["metric"] for limit in chat["limits"]} == {"ttft", "tpot"}


@pytest.mark.slow
def test_far_beyond_its_load_it_misses_them_and_says_that_the_queue_grows(plan: Path) -> None:
    result = sutler("simulate", plan, "--poisson", "--duration-s", "300", "--load-multiple", "40")
    assert result.exit_code == 0
    assert "missed" in result.stdout.splitlines()[0]
    assert "its queue grows" in result.stdout


def test_people_see_tables_of_at_most_100_columns(plan: Path) -> None:
    result = sutler("simulate", plan, "--poisson")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("every limit is met (2 limits)\n")
    for heading in ("Rates", "Latencies", "Limits", "By workload", "Replicas"):
        assert heading in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_same_seed_gives_the_same_and_another_does_not(plan: Path) -> None:
    def timeless(seed: int) -> dict[str, Any]:
        return {**as_json(plan, "--poisson", "--seed", str(seed), "--routing", "random"), "seconds": 0, "seed": 0}

    assert timeless(3) == timeless(3)
    assert timeless(3) != timeless(4)


def test_a_trace_is_replayed_as_it_came_or_at_the_rate_of_the_plan(plan: Path, tmp_path: Path) -> None:
    trace = a_trace(tmp_path, apart_s=0.5)
    as_it_came = as_json(plan, "--trace", trace, "--warm-up-s", "0")
    rated = as_json(plan, "--trace", trace, "--at-rated-load", "--warm-up-s", "0")
    assert as_it_came["models"][0]["requests"] == rated["models"][0]["requests"] == 200
    assert as_it_came["models"][0]["offered_rps"] == pytest.approx(2.0, rel=0.02)
    assert rated["models"][0]["offered_rps"] == pytest.approx(4.0, rel=0.02)
    assert as_it_came["models"][0]["input_tokens_per_s"] == pytest.approx(2.0 * 800, rel=0.05)


def test_requests_that_all_arrive_at_once_are_rated_until_the_last_ends(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(HEADER + "2026-01-01 00:00:00,800,120\n" * 20)
    found = as_json(plan, "--trace", tmp_path / "trace.csv")
    [chat] = found["models"]
    assert chat["requests"] == 20
    assert chat["throughput_rps"] == pytest.approx(20 / found["end_s"])
    assert 0 < chat["throughput_rps"] < 20


def test_lengths_can_be_drawn_from_recorded_requests(plan: Path, tmp_path: Path) -> None:
    found = as_json(plan, "--poisson", "--lengths", a_trace(tmp_path))
    [chat] = found["models"]
    assert chat["input_tokens_per_s"] == pytest.approx(800 * chat["throughput_rps"])


@pytest.mark.slow
def test_prompts_first_delays_those_that_run(plan: Path) -> None:
    """Chunks stretch a step; whole prompts before any decoding stop the others, so the worst TPOT is worse."""
    chunked, whole = (
        as_json(plan, "--poisson", "--scheduling", scheduling, "--load-multiple", "4")["models"][0]
        for scheduling in ("chunked", "prefill_first")
    )
    assert whole["tpot"]["percentiles_s"]["p50"] > chunked["tpot"]["percentiles_s"]["p50"]
    assert whole["ttft"]["percentiles_s"]["p50"] < chunked["ttft"]["percentiles_s"]["p50"]


def test_plots_are_drawn_into_a_folder(plan: Path, tmp_path: Path) -> None:
    result = sutler("simulate", plan, "--poisson", "--plots", tmp_path / "plots")
    assert result.exit_code == 0
    assert result.stderr == f"plots: {tmp_path / 'plots' / 'index.html'}\n"
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert names == {"index.html", "latencies.png", "load.png"}
    assert (tmp_path / "plots" / "load.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_plots_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DocumentError, match=r"sutler\[plots\]"):
        check_plots(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --trace FILE or --poisson"),
        (("--poisson", "--at-rated-load"), "goes with --trace"),
        (("--poisson", "--load-multiple", "0"), "must be above 0"),
        (("--poisson", "--duration-s", "-1"), "must be above 0"),
        (("--poisson", "--duration-s", "1e12"), "simulate at most"),
        (("--poisson", "--duration-s", "1e-6"), "simulate for longer"),
        (("--poisson", "--warm-up-s", "601"), "use less"),
        (("--trace", "nowhere.csv"), "cannot be read"),
        (("--trace", "nowhere.csv", "--duration-s", "3"), "go with --poisson"),
        (("--poisson", "--plots", "/proc/nowhere/plots"), "create /proc/nowhere first"),
    ],
)
def test_what_cannot_be_is_said(plan: Path, arguments: tuple[str, ...], words: str) -> None:
    result = sutler("simulate", plan, *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.replace("│", " ").split())


def test_a_plan_that_runs_nothing_is_told_apart(plan: Path, tmp_path: Path) -> None:
    document = {**json.loads(plan.read_text()), "status": "infeasible", "replicas": [], "routing": [], "rentals": []}
    (tmp_path / "none.json").write_text(json.dumps(document))
    result = sutler("simulate", tmp_path / "none.json", "--poisson")
    assert result.exit_code == 3
    assert "nothing to simulate" in result.stderr


def test_a_plan_of_an_older_version_is_refused_with_what_to_do(plan: Path, tmp_path: Path) -> None:
    document = json.loads(plan.read_text())
    del document["models"], document["gpus"]
    (tmp_path / "old.json").write_text(json.dumps(document))
    result = sutler("simulate", tmp_path / "old.json", "--poisson")
    assert result.exit_code == 2
    assert "plan the problem again" in result.stderr


def test_traces_of_several_models_are_told_apart(tmp_path: Path) -> None:
    document = estimated()
    [chat] = document["models"]
    document["models"] = [chat, {**chat, "name": "code"}]
    (tmp_path / "problem.json").write_text(json.dumps(document))
    path = tmp_path / "plan.json"
    path.write_text(sutler("plan", tmp_path / "problem.json", "--json").stdout)
    trace = a_trace(tmp_path)
    unnamed = sutler("simulate", path, "--trace", trace)
    assert unnamed.exit_code == 2
    assert "chat=FILE" in unnamed.stderr
    found = as_json(path, "--trace", f"chat={trace}", "--trace", f"code={trace}", "--warm-up-s", "0")
    assert [(m["model"], m["requests"]) for m in found["models"]] == [("chat", 200), ("code", 200)]
    twice = sutler("simulate", path, "--trace", f"chat={trace}", "--trace", f"chat={trace}")
    assert "has two files" in twice.stderr


def test_a_workload_keeps_limits_of_its_own(tmp_path: Path) -> None:
    """Long requests may wait for their first token; the others have the model's limit."""
    document = estimated()
    document["models"][0]["workloads"][1]["slo"] = {"ttft_p99_s": 20.0, "tpot_p90_s": None}
    (tmp_path / "problem.json").write_text(json.dumps(document))
    (tmp_path / "plan.json").write_text(sutler("plan", tmp_path / "problem.json", "--json").stdout)
    found = as_json(tmp_path / "plan.json", "--poisson")
    [chat] = found["models"]
    whose = [(limit["metric"], limit["workload"], limit["met"]) for limit in chat["limits"]]
    assert whose == [("ttft", None, True), ("tpot", None, True), ("ttft", "long", True)]
    by_workload = {one["workload"]: {limit["metric"] for limit in one["limits"]} for one in found["workloads"]}
    assert by_workload == {"short": {"ttft", "tpot"}, "long": {"ttft"}}
    shown = sutler("simulate", tmp_path / "plan.json", "--poisson").stdout
    assert any(line.split()[:3] == ["chat", "long", "time"] for line in shown.splitlines()), shown
    assert "every limit is met (3 limits)" in shown


def in_two_phases(document: dict[str, Any], *, exposed_s: float) -> dict[str, Any]:
    """The plan with its one replica split into one that prefills and one that decodes, on a GPU of the same kind."""
    [replica] = document["replicas"]
    [rental] = document["rentals"]
    [machine] = {stage["machine"] for stage in replica["stages"]}
    other = [{**stage, "machine": machine + 1} for stage in replica["stages"]]
    document["rentals"] = [{**rental, "count": 2}]
    document["replicas"] = [
        {**replica, "id": "chat-p", "role": "prefill", "max_batch": None},
        {**replica, "id": "chat-d", "role": "decode", "stages": other},
    ]
    document["evidence"] = [{**one, "replica": name} for one in document["evidence"] for name in ("chat-p", "chat-d")]
    for route in document["routing"]:
        route["fractions"] = {"chat-p": 1.0}
    document["kv_transfers"] = [
        {
            "model": "chat",
            "workload": route["workload"],
            "prefill": "chat-p",
            "decode": "chat-d",
            "fraction": 1.0,
            "kv_gb": 0.1,
            "exposed_s": exposed_s,
        }
        for route in document["routing"]
    ]
    return document


def test_a_plan_in_two_phases_is_replayed_from_prompt_to_last_token(plan: Path, tmp_path: Path) -> None:
    """The load counts once; the first token waits as much longer as the transfer takes."""
    means = []
    for exposed_s in (0.0, 0.05):
        path = tmp_path / "apart.json"
        path.write_text(json.dumps(in_two_phases(json.loads(plan.read_text()), exposed_s=exposed_s)))
        found = as_json(path, "--poisson", "--duration-s", "300", "--load-multiple", "0.3")
        [chat] = found["models"]
        assert chat["offered_rps"] == pytest.approx(1.2, rel=0.2)
        assert chat["unserved"] == 0
        assert [(one["replica"], one["role"]) for one in found["replicas"]] == [
            ("chat-p", "prefill"),
            ("chat-d", "decode"),
        ]
        assert found["replicas"][0]["requests"] == found["replicas"][1]["requests"] == chat["requests"]
        means.append((chat["ttft"]["mean_s"], chat["tpot"]["mean_s"]))
    assert means[1][0] - means[0][0] == pytest.approx(0.05, abs=0.01)
    assert means[1][1] == pytest.approx(means[0][1], rel=0.1)


def test_the_table_of_replicas_names_their_roles(plan: Path, tmp_path: Path) -> None:
    path = tmp_path / "apart.json"
    path.write_text(json.dumps(in_two_phases(json.loads(plan.read_text()), exposed_s=0.01)))
    result = sutler("simulate", path, "--poisson", "--duration-s", "120")
    assert result.exit_code == 0, result.output
    assert any(line.split()[:2] == ["chat-p", "prefill"] for line in result.stdout.splitlines())
    assert any(line.split()[:2] == ["chat-d", "decode"] for line in result.stdout.splitlines())


def as_started_now(document: dict[str, Any]) -> dict[str, Any]:
    """The plan with engines that take either phase."""
    for replica in document["replicas"]:
        args = either_phase(replica["role"], "vllm", {**replica["engine_args"], "kv_transfer_config": "{}"})
        replica["engine_args"] = dict(args)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("roles", ["mixed_pool", "opportunistic"])
def test_replicas_of_one_phase_serve_whole_requests_where_that_is_asked_for(
    plan: Path, tmp_path: Path, roles: str
) -> None:
    """At so many times the load one replica cannot write all answers."""
    path = tmp_path / "apart.json"
    path.write_text(json.dumps(as_started_now(in_two_phases(json.loads(plan.read_text()), exposed_s=0.01))))
    load = ("--poisson", "--duration-s", "120", "--load-multiple", "12")
    fixed, bent = as_json(path, *load), as_json(path, *load, "--roles", roles)
    assert (fixed["roles"], fixed["whole_requests"]) == ("fixed", 0)
    assert bent["roles"] == roles
    assert 0 < bent["whole_requests"] < bent["requests"]
    assert bent["models"][0]["unserved"] == 0
    shown = sutler("simulate", path, *load, "--roles", roles).stdout
    assert f"{bent['whole_requests']:,} of {bent['requests']:,} requests were served whole" in " ".join(shown.split())


def test_roles_that_cannot_bend_are_named(plan: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart.json"
    apart.write_text(json.dumps(in_two_phases(json.loads(plan.read_text()), exposed_s=0.01)))
    for path in (plan, apart):
        result = sutler("simulate", path, "--poisson", "--roles", "mixed_pool")
        assert result.exit_code == 2
        assert "roles: 'mixed_pool': needs prefill and decode replicas on vLLM" in " ".join(result.stderr.split())
