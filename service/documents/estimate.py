"""What one configuration should do, asked and answered: `sutler estimate`. Units: requests/s, seconds, tokens."""

from typing import Annotated, Literal

from pydantic import Field

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.fields import Document, GpuName, Name, Tokens

Degree = Annotated[int, Field(ge=1, le=1024)]


class EstimateQuestion(Document):
    """One replica and its traffic."""

    model: Name
    """Model: catalogue id, repository or a usual spelling."""
    gpu: GpuName
    """GPU: catalogue slug or a usual spelling."""
    precision: Name
    """Of the weights: bf16, fp16, fp8, int8, int4, fp4."""
    input_tokens: Tokens
    """Tokens of a prompt."""
    output_tokens: Tokens
    """Tokens of an answer."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests in flight, each followed by the next; null: the most that fit."""
    tensor_parallel: Degree = 1
    """GPUs that share every layer."""
    pipeline_parallel: Degree = 1
    """Stages that share the layers."""
    data_parallel: Degree = 1
    """Ranks of attention, each tensor_parallel GPUs; experts are spread over all of them."""
    kv_precision: Name | None = None
    """Of the KV cache; null: what engines choose."""
    engine: Name | None = None
    """Serving engine; null: the calibration's, or vllm."""
    engine_version: Name | None = None
    """Its version, such as 0.6.3: old ones are slower, and less is known of them; null: a current one."""
    length_spread_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """By how much the lengths of the benchmark's requests vary around their means; null: a tenth, none for sglang."""
    requests_per_client: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Requests that each client sends, of which the first meets an idle engine; null: ten."""
    calibration: Name | CalibrationDocument | None = None
    """By your own runs: the name of a stored calibration, or a whole one."""


class EstimateDocument(Document):
    """What a configuration should do, with its error band; as it was understood."""

    schema_: Literal["sutler/estimate/v1"] = Field(alias="schema")
    """Version of this format."""
    model: str
    """Catalogue id, or the name of the config.json."""
    gpu: str
    """Catalogue slug."""
    tensor_parallel: int
    """GPUs that share every layer."""
    pipeline_parallel: int
    """Stages that share the layers."""
    data_parallel: int
    """Ranks of attention."""
    precision: str
    """Of the weights."""
    kv_precision: str
    """Of the KV cache."""
    engine: str
    """Serving engine."""
    engine_version: str = ""
    """Its version as it was asked for; empty: the calibration's, or a current one."""
    input_tokens: float
    """Tokens of a prompt."""
    output_tokens: float
    """Tokens of an answer."""
    concurrency: int
    """Requests in flight."""
    running: int
    """So many of them decode at once; the others wait."""
    req_per_s: float
    """concurrency / (ttft_s + (output_tokens - 1) x tpot_s)."""
    ttft_s: float
    """Time to first token, waiting included."""
    tpot_s: float
    """Time per output token after the first."""
    low_req_per_s: float
    """Low end of the error band."""
    high_req_per_s: float
    """High end of the error band."""
    source: str
    """Where the estimate comes from."""
    detail: str
    """The same in words, with what limits the rate."""
