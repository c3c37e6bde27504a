"""The first lines of a plan: what it achieves, how that is proven, what it costs, on which market it rests."""

from typing import Final

from rich.text import Text

from sutler.service.cli.views.layout import headed
from sutler.service.documents.plan import PlanDocument
from sutler.service.wording.plan_words import achievement, market_words, money, optimum, proof, solve

_COLOURS: Final = {
    "optimal": "bold green",
    "feasible": "bold yellow",
    "infeasible": "bold red",
    "unknown": "bold red",
}


def headline(plan: PlanDocument) -> Text:
    """A few lines of text; the first says what the plan achieves."""
    others = (proof(plan), optimum(plan), money(plan), solve(plan), market_words(plan.market))
    return headed(achievement(plan), *others, style=_COLOURS[plan.status])
