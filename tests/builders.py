"""Short ways to say a problem: what a test does not name has a plain default.

`appendix_c` and `melange` are worked cases from the literature; `random_problem` draws tiny markets that cover
every kind of supply (whole offers, divisible ones, slices of one machine, networked sites).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.catalog.entries import Gpu, ModelSpec
from sutler.solver.problem import (
    EngineName,
    LatencyLimit,
    Limits,
    MeasuredRate,
    MeasuredStage,
    Method,
    Objective,
    ObjectiveKind,
    Offer,
    Problem,
    Role,
    Search,
    ServedModel,
    SolveOptions,
    Workload,
)

StageText = str  # "t2:2": two GPUs of type t2 in tensor parallel


def a_gpu(slug: str, *, memory_gb: float = 80.0, tdp_watts: float | None = 400.0, **facts: Any) -> Gpu:
    return Gpu(slug, memory_gb, tdp_watts=tdp_watts, **facts)


def a_workload(
    name: str = "w1", *, demand: float = 1.0, input_tokens: float = 1000.0, output_tokens: float = 200.0
) -> Workload:
    return Workload(name, input_tokens, output_tokens, demand)


def a_model(*workloads: Workload, name: str = "chat", spec: ModelSpec | None = None, **others: Any) -> ServedModel:
    return ServedModel(name, spec, "bf16", "bf16", workloads or (a_workload(),), **others)


def an_offer(
    gpu: str, gpus: int = 1, *, price: float = 1.0, available: int = 1, offer_id: str | None = None, **others: Any
) -> Offer:
    """`price` is in $/h for all the offer's GPUs."""
    others.setdefault("provider", "cloud")
    return Offer(
        offer_id=offer_id or f"{gpu}-{gpus}",
        gpu=gpu,
        gpus=gpus,
        available=available,
        price_usd_per_hour=price,
        **others,
    )


def measured(
    stages: StageText | Sequence[StageText],
    rps: Mapping[str, float],
    model: str = "chat",
    role: Role = "aggregated",
) -> MeasuredRate:
    """`measured(["a", "b:2"], {"w1": 3.0})`: a pipeline of one a and a tensor-parallel pair of b."""
    texts = [stages] if isinstance(stages, str) else stages
    return MeasuredRate(model, tuple(_stage(text) for text in texts), dict(rps), role)


def _stage(text: StageText) -> MeasuredStage:
    gpu, _, degree = text.partition(":")
    return MeasuredStage(gpu, int(degree or 1))


def a_problem(
    *,
    offers: Sequence[Offer],
    rows: Sequence[MeasuredRate] = (),
    models: Sequence[ServedModel] = (),
    objective: ObjectiveKind = "max_throughput",
    headroom_fraction: float = 0.0,
    gpus: Sequence[Gpu] = (),
    **others: Any,
) -> Problem:
    """A problem that uses measured rates alone; GPUs that are not given get 80 GB and 400 W."""
    named = {offer.gpu for offer in offers} | {stage.gpu for row in rows for stage in row.stages}
    given = {gpu.slug: gpu for gpu in gpus}
    others.setdefault("measured_only", True)
    return Problem(
        objective=Objective(objective, headroom_fraction),
        models=tuple(models) or (a_model(),),
        offers=tuple(offers),
        gpus={slug: given.get(slug, a_gpu(slug)) for slug in sorted(named | set(given))},
        measured=tuple(rows),
        **others,
    )


def appendix_c(method: Method = "exact") -> Problem:
    """The worked example of arXiv 2502.00722, Appendix C: two units each of t1, t2, t3 at 4, 2, 2 $/h, budget 8.

    On one t1 and a TP pair of t2, the pair takes w1 alone and t1 all of w2 and the rest of w1:
    T = (80 + 20/1.2) / 3.4 = 28.43 s.
    """
    return a_problem(
        objective="min_makespan",
        models=[a_model(a_workload("w1", demand=80.0), a_workload("w2", demand=20.0))],
        offers=[
            an_offer("t1", price=4.0, available=2),
            an_offer("t2", 2, price=4.0, available=1, divisible=True),
            an_offer("t3", price=2.0, available=2),
        ],
        rows=[
            measured("t1", {"w1": 1.0, "w2": 1.2}),
            measured("t2", {"w1": 0.9, "w2": 0.9}),
            measured("t3", {"w1": 0.3, "w2": 0.5}),
            measured("t2:2", {"w1": 2.4, "w2": 1.5}),
        ],
        budget_usd_per_hour=8.0,
        options=SolveOptions(method=method),
    )


APPENDIX_C_MAKESPAN_S = (80 + 20 / 1.2) / 3.4


def melange() -> Problem:
    """An input of Mélange's release (arXiv 2404.14527): GPU prices and a rate for each input and output bucket.

    Its own slices give 5.75 $/h; with fractions the optimum is 5 x 0.34 + 1.19 + 2.69 = 5.58 $/h.
    """
    shares = {"short-short": 0.35, "short-long": 0.25, "long-short": 0.25, "long-long": 0.15}
    rates = {
        "rtx4090": (0.34, (6.0, 2.0, 2.0, 0.8)),
        "a100": (1.19, (18.0, 7.0, 9.0, 3.5)),
        "h100": (2.69, (40.0, 17.0, 22.0, 9.0)),
    }
    return a_problem(
        objective="min_cost",
        models=[a_model(*(a_workload(name, demand=40.0 * share) for name, share in shares.items()))],
        offers=[an_offer(gpu, price=price, available=100) for gpu, (price, _) in rates.items()],
        rows=[measured(gpu, dict(zip(shares, rps, strict=True))) for gpu, (_, rps) in rates.items()],
    )


OBJECTIVES: tuple[ObjectiveKind, ...] = ("max_throughput", "min_makespan", "min_cost", "min_power")


def random_problem(seed: int, objective: ObjectiveKind = "max_throughput", *, most_gpus: int = 10) -> Problem:
    """A tiny market with two GPU types, one or two models and up to `most_gpus` GPUs; the same for every objective.

    For min_makespan demand counts requests, else requests/s. The demand is drawn so that min_cost is sometimes
    infeasible.
    """
    draw = Random(seed)
    models = [_random_model(draw, name) for name in (["chat", "code"] if draw.random() < 0.3 else ["chat"])]
    rows = [row for model in models for row in _random_rows(draw, model)]
    offers = _random_offers(draw, most_gpus)
    budget = draw.uniform(0.3, 1.0) * sum(offer.price_usd_per_hour * offer.available for offer in offers)
    return a_problem(
        objective=objective,
        headroom_fraction=draw.choice([0.0, 0.2]),
        models=models,
        rows=rows,
        offers=offers,
        gpus=[a_gpu("a", tdp_watts=300.0), a_gpu("b", tdp_watts=draw.choice([450.0, 700.0]))],
        budget_usd_per_hour=round(budget, 2) if draw.random() < 0.8 else None,
        limits=_random_limits(draw),
    )


def _random_model(draw: Random, name: str) -> ServedModel:
    workloads = [
        a_workload(
            f"w{number}",
            demand=round(draw.uniform(0.1, 1.2), 3),
            input_tokens=draw.choice([200.0, 2000.0]),
            output_tokens=draw.choice([50.0, 400.0]),
        )
        for number in range(draw.randint(1, 3))
    ]
    return a_model(*workloads, name=name)


_LAYOUTS = (
    ["a"],
    ["b"],
    ["a:2"],
    ["b:2"],
    ["a:4"],
    ["a", "a"],
    ["b:2", "b:2"],
    ["a", "b"],
    ["a:2", "b"],
    ["b", "b", "b"],
)


def _random_rows(draw: Random, model: ServedModel) -> list[MeasuredRate]:
    """Rates that grow with the GPUs of a layout, somewhat at random; some workloads it cannot serve."""
    rows = []
    layouts = [*draw.sample(_LAYOUTS[:4], 2), *draw.sample(_LAYOUTS[4:], draw.randint(1, 3))]
    for layout in layouts:
        gpus = sum(_stage(text).tensor_parallel for text in layout)
        speed = {
            workload.name: round(draw.uniform(0.5, 1.5) * gpus ** draw.uniform(0.7, 1.3), 3)
            for workload in model.workloads
            if draw.random() < 0.95
        }
        rows.append(measured(layout, speed, model.name))
    return rows


def _random_offers(draw: Random, most_gpus: int) -> list[Offer]:
    offers: list[Offer] = []
    left = most_gpus
    while left > 0 and len(offers) < 5:
        new = _random_machine(draw, number=len(offers), most_gpus=min(left, 4))
        left -= max(sum(o.gpus * o.available for o in new) if new[0].machine_id is None else new[0].gpus, 1)
        offers.extend(new)
    return offers


def _random_machine(draw: Random, *, number: int, most_gpus: int) -> list[Offer]:
    """Offers of one kind of machine: plain, divisible, at a networked site, or slices of one machine."""
    gpu, gpus = draw.choice("ab"), draw.randint(1, most_gpus)
    per_gpu = {"a": 1.0, "b": 1.6}[gpu] * draw.choice([0.8, 1.0, 1.0, 1.3])
    name, provider = f"o{number}", draw.choice(["p", "q"])
    kind = draw.choice(["plain", "plain", "divisible", "site", "slices"])
    if kind == "slices" and gpus > 1:
        cuts = [tuple(range(gpus)), tuple(range(gpus // 2)), tuple(range(gpus // 2, gpus))]
        return [
            an_offer(
                gpu,
                len(cards),
                price=round(per_gpu * len(cards) * (1 + 0.1 * part), 2),
                offer_id=f"{name}-{part}",
                provider=provider,
                machine_id=name,
                gpu_ids=cards,
            )
            for part, cards in enumerate(cuts)
        ]
    network: dict[str, Any] = {"site": f"{provider}/s1", "inter_machine_gb_per_s": 12.5} if kind == "site" else {}
    return [
        an_offer(
            gpu,
            gpus,
            price=round(per_gpu * gpus, 2),
            available=draw.randint(1, max(1, most_gpus // gpus)),
            offer_id=name,
            provider=provider,
            divisible=kind == "divisible",
            **network,
        )
    ]


def _random_limits(draw: Random) -> Limits:
    return Limits(
        max_gpus={"a": draw.randint(1, 4)} if draw.random() < 0.2 else {},
        max_gpus_per_provider={"p": draw.randint(1, 4)} if draw.random() < 0.15 else {},
        max_share_per_provider_fraction=0.6 if draw.random() < 0.12 else 1.0,
        max_utilisation_fraction=0.85 if draw.random() < 0.2 else None,
        max_power_watts=draw.choice([900.0, 1500.0, 2500.0]) if draw.random() < 0.2 else None,
    )


def random_roles_problem(seed: int, objective: ObjectiveKind = "max_throughput", *, most_gpus: int = 8) -> Problem:
    """`random_problem` with more networks and rates of prefill and decode beside those of whole requests.

    Prefill replicas take two to five times the requests and decode replicas one to three times, so that now running
    apart is better and now it is not; some layouts have only some of the roles.
    """
    draw = Random(seed + 10**6)
    problem = random_problem(seed, objective, most_gpus=most_gpus)
    offers = [
        replace(offer, site=f"{offer.provider}/s{draw.choice('112')}", inter_machine_gb_per_s=12.5)
        if offer.machine_id is None and offer.site is None and draw.random() < 0.8
        else offer
        for offer in problem.offers
    ]
    rows = [row for row in problem.measured if draw.random() < 0.9]
    for row in problem.measured:
        for role, least, most in (("prefill", 2.0, 5.0), ("decode", 1.0, 3.0)):
            if draw.random() < 0.7:
                rps = {name: round(rate * draw.uniform(least, most), 3) for name, rate in row.rps.items()}
                rows.append(replace(row, rps=rps, role="prefill" if role == "prefill" else "decode"))
    return replace(
        problem, offers=tuple(offers), measured=tuple(rows), search=replace(problem.search, disaggregation="auto")
    )


# Hypothesis begins each law with the least seed, and 0 is the one problem in thirty that takes ten seconds and more.
estimated_seeds: Final = st.integers(min_value=1, max_value=100_000)


def random_estimated_problem(seed: int, objective: ObjectiveKind = "max_throughput") -> Problem:
    """A market of catalogue GPUs with disk terms and networked sites for catalogue models on estimated rates."""
    draw = Random(seed)
    names = draw.sample(["llama-3.1-8b", "qwen3-30b-a3b", "llama-3-70b"], draw.randint(1, 2))
    engines: tuple[EngineName, ...] = ("any-layout", "vllm", "any-layout", "tensorrt-llm")
    models = [replace(_random_catalogue_model(draw, name), engine=engines[seed % 4]) for name in names]
    offers = [_random_catalogue_offer(draw, number) for number in range(draw.randint(3, 8))]
    cards = sorted({offer.gpu for offer in offers})
    rows = [measured(f"{cards[0]}:2", {"w0": draw.uniform(1.0, 5.0)}, names[0])] if draw.random() < 0.3 else []
    return a_problem(
        objective=objective,
        headroom_fraction=draw.choice([0.0, 0.15]),
        models=models,
        rows=rows,
        offers=offers,
        gpus=[load_gpus()[card] for card in cards],
        budget_usd_per_hour=draw.uniform(4.0, 40.0) if draw.random() < 0.8 else None,
        limits=Limits(
            max_gpus={cards[0]: draw.randint(2, 6)} if draw.random() < 0.2 else {},
            max_share_per_provider_fraction=draw.choice([1.0, 1.0, 1.0, 0.7]),
            max_power_watts=draw.choice([None, None, 3000.0, 9000.0]),
        ),
        search=Search(max_pipeline_stages=3, mixed_gpu_pipelines=draw.random() < 0.7),
        measured_only=False,
    )


def random_estimated_roles_problem(seed: int, objective: ObjectiveKind = "max_throughput") -> Problem:
    """`random_estimated_problem` with most of its offers on one or two networks, and with GPUs that may be capped."""
    draw = Random(seed + 10**6)
    problem = random_estimated_problem(seed, objective)
    offers = [
        replace(offer, site=f"{offer.provider}/s", inter_machine_gb_per_s=draw.choice([0.125, 1.25, 12.5, 50.0]))
        if draw.random() < 0.7
        else offer
        for offer in problem.offers[:5]
    ]
    share = draw.choice([None, None, 0.2, 0.7])
    limit = LatencyLimit("e2e", draw.choice([50, 90, 99]), draw.uniform(5.0, 60.0))
    models = [
        replace(model, prefill_share_fraction=share, slo=(*model.slo, limit) if draw.random() < 0.4 else model.slo)
        for model in problem.models
    ]
    caps = draw.choice([(), (), (0.5,), (0.4, 0.7)])
    return replace(
        problem,
        offers=tuple(offers),
        models=tuple(models),
        search=replace(
            problem.search, disaggregation="auto", max_pipeline_stages=draw.choice([1, 2]), power_caps_fraction=caps
        ),
    )


def _random_catalogue_model(draw: Random, name: str) -> ServedModel:
    spec = load_models()[name]
    workloads = [
        a_workload(
            f"w{number}",
            demand=draw.uniform(0.2, 4.0),
            input_tokens=draw.choice([200.0, 1500.0, 4000.0]),
            output_tokens=draw.choice([20.0, 150.0, 600.0]),
        )
        for number in range(draw.randint(1, 3))
    ]
    limits = (LatencyLimit("ttft", 90, 3.0), LatencyLimit("tpot", 90, 0.08)) if draw.random() < 0.5 else ()
    precision = draw.choice([p for p in ("bf16", "fp8") if p in spec.precisions])
    return replace(a_model(*workloads, name=name, spec=spec, slo=limits), precision=precision)


def _random_catalogue_offer(draw: Random, number: int) -> Offer:
    price = {"rtx-4090": 0.35, "l40s": 0.8, "a100-sxm4-80gb": 1.2, "h100-sxm": 2.4}
    gpu, gpus, provider = draw.choice(sorted(price)), draw.choice([1, 2, 4, 8]), draw.choice(["p", "q"])
    terms: dict[str, Any] = {}
    if draw.random() < 0.4:
        terms |= {"site": f"{provider}/s", "inter_machine_gb_per_s": draw.choice([1.25, 12.5, 50.0])}
    if draw.random() < 0.5:
        terms |= {
            "disk_gb": draw.choice([60.0, 200.0, 800.0]),
            "disk_included_gb": 8.0,
            "disk_usd_per_gb_month": draw.choice([0.0, 0.1, 0.23]),
        }
    return an_offer(
        gpu,
        gpus,
        price=round(price[gpu] * gpus * draw.uniform(0.8, 1.3), 3),
        available=draw.randint(1, 3),
        offer_id=f"o{number}",
        provider=provider,
        contract=draw.choice(["on_demand", "interruptible"]),
        divisible=draw.random() < 0.3,
        intra_machine_gb_per_s=draw.choice([None, 16.0, 26.0, 300.0]),
        **terms,
    )
