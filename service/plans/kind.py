"""What tells one kind of plan from another, beside its table: what is asked, who admits it, what comes of it.

Flow: PLAN (endpoints.py) and OFFLINE_PLAN (service/offline/service.py) are one PlanKind each; plan_requests.py takes
requests for them on, plan_endpoints.py makes their routes.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from sutler.service.documents.fields import Document
from sutler.service.plans.plan_table import PlanOrder, PlanTable, StoredPlan
from sutler.service.web.caller import Caller
from sutler.service.web.state import Services

D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=StoredPlan)


@dataclass(frozen=True, slots=True)
class PlanKind(Generic[D, R]):
    """One kind of plan. A `question` is what callers ask and the column `asked` keeps, a `plan` what they get.

    `check` raises what is wrong with a question; `order` makes what is stored of it, given who asks; `time_limit_s`
    is how long it may be searched for a plan.
    """

    table: PlanTable[R]
    question: type[D]
    asked: str
    plan: type[Document]
    check: Callable[[Services, D], Awaitable[None]]
    order: Callable[[D, Caller], PlanOrder]
    time_limit_s: Callable[[D], float]

    @property
    def noun(self) -> str:
        return self.table.record.noun

    @property
    def operation(self) -> str:
        """The noun in names of operations and in the audit log."""
        return self.noun.replace(" ", "_")

    def target(self, plan_id: UUID) -> str:
        """What the audit log calls a plan."""
        return f"{self.noun.replace(' ', '-')}/{plan_id}"
