"""One configuration at a concurrency: identities, queues and what the usual settings are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.catalog import resolve_gpu
from sutler.solver.estimate import Estimate, estimate, one_layout
from sutler.solver.throughput.roofline import Roofline
from tests.solver.throughput.builders import served


def of(
    model: str = "llama-3-70b",
    gpu: str = "h100-sxm",
    request: tuple[float, float] = (1024, 256),
    *,
    tensor_parallel: int = 4,
    pipeline_parallel: int = 1,
    concurrency: int | None = None,
) -> Estimate:
    layouts = one_layout(resolve_gpu(gpu), tensor_parallel=tensor_parallel, pipeline_parallel=pipeline_parallel)
    return estimate(Roofline(), served(model, request), layouts, concurrency=concurrency)


@pytest.mark.slow
@given(
    st.integers(1, 2000),
    st.integers(1, 8000),
    st.integers(1, 3000),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 3),
)
@settings(max_examples=40)
def test_the_rate_is_the_concurrency_over_the_time_a_request_takes(
    concurrency: int, inputs: int, outputs: int, tensor_parallel: int, stages: int
) -> None:
    found = of(
        "llama-3-70b" if tensor_parallel > 2 else "qwen3-8b",
        request=(min(inputs, 5000), outputs),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=stages,
        concurrency=concurrency,
    )
    assert found.error is None
    whole = found.ttft_s + (outputs - 1) * found.tpot_s
    assert found.req_per_s == pytest.approx(concurrency / whole, rel=1e-9)
    assert found.ttft_s > 0
    assert found.tpot_s > 0
    assert found.low_req_per_s < found.req_per_s < found.high_req_per_s


def test_requests_beyond_the_memory_wait_for_their_first_token() -> None:
    few, many = of(concurrency=50), of(concurrency=1000)
    assert few.running == 50
    assert many.running < 1000
    assert many.ttft_s > few.ttft_s + (1000 - many.running) / many.req_per_s * 0.99
    assert "wait for memory" in many.detail


def test_more_clients_never_lower_the_rate() -> None:
    rates = [of(concurrency=clients).req_per_s for clients in (1, 2, 8, 32, 128, 512, 2048)]
    assert rates == sorted(rates)


def test_without_a_concurrency_the_largest_batch_is_meant() -> None:
    found = of("llama-3-70b", request=(4000, 4000))
    assert 0 < found.concurrency == found.running < 256
    assert found.req_per_s == pytest.approx(of(request=(4000, 4000), concurrency=found.concurrency).req_per_s)


def test_a_lone_request_waits_for_the_server_and_its_own_prefill() -> None:
    short, long = of(concurrency=1, request=(16, 64)), of(concurrency=1, request=(8000, 64))
    assert 0.01 < short.ttft_s < 0.2
    assert long.ttft_s > short.ttft_s + 0.2


def test_what_cannot_be_served_carries_its_error() -> None:
    found = of("llama-3-70b", "rtx-4090", tensor_parallel=1, concurrency=4)
    assert found.req_per_s == 0
    assert "do not fit" in str(found.error)
