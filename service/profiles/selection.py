"""Which runs somebody means, from names as people spell them."""

from sutler.service.profiles.repository import RunFilter
from sutler.service.translation.estimates import engine_of, precision_of
from sutler.solver.catalog import resolve_gpu, resolve_model


def run_filter(
    *,
    gpu: str | None = None,
    model: str | None = None,
    precision: str | None = None,
    engine: str | None = None,
    engine_version: str | None = None,
) -> RunFilter:
    """The filter; None: any. Raises UnknownNameError, DocumentError."""
    return RunFilter(
        gpu=None if gpu is None else resolve_gpu(gpu, field="--gpu").slug,
        model=None if model is None else resolve_model(model, field="--model").id,
        precision=None if precision is None else precision_of("--precision", precision),
        engine=None if engine is None else engine_of(engine),
        engine_version=engine_version,
    )
