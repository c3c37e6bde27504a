"""`sutler compare` in process, with the strategies that there are."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.cli.compare import exit_of
from sutler.service.json_schemas import json_schema
from tests.service.builders import a_problem, a_row, a_snapshot, an_offer
from tests.service.comparing.builders import a_comparison, a_strategy, ran

EXAMPLES = Path(__file__).parents[3] / "examples"


def sutler(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def two_types(**others: Any) -> dict[str, Any]:
    """Within 20 $/h an h100 replica (3 req/s, 9 $/h) and an a40 replica (1 req/s, 4 $/h) go together: 4 req/s."""
    offers = (an_offer(), an_offer(offer_id="456", gpu="a40", price_usd_per_hour=4.0))
    a40 = a_row(stages=[{"gpu": "a40", "tensor_parallel": 4}], rps={"long-short": 1.0})
    return a_problem(
        **{"throughput": {"only": True, "table": [a_row(), a40]}, "market": {"offers": a_snapshot(*offers)}, **others}
    )


def written(folder: Path, **others: Any) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps(two_types(**others)))
    return path


def compared(*arguments: str | Path) -> dict[str, Any]:
    result = sutler("compare", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(document, json_schema("comparison"))
    return document


def test_sutler_stands_beside_its_rivals(tmp_path: Path) -> None:
    result = sutler("compare", written(tmp_path), "--only", "homogeneous")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "sutler serves 4.000 requests/s for 13.00 $/h: 33 % more than the best rival on the same supply,\n"
        "homogeneous/h100-sxm (3.000 req/s)\n"
    )
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


def test_json_is_one_document_and_all_that_goes_to_stdout(tmp_path: Path) -> None:
    document = compared(written(tmp_path))
    sutlers, *others = document["strategies"]
    assert (sutlers["name"], sutlers["ratio_to_sutler"]) == ("sutler", 1.0)
    assert sutlers["gpus"] == {"h100-sxm": 4, "a40": 4}
    rivals = {one["name"]: one for one in others}
    assert rivals["homogeneous/a40"]["ratio_to_sutler"] == pytest.approx(4.0)
    assert rivals["homogeneous/a40"]["own_market"] is False
    assert rivals["homogeneous-unlimited/h100-sxm"]["own_market"] is True
    assert {one["status"] for one in document["strategies"]} <= {
        "optimal",
        "feasible",
        "infeasible",
        "not_applicable",
    }


def test_no_strategy_on_the_same_supply_beats_a_proven_plan(tmp_path: Path) -> None:
    """But for prefill and decode apart, which sutler was not allowed here."""
    document = compared(EXAMPLES / "appendix_c.yaml")
    assert document["strategies"][0]["objective"]["value"] == pytest.approx((80 + 20 / 1.2) / 3.4, rel=1e-3)
    ratios = [
        one["ratio_to_sutler"]
        for one in document["strategies"]
        if not one["own_market"] and not one["allowed_beyond"] and one["ratio_to_sutler"] is not None
    ]
    assert len(ratios) > 3
    assert min(ratios) >= 0.999


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--only", "homogeneous/a40"], ["homogeneous/a40"]),
        (["--strategy", "homogeneous/a*", "--only", "*/h100-sxm"], ["a40", "h100-sxm", "unlimited/h100-sxm"]),
        (["--only", "homogeneous/a40, homogeneous/h100-sxm"], ["homogeneous/a40", "homogeneous/h100-sxm"]),
        (["--only", "sutler"], []),
    ],
)
def test_only_those_named_are_compared(tmp_path: Path, options: list[str], names: list[str]) -> None:
    found = [one["name"] for one in compared(written(tmp_path), *options)["strategies"]]
    assert found[0] == "sutler"
    assert len(found) == 1 + len(names)
    assert all(shown.endswith(name) for shown, name in zip(found[1:], names, strict=True))


@pytest.mark.parametrize("name", ["nonsense", "[", "homogeneous/a4", "\x1b[31m"])
def test_an_unknown_strategy_is_bad_input_and_the_known_ones_are_named(tmp_path: Path, name: str) -> None:
    result = sutler("compare", written(tmp_path), "--only", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "homogeneous/h100-sxm" in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize("name", ["", " ", "sutler,", ","])
def test_an_empty_name_is_bad_input(tmp_path: Path, name: str) -> None:
    result = sutler("compare", written(tmp_path), "--only", name)
    assert result.exit_code == 2
    assert "--only: '': name a strategy, a family or a pattern" in result.stderr


def test_a_problem_is_read_from_standard_input() -> None:
    result = sutler("compare", "-", "--only", "sutler", "--json", stdin=json.dumps(two_types()))
    assert json.loads(result.stdout)["strategies"][0]["status"] == "optimal"


def test_out_writes_the_json_beside_the_table(tmp_path: Path) -> None:
    target = tmp_path / "comparison.json"
    result = sutler("compare", written(tmp_path), "--only", "sutler", "--out", target)
    assert result.exit_code == 0
    assert result.stdout.startswith("sutler serves 4.000 requests/s")
    assert json.loads(target.read_text())["schema"] == "sutler/comparison/v1"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_figure_is_drawn(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"bars.{suffix}"
    result = sutler("compare", written(tmp_path), "--plot", target)
    assert (result.exit_code, result.stderr) == (0, "")
    assert target.stat().st_size > 1000


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("", "is a folder"),
        ("nowhere/bars.png", "its folder does not exist"),
        ("bars.pdf", "name a file that ends in .png or .svg"),
        ("bars", "name a file that ends in .png or .svg"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_refused_at_once(tmp_path: Path, target: str, reason: str) -> None:
    result = sutler("compare", written(tmp_path), "--plot", tmp_path / target)
    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


def test_a_figure_that_fails_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> bytes:
        raise RuntimeError("no font")

    monkeypatch.setattr("sutler.service.comparing.figures.drawn", failing)
    out, plot = tmp_path / "comparison.json", tmp_path / "figure.svg"
    result = sutler("compare", written(tmp_path), "--only", "homogeneous", "--out", out, "--plot", plot)
    assert result.exit_code == 1
    assert json.loads(out.read_bytes())["schema"] == "sutler/comparison/v1"
    assert not plot.exists()


def test_out_refuses_at_once_what_it_cannot_write(tmp_path: Path) -> None:
    result = sutler("compare", written(tmp_path), "--out", tmp_path / "nowhere" / "x.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "its folder does not exist" in result.stderr


def test_a_sweep_goes_over_budgets(tmp_path: Path) -> None:
    document = compared(
        written(tmp_path), "--pareto", "--points", "2", "--from", "5", "--to", "14", "--only", "homogeneous/a40"
    )
    curves = {curve["name"]: curve["points"] for curve in document["frontier"]["curves"]}
    assert document["frontier"]["swept"] == "budget_usd_per_hour"
    assert [(p["at"], p["throughput_rps"], p["cost_usd_per_hour"]) for p in curves["sutler"]] == [
        (5.0, pytest.approx(1.0), pytest.approx(4.0)),
        (14.0, pytest.approx(4.0), pytest.approx(13.0)),
    ]
    assert [p["throughput_rps"] for p in curves["homogeneous/a40"]] == [pytest.approx(1.0)] * 2
    assert all(p["on_frontier"] for p in curves["sutler"])


@pytest.mark.parametrize("kind", ["min_cost", "min_power"])
def test_a_sweep_goes_over_loads_where_the_load_is_given(tmp_path: Path, kind: str) -> None:
    """1.1 and 3.6 req/s: the first needs one h100 replica, the second the a40 replica too."""
    path = written(tmp_path, objective={"kind": kind})
    options = ("--pareto", "--points", "2", "--from", "1.1", "--to", "3.6", "--only", "sutler")
    points = compared(path, *options)["frontier"]["curves"][0]["points"]
    assert [(p["at"], p["throughput_rps"]) for p in points] == [
        (1.1, pytest.approx(1.1)),
        (3.6, pytest.approx(3.6)),
    ]
    assert [p["cost_usd_per_hour"] for p in points] == [pytest.approx(9.0), pytest.approx(13.0)]


def test_a_sweep_is_shown_and_drawn(tmp_path: Path) -> None:
    target = tmp_path / "curves.svg"
    result = sutler(
        "compare", written(tmp_path), "--pareto", "--points", "3", "--only", "homogeneous", "--plot", target
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert "At other budgets (req/s, by $/h;" in result.stdout
    assert "throughput, requests/s" in target.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--pareto", "--points", "0"], "--points: 0: a sweep has 2 to 50 points"),
        (["--pareto", "--points", "1"], "--points: 1: a sweep has 2 to 50 points"),
        (["--pareto", "--points", "100000"], "a sweep has 2 to 50 points"),
        (["--pareto", "--from", "nan"], "--from: nan: must be a number from 0.001 to 10,000,000"),
        (["--pareto", "--to", "inf"], "--to: inf: must be a number from 0.001 to 10,000,000"),
        (["--pareto", "--to", "-1"], "--to: -1.0: must be a number from 0.001 to 10,000,000"),
        (["--pareto", "--from", "9", "--to", "3"], "give --from and --to in ascending order"),
        (["--pareto", "--from", "900"], "give --from and --to in ascending order"),
        (["--points", "3"], "--points: goes with --pareto"),
        (["--from", "3", "--to", "9"], "--from, --to: goes with --pareto"),
        (["--time-limit-s", "nan"], "solver.time_limit_s: nan: must be a finite number"),
        (["--time-limit-s", "0"], "solver.time_limit_s: 0.0: must be above 0"),
    ],
)
def test_a_wrong_option_is_bad_input(tmp_path: Path, options: list[str], words: str) -> None:
    result = sutler("compare", written(tmp_path), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("options", [[], ["--json"], ["--pareto", "--points", "2"]])
def test_an_infeasible_problem_exits_3_and_says_what_must_give(tmp_path: Path, options: list[str]) -> None:
    result = sutler("compare", written(tmp_path, budget_usd_per_hour=2), *options)
    assert (result.exit_code, result.stderr) == (3, "")
    if "--json" in options:
        sutlers = json.loads(result.stdout)["strategies"][0]
        assert (sutlers["status"], sutlers["conflicts"][0]["constraint"]) == ("infeasible", "budget")
    else:
        assert result.stdout.startswith("Infeasible: no plan meets every limit")
        assert "What has to give" in result.stdout


def test_a_limit_that_leaves_sutler_without_a_plan_exits_5() -> None:
    options = ("--time-limit-s", "0.000001", "--only", "sutler", "--pareto", "--points", "2")
    result = sutler("compare", EXAMPLES / "vast_like.yaml", *options)
    assert (result.exit_code, result.stderr) == (5, "")
    assert result.stdout.startswith("sutler found no plan before the time limit: raise it with --time-limit-s\n")


def test_no_market_data_exits_4(tmp_path: Path) -> None:
    market = {"offers": a_snapshot(), "filter": {"providers": ["nobody"]}}
    result = sutler("compare", written(tmp_path, market=market))
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("no market data:")


def test_a_plan_that_fails_verification_is_our_fault(capsys: pytest.CaptureFixture[str]) -> None:
    broken = replace(ran(a_strategy("broken"), 9.0), violations=("supply/vastai: 9 machines",))
    assert exit_of(a_comparison(broken)) == 1
    assert "broken: its plan does not stand, which is a defect of sutler: supply/vastai" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "- 1", "objectives: {}", "budget_usd_per_hour: .nan"])
def test_a_bad_problem_is_refused_as_by_plan(tmp_path: Path, content: str) -> None:
    path = tmp_path / "problem.yaml"
    path.write_text(content)
    ours, plans = sutler("compare", path), sutler("plan", path)
    assert (ours.exit_code, ours.stdout, ours.stderr) == (2, "", plans.stderr)
    assert plans.exit_code == 2
