"""What the market's offers have in common decides what a replica can count on."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.market.pools import Pool, checkpoint_gb, disk_needed_gb, group_offers
from sutler.solver.problem import Limits, Offer, Problem
from tests.builders import a_gpu, a_model, a_problem, an_offer, random_estimated_problem
from tests.looped import for_each
from tests.solver.throughput.builders import a_dense_spec

law = settings(derandomize=True, max_examples=60, database=None)

# 40 GB of weights at two bytes a parameter, so that 44 GB of disk are needed.
SPEC = a_dense_spec(total_params=20e9, active_params=20e9)
NEEDED_GB = 44.0


def market(*offers: Offer, with_weights: bool = False, **others: Any) -> Problem:
    model = a_model(spec=SPEC) if with_weights else a_model()
    return a_problem(offers=offers, models=[model], gpus=[a_gpu("a", link_gb_per_s=300.0), a_gpu("b")], **others)


def pools_of(*offers: Offer, **others: Any) -> list[Pool]:
    """The pool of each offer."""
    pools, pool_of_offer = group_offers(market(*offers, **others))
    return [pools[index] for index in pool_of_offer]


def number_of_pools(*offers: Offer, **others: Any) -> int:
    return len(group_offers(market(*offers, **others))[0])


def test_offers_that_differ_in_price_size_provider_region_and_reliability_share_a_pool() -> None:
    offers = [
        an_offer("a", 2, price=1.0, provider="p", region="US", reliability_fraction=0.99),
        an_offer("a", 4, price=9.0, provider="q", region="DE", reliability_fraction=0.5, available=3),
    ]
    assert number_of_pools(*offers) == 1


def test_offers_without_a_network_form_one_pool_across_sites() -> None:
    offers = [an_offer("a", site=f"host-{number}", offer_id=str(number)) for number in range(500)]
    assert number_of_pools(*offers) == 1
    assert number_of_pools(*(replace(offer, inter_machine_gb_per_s=0.0) for offer in offers)) == 1


def test_a_network_sets_every_site_apart() -> None:
    def at(provider: str, site: str) -> Offer:
        return an_offer("a", provider=provider, site=site, inter_machine_gb_per_s=12.5)

    assert number_of_pools(at("p", "s1"), at("p", "s1")) == 1
    assert number_of_pools(at("p", "s1"), at("p", "s2")) == 2
    assert number_of_pools(at("p", "s1"), at("q", "s1")) == 2


def test_bandwidth_between_machines_needs_a_site_to_be_a_network() -> None:
    (pool,) = pools_of(an_offer("a", inter_machine_gb_per_s=50.0))
    assert (pool.network, pool.inter_gb_per_s) == (None, 0.0)


def test_a_network_below_the_slowest_step_is_none() -> None:
    """The slowest step is 0.1 GB/s; 0.05 rounds down to nothing."""
    (pool,) = pools_of(an_offer("a", site="s", inter_machine_gb_per_s=0.05))
    assert (pool.network, pool.inter_gb_per_s) == (None, 0.0)


@pytest.mark.parametrize(
    "other",
    [
        an_offer("b", 2),
        an_offer("a", 2, contract="interruptible"),
        an_offer("a", 2, intra_machine_gb_per_s=24.0),
        an_offer("a", 2, disk_usd_per_gb_month=0.2),
    ],
    ids=["gpu", "contract", "link", "storage price"],
)
def test_what_a_replica_or_its_bill_would_notice_sets_pools_apart(other: Offer) -> None:
    assert number_of_pools(an_offer("a", 2), other) == 2


def test_providers_share_pools_unless_their_share_is_limited() -> None:
    offers = [an_offer("a", provider="p"), an_offer("a", provider="q")]
    assert number_of_pools(*offers) == 1
    assert number_of_pools(*offers, limits=Limits(max_gpus_per_provider={"p": 3})) == 1
    limited = pools_of(*offers, limits=Limits(max_share_per_provider_fraction=0.6))
    assert [pool.provider for pool in limited] == ["p", "q"]


@pytest.mark.parametrize(
    ("stated", "promised"), [(25.0, 24.0), (31.9, 28.0), (64.0, 64.0), (899.0, 600.0), (5000.0, 900.0), (0.5, 0.0)]
)
def test_bandwidth_inside_a_machine_is_rounded_down(stated: float, promised: float) -> None:
    (pool,) = pools_of(an_offer("a", 2, intra_machine_gb_per_s=stated))
    assert pool.intra_gb_per_s == promised


@pytest.mark.parametrize(("stated", "promised"), [(13.0, 12.5), (0.99, 0.625), (12.5, 12.5), (1e4, 400.0)])
def test_bandwidth_between_machines_is_rounded_down(stated: float, promised: float) -> None:
    (pool,) = pools_of(an_offer("a", 2, site="s", inter_machine_gb_per_s=stated))
    assert pool.inter_gb_per_s == promised


def test_a_link_that_is_not_stated_is_the_cards_own() -> None:
    """A single GPU has no link in its offer, whatever the offer says."""
    assert pools_of(an_offer("a", 2))[0].intra_gb_per_s == 300.0
    assert pools_of(an_offer("a", 1, intra_machine_gb_per_s=8.0))[0].intra_gb_per_s == 300.0
    assert pools_of(an_offer("b", 2))[0].intra_gb_per_s == 0.0


@pytest.mark.parametrize(("stated", "charged"), [(0.0, 0.0), (0.1, 0.1), (0.16, 0.2), (1.01, 1.25), (7.3, 7.3)])
def test_the_price_of_storage_is_rounded_up(stated: float, charged: float) -> None:
    (pool,) = pools_of(an_offer("a", disk_usd_per_gb_month=stated))
    assert pool.storage_usd_per_gb_month == charged


@given(
    st.integers(1, 8),
    st.floats(0.01, 2000.0),
    st.floats(0.01, 1000.0),
    st.floats(0.0, 20.0),
    st.floats(0.0, 9000.0),
)
@law
def test_a_pool_never_promises_more_than_its_offer(
    gpus: int, intra: float, inter: float, storage_price: float, included: float
) -> None:
    offer = an_offer(
        "a",
        gpus,
        site="s",
        intra_machine_gb_per_s=intra,
        inter_machine_gb_per_s=inter,
        disk_usd_per_gb_month=storage_price,
        disk_included_gb=included,
    )
    (pool,) = pools_of(offer)
    assert pool.intra_gb_per_s <= (intra if gpus > 1 else 300.0)
    assert pool.inter_gb_per_s <= inter
    assert pool.storage_usd_per_gb_month >= storage_price
    assert pool.disk_included_gb_per_gpu * gpus <= included


def test_storage_is_billed_beyond_what_the_price_includes() -> None:
    """32 GB included with each of two GPUs, rounded down to 16: 100 - 2 x 16 = 68 GB at 0.1 $/GB and month."""
    (pool,) = pools_of(an_offer("a", 2, disk_included_gb=64.0, disk_usd_per_gb_month=0.1))
    assert pool.disk_included_gb_per_gpu == 16.0
    assert pool.storage_gb(100.0, 2) == 68.0
    assert pool.storage_usd_per_hour(100.0, 2) == pytest.approx(68 * 0.1 / 720)
    assert pool.storage_usd_per_hour(30.0, 2) == 0.0


def test_free_storage_costs_nothing_and_splits_no_pools() -> None:
    offers = [an_offer("a", disk_included_gb=8.0), an_offer("a", disk_included_gb=800.0)]
    assert number_of_pools(*offers) == 1
    assert pools_of(offers[0])[0].storage_usd_per_hour(1000.0, 1) == 0.0


def test_a_checkpoint_needs_a_tenth_more_than_its_weights() -> None:
    problem = market(an_offer("a"), with_weights=True)
    assert checkpoint_gb(SPEC, "bf16") == pytest.approx(40.0)
    assert disk_needed_gb(problem) == pytest.approx((NEEDED_GB,))
    assert disk_needed_gb(market(an_offer("a"))) == (0.0,)


def test_embeddings_stay_16_bit_on_the_disk_of_a_quantised_model() -> None:
    """20e9 parameters, of which 2 x 1000 x 1024 are embedding and head: they keep two bytes each."""
    vocabulary = 2 * 1000 * 1024
    assert checkpoint_gb(SPEC, "fp8") == pytest.approx((20e9 - vocabulary + 2 * vocabulary) / 1e9)
    tied = replace(SPEC, tied_embeddings=True)
    assert checkpoint_gb(tied, "fp8") == pytest.approx((20e9 + vocabulary / 2) / 1e9)


def test_disks_that_hold_every_model_make_no_difference() -> None:
    disks: list[float | None] = [None, NEEDED_GB * 2, 500.0, 9000.0]
    offers = [an_offer("a", 2, disk_gb=disk) for disk in disks]
    assert number_of_pools(*offers, with_weights=True) == 1
    assert pools_of(offers[1], with_weights=True)[0].disk_gb_per_gpu == math.inf


def test_disk_does_not_matter_where_weights_are_unknown() -> None:
    assert number_of_pools(an_offer("a", disk_gb=1.0), an_offer("a", disk_gb=1000.0)) == 1


@pytest.mark.parametrize(
    ("models", "disk_gb", "per_gpu"),
    [(1, 44.1, math.inf), (1, 43.0, 0.0), (2, 88.1, math.inf), (2, 87.0, 11.0)],
)
def test_pieces_share_a_disk_that_holds_the_checkpoints_of_all_models(
    models: int, disk_gb: float, per_gpu: float
) -> None:
    """44 GB each. Of less, a piece has its share: 87 GB on four GPUs hold one for a piece of four."""
    problem = market(an_offer("a", 4, disk_gb=disk_gb), with_weights=True)
    served = tuple(replace(problem.models[0], name=f"m{number}") for number in range(models))
    (pool,), _ = group_offers(replace(problem, models=served))
    assert pool.disk_gb_per_gpu == pytest.approx(per_gpu)


def test_a_piece_of_a_divisible_machine_uses_its_share_of_the_disk() -> None:
    """100 GB for four GPUs: 25, 50 and 100 GB for pieces of 1, 2 and 4, of which 2 and 4 hold 44 GB."""
    (pool,) = pools_of(an_offer("a", 4, disk_gb=100.0, divisible=True), with_weights=True)
    assert [pool.holds_checkpoint(NEEDED_GB, size) for size in (1, 2, 4)] == [False, True, True]


def test_machines_whose_disks_hold_the_same_pieces_share_a_pool() -> None:
    """On four GPUs 88 to 175 GB hold 44 GB for a pair but not for one GPU; 60 GB only for all four."""
    small, larger, large = (an_offer("a", 4, disk_gb=disk, divisible=True) for disk in (60.0, 90.0, 170.0))
    assert number_of_pools(larger, large, with_weights=True) == 1
    assert number_of_pools(small, large, with_weights=True) == 2


def test_disk_for_pieces_whose_memory_is_too_small_matters_only_across_machines() -> None:
    """With 30 GB a GPU one GPU cannot hold 40 GB of weights: 100 GB of disk for two do, unless it is a stage."""

    def disk_gb_per_gpu(**network: Any) -> float:
        problem = replace(market(an_offer("a", 2, disk_gb=60.0, divisible=True, **network), with_weights=True))
        pools, _ = group_offers(replace(problem, gpus={"a": a_gpu("a", memory_gb=30.0)}))
        return pools[0].disk_gb_per_gpu

    assert disk_gb_per_gpu() == math.inf
    assert disk_gb_per_gpu(site="s", inter_machine_gb_per_s=12.5) == pytest.approx(NEEDED_GB / 2)


def test_a_piece_gets_its_share_of_the_largest_machines_network() -> None:
    """Machines of 4 and 8 GPUs with 50 GB/s each: two GPUs can count on 2/8 of it."""
    network: dict[str, Any] = {"site": "s", "inter_machine_gb_per_s": 50.0}
    pools = pools_of(an_offer("a", 4, **network), an_offer("a", 8, **network))
    assert pools[0] == pools[1]
    assert pools[0].hop_gb_per_s(2) == 12.5
    assert pools[0].hop_gb_per_s(8) == 50.0


@for_each("seed", range(60))
def test_offers_of_one_pool_are_of_one_gpu_contract_and_network(seed: int) -> None:
    problem = random_estimated_problem(seed)
    pools, pool_of_offer = group_offers(problem)
    for offer, index in zip(problem.offers, pool_of_offer, strict=True):
        pool = pools[index]
        networked = offer.site is not None and bool(offer.inter_machine_gb_per_s)
        assert (offer.gpu, offer.contract) == (pool.gpu, pool.contract)
        assert pool.network == (f"{offer.provider}:{offer.site}" if networked else None)
        assert offer.gpus <= pool.largest_machine
        for need in disk_needed_gb(problem):
            if offer.disk_gb is not None and pool.holds_checkpoint(need, offer.gpus):
                fits_memory = need <= offer.gpus * problem.gpus[offer.gpu].memory_gb * 1.1
                assert need <= offer.disk_gb or not (networked or fits_memory)
