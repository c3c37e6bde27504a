"""Tables at 80, 100 and 140 columns: they fit, no id is split, and they look as the files beside this say.

`python -m tests.service.cli.test_widths` draws them anew; read the diff.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

import sutler
from sutler.service.cli import catalog, estimate
from sutler.service.cli.views.comparison import comparison_view
from sutler.service.cli.views.diff import diff_view
from sutler.service.cli.views.layout import table_of
from sutler.service.cli.views.market import offers_view
from sutler.service.cli.views.offline.plan import plan_view as offline_plan_view
from sutler.service.cli.views.plan import plan_view
from sutler.service.cli.views.simulation import simulation_view
from sutler.service.cli.views.traffic import feeds_view
from sutler.service.cli.views.what_if import what_if_view
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.traffic.feed_schema import FeedsResource
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.library.problems import problem_document, translated
from sutler.service.studies.answering import comparison
from sutler.service.studies.questions import Comparison
from sutler.service.translation.catalogue import gpu_entries
from sutler.service.translation.stored_market import StoredMarket
from tests.service.cli import table_samples
from tests.service.cli.test_deployments_tables import a_feed
from tests.service.deployments.diff.fleets import one_replica_each
from tests.service.offline.plan_builders import planned_small

Parts = Iterable[RenderableType]

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
GOLDEN: Final = Path(__file__).parent / "tables"
WIDTHS: Final = (80, 100, 140)
PATIENT: Final = {"solver.time_limit_s": 600}  # it ends by its nodes, however busy the machine is
# What no two runs or processors share: seconds that were taken, ages, the last digits of a proven gap.
UNSTEADY: Final = re.compile(
    r"\d[\d,]* schedules tried|in \d[\d.,]* s\b|Solved in [\d.]+ s|(?<=\s)0\.0\d+ %"
    r"|\(\d[\d,]* (?:s|min|h|days?) old\)"
)


@cache
def plan_of(name: str) -> sutler.PlanDocument:
    return sutler.plan(EXAMPLES / name, changes=PATIENT)


def compared() -> Parts:
    document = problem_document(EXAMPLES / "disaggregated.yaml", {**PATIENT, "solver.alternatives": False})
    asked = Comparison(translated(document, EXAMPLES), ("aggregated-only", "disaggregated-only"))
    found = comparison(asked)
    strategies = tuple(one.model_copy(update={"seconds": 1.0}) for one in found.strategies)
    return comparison_view(found.model_copy(update={"strategies": strategies}))


def offers() -> Parts:
    data = read_document(EXAMPLES / "vast_like_market.json")
    market = validate(MarketDocument, data)
    return offers_view(StoredMarket(market.taken_at, market.offers[:40], {}), most=20)


def estimated() -> Parts:
    found = sutler.estimate(
        "llama-3.1-70b", "h200-sxm", precision="fp8", input_tokens=1024, output_tokens=512, tensor_parallel=4
    )
    return [estimate.view(found)]


def changed() -> Parts:
    return diff_view(difference(one_replica_each(2), one_replica_each(3, revision=2), reason="more load", held=()))


VIEWS: Final[Mapping[str, Callable[[], Parts]]] = {
    "plan": lambda: plan_view(plan_of("min_cost_slo.yaml")),
    "plan_with_roles": lambda: plan_view(plan_of("disaggregated.yaml")),
    "what_if": lambda: what_if_view(
        sutler.what_if(
            EXAMPLES / "min_cost_slo.yaml", [{"objective.headroom_fraction": 0.5}, {"models.*.precision": "fp8"}]
        )
    ),
    "comparison": compared,
    "simulation": lambda: simulation_view(sutler.simulate(plan_of("min_cost_slo.yaml"), duration_s=60)),
    "estimate": estimated,
    "gpus": lambda: [catalog.gpus_table("paper_table1")],
    "gpu": lambda: [catalog.facts_table(gpu_entries("h100-sxm", "default")[0])],
    "models": lambda: [catalog.models_table()],
    "offers": offers,
    "diff": changed,
    "feeds": lambda: feeds_view(FeedsResource(deployment="chat", feeds=[a_feed()])),
    "polls": table_samples.polls,
    "providers": table_samples.providers,
    "history": table_samples.history,
    "outlook": table_samples.outlook,
    "deployments": table_samples.deployments,
    "decisions": table_samples.decisions,
    "holdings": table_samples.holdings,
    "traffic": table_samples.traffic,
    "rates": table_samples.rates,
    "offline_plan": lambda: offline_plan_view(planned_small()),
}

SEVERAL_PLANS: Final = ("what_if", "comparison")


@cache
def parts_of(name: str) -> tuple[RenderableType, ...]:
    return tuple(VIEWS[name]())


def drawn(parts: Parts, width: int) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def steady(text: str) -> str:
    return UNSTEADY.sub(lambda found: re.sub(r"\d", "#", re.sub(r"[\d.,]*\d", "#", found[0])), text)


def golden(name: str, width: int) -> Path:
    return GOLDEN / f"{name}-{width}.txt"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SEVERAL_PLANS else name for name in VIEWS]
)
def test_every_table_fits_and_looks_as_it_did(name: str, width: int) -> None:
    text = drawn(parts_of(name), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert steady(text) == golden(name, width).read_text("utf-8"), "python -m tests.service.cli.test_widths, and read"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_id_is_split_however_narrow_it_is(width: int) -> None:
    table = table_of(texts=("offer", "where"), numbers=("$/h", "GPUs"))
    ids = ("vastai-1234567", "europe-west4")
    table.add_row(*ids, "12.345", "8")
    text = drawn([table], width)
    assert all(one in text for one in (*ids, "12.345"))
    assert max(map(cell_len, text.splitlines())) <= max(width, 26)


def test_a_row_that_fits_nowhere_is_lines_of_its_own() -> None:
    table = table_of(texts=("offer", "where"), numbers=("$/h",))
    table.add_row("a" * 15, "b" * 15, "1.0")
    table.add_row("c" * 15, "", "2.0")
    lines = [line.split() for line in drawn([table], 24).splitlines()]
    assert lines == [
        ["offer", "a" * 15],
        ["where", "b" * 15],
        ["$/h", "1.0"],
        [],
        ["offer", "c" * 15],
        ["$/h", "2.0"],
    ]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or VIEWS:
        for columns in WIDTHS:
            golden(chosen, columns).write_text(steady(drawn(parts_of(chosen), columns)), encoding="utf-8")
