"""From what has happened to the plan that answers it, on the case of arXiv 2502.00722 for 30 $/h.

The market is a file of the paper's offers that loses those that the plan rents dearest, and a poll of it lands; or
the machines are held, and their loss is reported. A client that waits for the next plan tells when it is there.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from benchmarks.instances import TOKENS, TRACE_SHARES, one_site
from benchmarks.replanning_latency_service import Meter, Service, Tell, Told, checked, environment_on, started
from benchmarks.replanning_surge import BUDGET_USD_PER_HOUR

NAME: Final = "paper"
TRACE: Final = 2
SLUGS: Final = {
    "4090": "rtx-4090",
    "a40": "a40",
    "a6000": "rtx-a6000",
    "l40": "l40",
    "a100": "a100-sxm4-80gb",
    "h100": "h100-sxm",
}
"""The names of the paper's GPUs in the table that names of markets are read by, and so in the store."""
CALM_S: Final = (2.5, 4.5)
"""Pause before anything happens, drawn: longer than looks are kept apart, to any moment of the worker's second."""
Cause = Literal["gone", "lost"]


class Answered(TypedDict):
    """The seconds from the cause to just before the plan's commit, and until a waiting client has the plan.

    `solver_s` is the solver's own share; `changed`: machines started or stopped.
    """

    issued_s: float
    told_s: float
    solver_s: float
    changed: int


class Decisions(TypedDict):
    """`others_cores`: used meanwhile by whatever else runs on the machine."""

    offers: int
    gone: list[Answered]
    lost: list[Answered]
    others_cores: float


@dataclass(frozen=True, slots=True)
class MarketFile:
    """The snapshot that the service polls; what is taken from it comes back with the next that is."""

    path: Path

    def write(self, *, without: str | None = None) -> int:
        """The offers that are left."""
        offers = [offer for offer in paper_offers() if offer["offer_id"] != without]
        snapshot = {"schema": "sutler/market/v1", "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps({**snapshot, "offers": offers}), encoding="utf-8")
        written.rename(self.path)
        return len(offers)


def measured_decisions(folder: Path, *, times: int, tell: Tell) -> Decisions:
    """Each cause so often."""
    folder.mkdir()
    folder.chmod(0o755)
    market = MarketFile(folder / "market.json")
    offers = market.write()
    settings = environment_on(folder, SUTLER_PROVIDERS="file", SUTLER_FILE_PATH=str(market.path))
    with started(folder, settings) as service:
        deployment = {"name": NAME, "problem": paper_problem(), "policy": {"cooldown_s": 0, "carry_out_s": 0}}
        checked(service.running.post("/v1/deployments", deployment))
        service.plan(NAME)
        meter = Meter(service)
        causes: dict[Cause, Callable[[Service, MarketFile], Answered]] = {"gone": _gone, "lost": _lost}
        found: dict[Cause, list[Answered]] = {}
        for cause, answered in causes.items():
            found[cause] = []
            for number in range(times):
                found[cause].append(answered(service, market))
                tell(f"{cause} {number + 1} of {times}: a plan after {found[cause][-1]['told_s']:.2f} s")
        return Decisions(offers=offers, gone=found["gone"], lost=found["lost"], others_cores=meter.others_cores())


def paper_offers() -> list[dict[str, Any]]:
    """Rows of a market snapshot."""
    return [
        {
            "provider": offer.provider,
            "offer_id": offer.offer_id,
            "gpu": SLUGS[offer.gpu],
            "gpus": offer.gpus,
            "available": offer.available,
            "price_usd_per_hour": offer.price_usd_per_hour,
            "contract": offer.contract,
            "divisible": offer.divisible,
            "site": offer.site,
            "inter_machine_gb_per_s": offer.inter_machine_gb_per_s,
        }
        for offer in one_site(budget_usd_per_hour=BUDGET_USD_PER_HOUR).offers
    ]


def paper_problem() -> dict[str, Any]:
    """Makes the problem on the stored market, everything else as the service has it by default."""
    workloads = [
        {"name": f"w{number}", "input_tokens": inputs, "output_tokens": outputs, "rate_rps": share / 100}
        for number, ((inputs, outputs), share) in enumerate(zip(TOKENS, TRACE_SHARES[TRACE], strict=True), start=1)
    ]
    return {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": BUDGET_USD_PER_HOUR,
        "models": [{"name": "chat", "model": "llama-3-70b", "precision": "bf16", "workloads": workloads}],
        "market": {},
    }


def _gone(service: Service, market: MarketFile) -> Answered:
    """What is to be rented is not for rent any more, as a poll finds."""
    service.until_at_rest()
    before = service.plan(NAME)
    offer = dearest(before)
    with _waiting(service, before) as told:
        market.write(without=offer.partition("/")[2])
        report = service.land("file")
        return _answered(service, before, told, offer=offer, since_s=report.at.timestamp())


def _lost(service: Service, market: MarketFile) -> Answered:
    """What is rented is lost: it is not for rent any more either, which moves nothing until the loss is reported."""
    path = f"/v1/deployments/{NAME}/holdings"
    before = service.plan(NAME)
    offer = dearest(before)
    held = checked(service.running.post(f"{path}/ack")).json()["holdings"]
    service.until_at_rest()
    market.write(without=offer.partition("/")[2])
    service.land("file")
    service.until_at_rest()
    left = [holding for holding in held if holding["offer_id"] != offer]
    with _waiting(service, before) as told:
        since_s = time.time()
        checked(service.running.ask("PUT", path, json={"holdings": left}))
        return _answered(service, before, told, offer=offer, since_s=since_s)


def dearest(plan: dict[str, Any]) -> str:
    """The offer whose GPUs cost most of those that the plan rents; of equal ones the first by name."""
    rentals = plan["rentals"]
    return str(min(rentals, key=lambda r: (-r["price_usd_per_hour"] / r["gpus"], r["offer_id"]))["offer_id"])


@contextmanager
def _waiting(service: Service, before: dict[str, Any]) -> Iterator[Future[Told | None]]:
    """A client that waits for the next plan, for a while already."""
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(service.told, NAME, after=before["revision"])
        time.sleep(random.uniform(*CALM_S))
        if told.done():
            raise RuntimeError(f"a plan came before anything had happened: {told.result()}")
        yield told


def _answered(
    service: Service, before: dict[str, Any], told: Future[Told | None], *, offer: str, since_s: float
) -> Answered:
    """Raises RuntimeError where no plan comes, or one that still rents what is not there."""
    news = told.result()
    if news is None:
        found = service.rows(
            "SELECT d.revision, w.state, w.memory, w.held_before, w.holdings "
            "FROM watch w JOIN deployment d ON d.id = w.deployment_id"
        )
        raise RuntimeError(f"no plan came without {offer}: {found}")
    plan = news.plan
    machines, earlier = machines_of(plan), machines_of(before)
    if any(key[0] == offer for key in machines):
        raise RuntimeError(f"revision {plan['revision']} rents {offer}, which is not for rent")
    keys = machines.keys() | earlier.keys()
    return Answered(
        issued_s=datetime.fromisoformat(plan["created_at"]).timestamp() - since_s,
        told_s=news.at_s - since_s,
        solver_s=plan["solver"]["seconds"],
        changed=sum(abs(machines.get(key, 0) - earlier.get(key, 0)) for key in keys),
    )


def machines_of(plan: dict[str, Any]) -> dict[tuple[str, int], int]:
    """How many of each offer and size."""
    found: dict[tuple[str, int], int] = {}
    for rental in plan["rentals"]:
        key = (rental["offer_id"], rental["gpus"])
        found[key] = found.get(key, 0) + rental["count"]
    return found
