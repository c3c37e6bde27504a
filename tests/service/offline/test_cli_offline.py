"""`sutler offline`: statuses, what goes to which stream, what files are written, what hostile input is told."""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.cli.terminal.output import show
from sutler.service.cli.views.offline.outcome import adjustment_view
from sutler.service.cli.views.offline.plan import plan_view
from sutler.service.documents.fields import document_json
from sutler.service.documents.validation import validate
from sutler.service.json_schemas import json_schema
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import market_of
from sutler.service.offline.plan_schema import (
    MachineChoice,
    OfflineAdjustment,
    OfflinePlanDocument,
    OfflineRental,
    SeenSpeed,
)
from sutler.service.offline.progress_schema import ProgressDocument
from tests.service.builders import NOW, a_snapshot, an_offer
from tests.service.offline.builders import an_asker
from tests.service.offline.plan_builders import a_small_application, planned_small

STRATEGIES: Final = ["sutler", "greedy", "max_heuristic", "min_heuristic"]
STRANGER: Final = {"model": "x", "data_parallel": 1, "tensor_parallel": 1}


def sutler(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["offline", *(str(argument) for argument in arguments)], input=stdin)


def written(folder: Path, **others: Any) -> Path:
    path = folder / "application.json"
    path.write_text(json.dumps(a_small_application(**others)))
    return path


def a_plan_file(folder: Path, **changes: Any) -> Path:
    """A plan as written, with top-level keys replaced."""
    path = folder / "plan.json"
    path.write_text(json.dumps({**json.loads(document_json(planned_small())), **changes}))
    return path


def progress_file(folder: Path, **others: Any) -> Path:
    given = {"at_s": 20, "models": [{"model": "one", "finished_requests": 4}], "replicas": None}
    path = folder / "progress.yaml"
    path.write_text(yaml.safe_dump({**given, **others}))
    return path


def test_a_plan_for_people_has_everything_below_one_hundred_columns(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("All requests done in ")
    for part in ("No schedule is faster than", "GPU 0 ┌ ░", " A  one    B  two", "Stages", "Models", "1 × TP"):
        assert part in result.stdout
    assert "other lengths give other times" in result.stdout
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100


@pytest.mark.slow
def test_json_is_all_that_goes_to_stdout(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    jsonschema.validate(document, json_schema("offline-plan"))
    assert (document["strategy"], document["revision"], document["adjustment"]) == ("sutler", 1, None)
    assert [model["requests"] for model in document["models"]] == [10, 20]


@pytest.mark.slow
def test_the_same_application_gives_the_same_plan(tmp_path: Path) -> None:
    first, second = (json.loads(sutler("plan", written(tmp_path), "--json").stdout) for _ in range(2))
    assert first["stages"] == second["stages"]
    assert first["id"] != second["id"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_any_strategy_can_plan(tmp_path: Path, strategy: str) -> None:
    result = sutler("plan", written(tmp_path), "--strategy", strategy, "--json")
    assert json.loads(result.stdout)["strategy"] == strategy


def test_an_application_is_read_from_standard_input() -> None:
    result = sutler("plan", "-", "--json", stdin=json.dumps(a_small_application()))
    assert json.loads(result.stdout)["application"]["name"] == "small"


@pytest.mark.slow
def test_out_and_plot_write_files_beside_the_table(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path), "--out", tmp_path / "p.json", "--plot", tmp_path / "p.html")
    assert result.exit_code == 0
    assert json.loads((tmp_path / "p.json").read_text())["schema"] == "sutler/offline-plan/v1"
    page = (tmp_path / "p.html").read_text()
    assert "<h1>small</h1>" in page
    assert "All requests done in" in page
    result = sutler("plan", written(tmp_path), "--plot", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_that_fits_nowhere_is_infeasible_and_exits_3(tmp_path: Path) -> None:
    hardware = {"gpu": "l4", "gpus": 1}
    path = written(tmp_path, hardware=hardware, models=[an_asker(model="llama-2-70b", precision="fp16")])
    result = sutler("plan", path)
    assert result.exit_code == 3
    assert result.stdout.startswith("Infeasible")
    assert "memory/one" in result.stdout
    assert "does not fit on 1 x l4" in result.stdout.replace("\n    ", " ")
    result = sutler("plan", path, "--json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    jsonschema.validate(document, json_schema("offline-plan"))
    assert document["conflicts"][0]["available"] == pytest.approx(24.0)
    result = sutler("plan", path, "--plot", tmp_path / "p.html")
    assert (result.exit_code, (tmp_path / "p.html").exists()) == (3, False)
    assert "has nothing to draw" in result.stderr


@pytest.mark.parametrize("command", ["plan", "compare", "simulate", "adjust"])
@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "does not exist"), ("a: [1", "is not valid YAML"), ("- 1", "must hold"), ("", "is empty")],
)
def test_files_that_cannot_be_read_are_named(
    tmp_path: Path, command: str, content: str | None, complaint: str
) -> None:
    path = tmp_path / "given.yaml"
    if content is not None:
        path.write_text(content)
    more: list[str | Path] = ["--progress", progress_file(tmp_path)] if command == "adjust" else []
    result = sutler(command, path, *more)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_wrong_fields_are_named(tmp_path: Path) -> None:
    result = sutler("plan", written(tmp_path, hardware=None, surprise=1))
    assert result.exit_code == 2
    assert "hardware" in result.stderr
    assert "surprise" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--plot", "plan.gif", "ends in .png or .html"),
        ("--plot", "nowhere/plan.png", "its folder does not exist"),
        ("--out", "nowhere/plan.json", "its folder does not exist"),
    ],
)
def test_targets_that_cannot_be_written_are_refused_at_once(
    tmp_path: Path, option: str, value: str, complaint: str
) -> None:
    result = sutler("plan", written(tmp_path), option, tmp_path / value)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"schema": "sutler/plan/v1"}, "is a plan, which is not what is wanted here"),
        ({"makespan_s": "long"}, "makespan_s"),
        ({"models": []}, "must be those of its application"),
        (
            {"schedule": [{"models": [{"model": "x", "data_parallel": 1, "tensor_parallel": 1}], "until": None}]},
            "'x'",
        ),
    ],
)
def test_a_file_that_is_no_plan_for_this_is_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    result = sutler("simulate", a_plan_file(tmp_path, **changes))
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_simulating_with_the_same_lengths_comes_to_what_was_planned(tmp_path: Path) -> None:
    result = sutler("simulate", a_plan_file(tmp_path), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    jsonschema.validate(found, json_schema("offline-simulation"))
    assert found["makespan_s"] == found["planned_makespan_s"]
    assert all(stage["end_s"] == stage["planned_end_s"] for stage in found["times"])
    assert "as planned" in sutler("simulate", tmp_path / "plan.json").stdout


def test_a_slower_model_ends_later_and_a_faster_one_earlier(tmp_path: Path) -> None:
    path = a_plan_file(tmp_path)
    slow, fast = (
        json.loads(sutler("simulate", path, "--slower", f"two={factor}", "--json").stdout) for factor in (3, 0.3)
    )
    one, two = slow["models"]
    assert (one["slowdown"], two["slowdown"]) == (1.0, 3.0)
    assert two["finish_s"] > two["planned_finish_s"] > fast["models"][1]["finish_s"]
    result = sutler("simulate", path, "--slower", "two=3")
    assert "two takes 3 times as long" in result.stdout
    assert "more" in result.stdout.splitlines()[0]


@pytest.mark.slow
def test_another_seed_draws_other_lengths(tmp_path: Path) -> None:
    drawn = {"uniform": {"low": 10, "high": 400}}
    path = tmp_path / "drawn.json"
    path.write_text(
        document_json(planned_small(models=[an_asker(output_tokens=drawn), an_asker("two", output_tokens=drawn)]))
    )
    tokens = {
        seed: json.loads(sutler("simulate", path, "--seed", seed, "--json").stdout)["models"][0]["output_tokens"]
        for seed in ("0", "1")
    }
    assert tokens["0"] != tokens["1"]
    assert "seed 1 in place of 0" in sutler("simulate", path, "--seed", "1").stdout


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("three=1.3", "is no model of this plan: use one, two"),
        ("one", "must be MODEL=FACTOR"),
        ("one=0", "must be MODEL=FACTOR"),
        ("one=nan", "must be MODEL=FACTOR"),
        ("one=fast", "must be MODEL=FACTOR"),
        ("=2", "is no model of this plan"),
    ],
)
def test_a_factor_that_means_nothing_is_refused(tmp_path: Path, given: str, complaint: str) -> None:
    result = sutler("simulate", a_plan_file(tmp_path), "--slower", given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_a_factor_that_stands_twice_is_refused(tmp_path: Path) -> None:
    result = sutler("simulate", a_plan_file(tmp_path), "--slower", "one=2", "--slower", "one=3")
    assert result.exit_code == 2
    assert "has two factors" in result.stderr


def test_a_plan_without_stages_cannot_be_simulated(tmp_path: Path) -> None:
    result = sutler("simulate", a_plan_file(tmp_path, stages=[]))
    assert result.exit_code == 2
    assert "runs nothing" in result.stderr


@pytest.mark.slow
def test_a_comparison_has_all_strategies_and_their_charts(tmp_path: Path) -> None:
    result = sutler("compare", written(tmp_path), "--seeds", "2", "--plot", tmp_path / "all.html")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("sutler is done in ")
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    assert "stages   loads   search s\n" in result.stdout
    assert result.stdout.count("GPU 0 ┌") == len(STRATEGIES)
    assert "The same schedules with other lengths" in result.stdout
    assert (tmp_path / "all.html").read_text().count("<h2>") == len(STRATEGIES)


@pytest.mark.slow
def test_a_comparison_as_json_adds_up(tmp_path: Path) -> None:
    found = json.loads(sutler("compare", written(tmp_path), "--seeds", "2", "--json").stdout)
    jsonschema.validate(found, json_schema("offline-comparison"))
    assert [one["strategy"] for one in found["strategies"]] == STRATEGIES
    best = found["strategies"][0]["makespan_s"]
    for one in found["strategies"]:
        assert one["ratio_to_sutler"] == pytest.approx(one["makespan_s"] / best)
        assert sum(one["shares"].values()) == pytest.approx(1.0)
        assert one["over_seeds"]["seeds"] == [1, 2]
        assert len(one["over_seeds"]["makespan_s"]) == 2
        assert one["makespan_s"] >= found["lower_bound"]["seconds"]
    without = json.loads(sutler("compare", written(tmp_path), "--json").stdout)
    assert without["strategies"][0]["over_seeds"] is None


@pytest.mark.parametrize(
    ("others", "complaint"),
    [
        ({"models": [{"model": "three", "finished_requests": 1}]}, "models[0].model: 'three'"),
        ({"models": [{"model": "one", "finished_requests": 11}]}, "is more than the 10 requests that one has"),
        ({"models": [{"model": "one", "finished_requests": 1}] * 2}, "stands there twice"),
        ({"models": []}, "models"),
        ({"at_s": -1}, "at_s"),
        ({"replicas": [{"model": "one", "number": 0, "gpus": [{"host": 0, "gpu": 9}], "ready_s": 0}]}, "GPU 9"),
        ({"replicas": [{"model": "x", "number": 0, "gpus": [{"host": 0, "gpu": 0}], "ready_s": 0}]}, "'x'"),
        ({"replicas": [{"model": "one", "number": 0, "gpus": [{"host": 0, "gpu": 0}] * 2}]}, "runs another replica"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_progress_that_does_not_go_with_the_plan_is_refused(
    tmp_path: Path, others: dict[str, Any], complaint: str
) -> None:
    result = sutler("adjust", a_plan_file(tmp_path), "--progress", progress_file(tmp_path, **others))
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def an_adjusted_plan(before: OfflinePlanDocument) -> OfflinePlanDocument:
    progress = validate(ProgressDocument, {"at_s": 20, "models": [{"model": "one", "finished_requests": 4}]})
    adjustment = OfflineAdjustment(
        of=before.id,
        at_s=20.0,
        progress=progress,
        speeds=(SeenSpeed(model="one", slowdown=1.3), SeenSpeed(model="two", slowdown=1.0)),
        unadjusted_makespan_s=2 * (before.makespan_s or 0.0),
    )
    return before.model_copy(update={"adjustment": adjustment, "revision": 2})


def test_an_adjustment_says_what_it_saves_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    before = planned_small()
    show(*adjustment_view(before, an_adjusted_plan(before)))
    text = capsys.readouterr().out
    assert text.startswith("Adjusting saves ")
    assert "1.30 ×" in text
    assert "slower" in text
    assert "as planned" in text
    assert "revision 2" in text


def test_an_adjustment_without_speeds_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    before = planned_small()
    made = an_adjusted_plan(before)
    assert made.adjustment is not None
    unseen = made.adjustment.model_copy(update={"speeds": ()})
    show(*adjustment_view(before, made.model_copy(update={"adjustment": unseen})))
    text = capsys.readouterr().out
    assert "models are taken to be as fast as planned" in text
    assert "Speeds seen" not in text


@pytest.mark.parametrize("command", [[], ["plan"], ["simulate"], ["compare"], ["adjust"]])
def test_help_says_what_each_command_takes(command: list[str]) -> None:
    result = sutler(*command, "--help")
    assert result.exit_code == 0
    assert "Usage: sutler offline" in result.stdout.replace("root", "sutler")


def test_a_rented_plan_shows_the_bill_and_the_front(capsys: pytest.CaptureFixture[str]) -> None:
    rental = OfflineRental(
        offer_id="a-1",
        provider="acme",
        site=None,
        gpu="a100-sxm4-80gb",
        gpus=4,
        count=2,
        price_usd_per_hour=6.0,
        contract="on_demand",
        storage_gb=0.0,
        storage_usd_per_hour=0.0,
        hosts=(0, 1),
        billed_s=600.0,
        usd=2.0,
    )
    choices = tuple(
        MachineChoice(machines=f"{n} × (4 × a100)", gpu="a100", gpus=4 * n, makespan_s=40 / n, cost_usd=usd)
        for n, usd in ((1, 1.5), (2, 2.0))
    )
    plan = planned_small().model_copy(update={"rentals": (rental,), "frontier": choices, "cost_usd": 2.0})
    show(*plan_view(plan))
    text = capsys.readouterr().out
    assert " after the order for 2.000 USD" in text.splitlines()[0]
    assert text.index("\nRent\n") < text.index("acme") < text.index("\nStages\n") < text.index("Dollars against time")
    marked = [line for line in text.splitlines() if line.endswith(" *")]
    assert len(marked) == 1
    assert "2 × (4 × a100)" in marked[0]


def a_rented_application(**others: Any) -> dict[str, Any]:
    return a_small_application(hardware=None, market={"offers": a_snapshot(an_offer(**others))})


def test_what_is_for_rent_comes_with_the_figures_of_its_gpus() -> None:
    document = validate(ApplicationDocument, a_rented_application())
    market = market_of(document, folder=None, now=NOW)
    assert market is not None
    assert [offer.offer_id for offer in market.offers] == ["123"]
    assert market.gpus["h100-sxm"].memory_gb == 80
    assert market_of(validate(ApplicationDocument, a_small_application()), folder=None, now=NOW) is None


def test_a_gpu_that_nobody_knows_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rented.json"
    path.write_text(json.dumps(a_rented_application(gpu="h9000")))
    result = sutler("plan", path)
    assert result.exit_code == 2
    assert "h9000" in result.stderr


def test_a_market_without_offers_exits_4(tmp_path: Path) -> None:
    path = tmp_path / "rented.json"
    path.write_text(json.dumps(a_rented_application(available=0)))
    assert sutler("plan", path).exit_code == 4


def test_other_strategies_do_not_rent(tmp_path: Path) -> None:
    path = tmp_path / "rented.json"
    path.write_text(json.dumps(a_rented_application()))
    result = sutler("plan", path, "--strategy", "greedy")
    assert result.exit_code == 2
    assert "plans on GPUs at hand" in result.stderr
