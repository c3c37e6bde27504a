"""What goes over the internet because of a plan, and what that costs beside the rent.

Weights come once, when a machine starts; requests come and answers go as long as it serves. Both are stated beside
the rent and are no part of the objective: the proof is about the rent. Downloads count in what a change of fleet
costs (replanning/switching.py).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sutler.solver.market.pools import checkpoint_gb
from sutler.solver.plan import Plan, Rental, Replica
from sutler.solver.problem import Contract, Offer, Problem, ServedModel
from sutler.solver.units import BYTES_PER_GB, SECONDS_PER_HOUR

# English text has about four characters a token (platform.openai.com/tokenizer).
BYTES_PER_INPUT_TOKEN: Final = 4.0
# An answer that is streamed sends each token as an event of its own: a chat.completion.chunk of OpenAI's API with an
# id of 41 characters and a model's name of 32 is 245 bytes.
BYTES_PER_OUTPUT_TOKEN: Final = 245.0


@dataclass(frozen=True, slots=True)
class RentalTraffic:
    """Of all machines of a rental: USD per hour at the planned traffic, and once when they start.

    None where the offer states no price, or is held and no longer listed; what is held has started already.
    """

    traffic_usd_per_hour: float | None
    start_usd: float | None


def traffic_of(problem: Problem, plan: Plan) -> tuple[RentalTraffic, ...]:
    """What each rental of the plan pays for traffic."""
    offers = {(offer.provider, offer.offer_id, offer.contract): offer for offer in problem.offers}
    models = {model.name: model for model in problem.models}
    usd_per_hour: dict[int, float] = defaultdict(float)
    weights_gb: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
    for replica in plan.replicas:
        model = models[replica.model].at(replica.precision)
        first = replica.stages[0].rental
        usd_per_hour[first] += _usd_per_hour(replica, model, offers.get(_key(plan.rentals[first])))
        for stage in replica.stages:
            size = 0.0 if model.spec is None else checkpoint_gb(model.spec, model.precision)
            weights_gb[stage.rental, stage.machine][f"{model.name} {model.precision}"] = size
    return tuple(
        _of_rental(index, rental, offers.get(_key(rental)), usd_per_hour, weights_gb)
        for index, rental in enumerate(plan.rentals)
    )


def _key(rental: Rental) -> tuple[str, str, Contract]:
    return rental.provider, rental.offer_id, rental.contract


def _usd_per_hour(replica: Replica, model: ServedModel, offer: Offer | None) -> float:
    """Requests come to whoever reads the prompts, answers go from whoever writes them. No offer: 0."""
    if offer is None:
        return 0.0
    sizes = {workload.name: (workload.input_tokens, workload.output_tokens) for workload in model.workloads}
    into_gb, out_of_gb = 0.0, 0.0
    for rate in replica.throughput_rps:
        tokens_in, tokens_out = sizes[rate.workload]
        into_gb += rate.rps * tokens_in * BYTES_PER_INPUT_TOKEN / BYTES_PER_GB
        out_of_gb += rate.rps * tokens_out * BYTES_PER_OUTPUT_TOKEN / BYTES_PER_GB
    usd_per_s = into_gb * (offer.inet_down_usd_per_gb or 0.0) * (replica.role != "decode")
    usd_per_s += out_of_gb * (offer.inet_up_usd_per_gb or 0.0) * (replica.role != "prefill")
    return usd_per_s * SECONDS_PER_HOUR


def _of_rental(
    index: int,
    rental: Rental,
    offer: Offer | None,
    usd_per_hour: Mapping[int, float],
    weights_gb: Mapping[tuple[int, int], Mapping[str, float]],
) -> RentalTraffic:
    prices = (None, None) if offer is None else (offer.inet_down_usd_per_gb, offer.inet_up_usd_per_gb)
    gb = sum(sum(sizes.values()) for (of_rental, _), sizes in weights_gb.items() if of_rental == index)
    start_usd = None if prices[0] is None else 0.0 if rental.held else gb * prices[0]
    return RentalTraffic(None if None in prices else usd_per_hour.get(index, 0.0), start_usd)
