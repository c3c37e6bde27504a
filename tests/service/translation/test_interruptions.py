"""How often machines are taken away, as problems say it and stores know it: who wins, and what nobody meant."""

from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver.outlook.interruptions import Rented, learnt
from sutler.solver.problem import Interruptions
from tests.service.builders import NOW, a_problem
from tests.service.deployments.replanning.builders import an_offer, seen_at

SPOT = an_offer("spot", provider="runpod", contract="interruptible")
SEEN = learnt([Rented("runpod", "interruptible", "h100-sxm", 1000.0, 100)], {"interruptible": [1] * 100})


def translated(
    *stated: dict[str, Any], objective: dict[str, Any] | None = None, seen: tuple[Any, ...] = ()
) -> Translation:
    market = {"filter": {"contracts": ["on_demand", "spot"]}, "interruptions": list(stated)}
    objective = {"kind": "min_cost", "count_interruptions": True, **(objective or {})}
    document = validate(ProblemDocument, {**a_problem(), "market": market, "objective": objective})
    store = seen_at((SPOT, an_offer("sure")), NOW, seen)
    return to_problem(document, folder=None, now=NOW, store=store)


def rate_of_spot(found: Translation) -> Interruptions:
    spot = next(offer for offer in found.problem.offers if offer.offer_id == "spot")
    rate = found.problem.interruptions_of(spot)
    assert rate is not None
    return rate


def test_what_is_stated_wins_the_narrowest_first_under_any_spelling_of_the_provider() -> None:
    everywhere = {"per_hour": 3.0}
    there: dict[str, Any] = {"per_hour": 2.0, "provider": "RunPod"}
    of_gpu = {**there, "per_hour": 1.0, "gpu": "h100-sxm"}
    assert rate_of_spot(translated(everywhere, there, of_gpu, seen=SEEN)).per_hour == 1.0
    assert rate_of_spot(translated(everywhere, there, seen=SEEN)).per_hour == 2.0
    assert rate_of_spot(translated(everywhere, seen=SEEN)) == Interruptions("interruptible", 3.0)


def test_what_was_seen_comes_next_and_where_nothing_was_it_is_assumed() -> None:
    seen, assumed = rate_of_spot(translated(seen=SEEN)), rate_of_spot(translated())
    assert (seen.basis, seen.losses) == ("seen", 100)
    assert seen.machine_hours == pytest.approx(1000.0)
    assert seen.per_hour == pytest.approx(0.1, rel=0.1)
    assert assumed.basis == "assumed"
    assert assumed.per_hour == pytest.approx(1 / 24)


def test_a_restart_takes_the_start_and_the_download_of_the_weights_unless_it_is_said() -> None:
    largest_gb = 141.1
    assert translated().problem.objective.restart_s == pytest.approx(90 + largest_gb / 0.25, rel=0.01)
    assert translated(objective={"restart_s": 0}).problem.objective.restart_s == 0.0


def test_an_entry_that_is_of_none_of_the_offers_is_told() -> None:
    notes = translated({"per_hour": 1.0, "provider": "runpot"}, {"per_hour": 1.0}).notes
    assert [note for note in notes if "interruptions" in note] == [
        "market.interruptions[0] is of none of the offers."
    ]


def test_where_they_do_not_count_that_is_said() -> None:
    found = translated({"per_hour": 1.0}, objective={"count_interruptions": False}, seen=SEEN)
    assert found.problem.interruptions == ()
    assert [note for note in found.notes if "interruptions" in note] == [
        "market.interruptions: counts only with objective.count_interruptions, and is left out."
    ]


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ([{"per_hour": -1}], "market.interruptions[0].per_hour"),
        ([{"per_hour": 1}, {"per_hour": 2, "contract": "spot"}], "market.interruptions[1]"),
        ([{}], "market.interruptions[0].per_hour"),
        ([{"per_hour": 1, "region": "us"}], "market.interruptions[0].region"),
    ],
)
def test_mistakes_name_the_entry(stated: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(DocumentError) as caught:
        translated(*stated)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_a_market_that_was_read_has_none_unless_it_says_so() -> None:
    assert StoredMarket(NOW, (), {}).interruptions == ()
