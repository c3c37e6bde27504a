"""Problems for a service, which reads no files of its callers: what a problem's paths lead to is put into it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sutler.service.documents.model import ConfigDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import TraceDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.traces import bucket_trace_file
from sutler.service.documents.validation import validate
from sutler.service.translation.given_models import with_content
from sutler.service.translation.market_source import resolve_path


def without_paths(problem: object, folder: Path) -> dict[str, Any]:
    """The problem with the offers, workloads and configs that its paths lead to, relative to `folder`.

    Raises DocumentError, InvalidProblemError.
    """
    document = validate(ProblemDocument, problem)
    found: dict[str, Any] = dict(problem)  # type: ignore[call-overload]  # as validated
    if isinstance(document.market.offers, str):
        path = resolve_path(document.market.offers, folder, field="market.offers")
        found["market"] = {**found["market"], "offers": read_document(path, field="market.offers")}
    is_batch = document.objective.kind == "min_makespan"
    models = list(found["models"])
    for i, model in enumerate(document.models):
        if model.trace is not None:
            models[i] = _traced(models[i], model.trace, f"models[{i}].trace", folder, is_batch=is_batch)
        if isinstance(model.model, ConfigDocument):
            content = with_content(f"models[{i}].model", model.model, folder)
            models[i] = {**models[i], "model": content.model_dump(exclude_none=True)}
    return {**found, "models": models}


def _traced(
    model: Mapping[str, Any], trace: TraceDocument, at: str, folder: Path, *, is_batch: bool
) -> dict[str, Any]:
    path = resolve_path(trace.file, folder, field=f"{at}.file")
    made = bucket_trace_file(path, buckets=trace.buckets, duration_s=trace.duration_s, field=at)
    workloads = [
        {
            "name": bucket.name,
            "input_tokens": bucket.input_tokens,
            "output_tokens": bucket.output_tokens,
            **({"requests": float(bucket.requests)} if is_batch else {"rate_rps": bucket.rate_rps}),
        }
        for bucket in made.buckets
    ]
    return {**{key: value for key, value in model.items() if key != "trace"}, "workloads": workloads}
