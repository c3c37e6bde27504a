"""Problems whose prefill and decode may run apart, and short ways to read their plans."""

from dataclasses import replace
from typing import Any

from sutler.solver.catalog import load_models
from sutler.solver.catalog.entries import Gpu
from sutler.solver.plan import Plan
from sutler.solver.problem import Disaggregation, Offer, Problem, Search
from tests.builders import a_gpu, a_model, a_problem, a_workload, an_offer, measured
from tests.solver.throughput.builders import a_dense_spec

SITE: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
LLAMA = load_models()["llama-3-70b"]


def roles(plan: Plan) -> dict[str, int]:
    """{"prefill a": 1, "decode b": 2}: replicas by role and GPU."""
    counts: dict[str, int] = {}
    for replica in plan.replicas:
        key = f"{replica.role} {replica.stages[0].gpu}"
        counts[key] = counts.get(key, 0) + 1
    return counts


def gpus_in(plan: Plan, role: str) -> dict[str, int]:
    """GPUs by type of all replicas in a role."""
    counts: dict[str, int] = {}
    for replica in plan.replicas:
        for stage in replica.stages:
            if replica.role == role:
                counts[stage.gpu] = counts.get(stage.gpu, 0) + stage.tensor_parallel
    return counts


def with_mode(problem: Problem, mode: Disaggregation) -> Problem:
    return replace(problem, search=replace(problem.search, disaggregation=mode))


def measured_apart(*offers: Offer, prefill_rps: float = 10.0, decode_rps: float = 5.0, **others: Any) -> Problem:
    """One a takes `prefill_rps` prompts, `decode_rps` answers, or 3 whole requests a second."""
    rows = [
        measured("a", {"w1": 3.0}),
        measured("a", {"w1": prefill_rps}, role="prefill"),
        measured("a", {"w1": decode_rps}, role="decode"),
    ]
    others.setdefault("search", Search(disaggregation="auto"))
    return a_problem(offers=offers, rows=rows, **others)


# A model whose figures are easy to add up: 2 layers of width 8 with 12 in the middle, 1 head of keys of 4, 10 words.
TOY = a_dense_spec(
    layers=2, hidden_size=8, heads=2, kv_heads=1, head_dim=4, intermediate_size=12, vocab_size=10, total_params=1e6
)


def toy_pair(gb_per_s: float = 12.5) -> Problem:
    """Two chips on one site: p prefills at 2 $/h, d decodes at 4 $/h."""
    site: dict[str, Any] = {**SITE, "inter_machine_gb_per_s": gb_per_s}
    known: dict[str, Any] = {"architecture": "hopper", "memory_gb": 80.0}
    p = a_gpu("p", peak_tflops_bf16_dense=500.0, memory_bandwidth_gb_per_s=1000.0, **known)
    d = a_gpu("d", peak_tflops_bf16_dense=100.0, memory_bandwidth_gb_per_s=2000.0, **known)
    model = a_model(a_workload(input_tokens=300.0, output_tokens=100.0), spec=TOY)
    return a_problem(
        models=[model],
        offers=[an_offer("p", price=2.0, **site), an_offer("d", price=4.0, **site)],
        gpus=[p, d],
        rows=[measured("p", {"w1": 8.0}, role="prefill"), measured("d", {"w1": 5.0}, role="decode")],
        search=Search(disaggregation="only", tensor_parallel=(1,), max_pipeline_stages=1),
        measured_only=True,
    )


def card(slug: str, tflops: float, gb_per_s: float, *, memory_gb: float, **others: Any) -> Gpu:
    return a_gpu(
        slug,
        memory_gb=memory_gb,
        architecture="hopper",
        peak_tflops_bf16_dense=tflops,
        peak_tflops_fp8_dense=2 * tflops,
        memory_bandwidth_gb_per_s=gb_per_s,
        link_gb_per_s=200.0,
        link="NVLink",
        **others,
    )


# Cauchy, table 1: bf16 TFLOP/s, GB/s and $/h of a GPU.
H800 = card("h800", 989.0, 3350.0, memory_gb=80.0)
H20 = card("h20", 148.0, 4000.0, memory_gb=96.0)


def cauchy(*lengths: tuple[float, float], gb_per_s: float = 50.0, **others: Any) -> Problem:
    """Machines of 8 H800 at 2.69 $/h a GPU and of 8 H20 at 1.50 $/h for llama-3-70b."""
    site: dict[str, Any] = {**SITE, "inter_machine_gb_per_s": gb_per_s, "intra_machine_gb_per_s": 200.0}
    workloads = [
        a_workload(f"w{index}", input_tokens=inputs, output_tokens=outputs)
        for index, (inputs, outputs) in enumerate(lengths)
    ]
    others.setdefault("search", Search(disaggregation="auto", max_pipeline_stages=1))
    others.setdefault("budget_usd_per_hour", 100.0)
    return a_problem(
        models=[a_model(*workloads, spec=LLAMA)],
        offers=[
            an_offer("h800", 8, price=8 * 2.69, available=4, divisible=True, **site),
            an_offer("h20", 8, price=8 * 1.50, available=8, divisible=True, **site),
        ],
        gpus=[H800, H20],
        measured_only=False,
        **others,
    )
