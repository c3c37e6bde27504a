"""What one configuration should do, without a market."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sutler.service.documents.estimate import EstimateDocument
from sutler.service.library.problems import Given, names_in
from sutler.service.translation.estimates import configuration, estimate_document

if TYPE_CHECKING:
    from sutler.service.documents.calibration import CalibrationDocument
    from sutler.solver.calibration.factors import Calibration
    from sutler.solver.catalog import ModelSpec


def estimate(
    model: "str | ModelSpec",
    gpu: str,
    *,
    precision: str,
    input_tokens: float,
    output_tokens: float,
    concurrency: int | None = None,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    kv_precision: str | None = None,
    engine: str | None = None,
    engine_version: str | None = None,
    length_spread_fraction: float | None = None,
    requests_per_client: int | None = None,
    calibration: "str | Path | CalibrationDocument | None" = None,
    problem: Given | None = None,
) -> EstimateDocument:
    """Estimates requests/s, time to first token and time per output token of one replica, with their error band.

    `model` and `gpu` are named as the catalogue does or in a usual spelling; `concurrency` unset: the most requests
    that fit; `engine_version` unset: a current one; `length_spread_fraction`,
    `requests_per_client`: of the benchmark that is simulated, unset: as with the engine's published runs;
    `calibration`: the name of one in the store, its file, or the document; `problem`: one whose own GPUs (`gpus`) and
    models count as well.

    Raises DocumentError and InvalidProblemError, which name the field, also where the model does not fit.
    """
    own = None if calibration is None else calibration_of_choice(calibration)
    texts: dict[str, Any] = {
        "gpu": gpu,
        "precision": precision,
        "kv_precision": kv_precision,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "concurrency": concurrency,
        "tp": tensor_parallel,
        "pp": pipeline_parallel,
        "dp": data_parallel,
        "engine": engine,
        "engine_version": engine_version,
        "length_spread_fraction": length_spread_fraction,
        "requests_per_client": requests_per_client,
    }
    spec = None if isinstance(model, str) else model
    given = texts if spec is not None else {"model": model, **texts}
    config = configuration(
        {name: _text(value) for name, value in given.items() if value is not None}, spec, names_in(problem)
    )
    return estimate_document(config, own)


def calibration_of_choice(given: "str | Path | CalibrationDocument") -> "Calibration":
    """A calibration by its name in the store, of a file where one is there, or as it is. Raises SutlerError."""
    from sutler.service.documents.calibration import CalibrationDocument
    from sutler.service.main import StoreWhenNeeded
    from sutler.service.profiles.references import calibration_in
    from sutler.service.translation.calibrations import calibration_of

    if isinstance(given, CalibrationDocument):
        return calibration_of(given)
    path = Path(given)
    is_file = path.is_file() or path.suffix == ".json" or len(path.parts) > 1
    document = calibration_in(path) if is_file else StoreWhenNeeded().calibration(str(given))
    return calibration_of(document, field="--calibration")


def _text(value: object) -> str:
    """Python refuses to print integers beyond 4300 digits; such a number is out of every range anyway."""
    if isinstance(value, int) and abs(value) > 10**18:
        return f"{'-' if value < 0 else ''}{10**18}"
    return str(value)
