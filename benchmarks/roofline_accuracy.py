"""How far the roofline is from measured runs: `python -m benchmarks.roofline_accuracy FOLDER/serving_dense.csv`.

For every GPU, model, precision and engine the factors are fitted without a single run of it and then asked for
exactly those runs; the shipped factors, fitted on everything, come last. `--write FILE` saves the fit on everything,
with its residuals, as solver/throughput/calibration.toml. Exit 2 where the file is missing or is another table.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.calibration_file import Errors, calibration_toml, median_and_p90
from benchmarks.measurements import Table6Row, layer_runs, serving_runs, static_runs, table6_rows
from solver.catalog import resolve_gpu, resolve_model
from solver.errors import SolverError
from solver.estimate import one_layout
from solver.problem import ServedModel, Workload
from solver.simulation.benchmark import Benchmarked, benchmarked, with_all_layers
from solver.throughput.base import Layouts
from solver.throughput.calibrate import fit
from solver.throughput.factors import REFERENCE_ENGINE, Calibration, calibration_from_toml, shipped_calibration
from solver.throughput.roofline import Roofline
from solver.throughput.runs import LayerRun, ServingRun, predict, predict_layers, run_groups, with_room

PRIOR: Final = Path(__file__).with_name("roofline_prior.toml")
LEAST_BAND: Final = 1.1
# Table 6 is Llama-3-70B with 2,455 input and 18 output tokens, on Ethernet of 5 Gb/s between machines.
TABLE6_REQUEST: Final = Workload("w1", 2455, 18, 1.0)
TABLE6_CROSS_MACHINE_GB_PER_S: Final = 0.625
TABLE6_GPUS: Final = {"H100": ("h100-sxm",), "L40": ("l40",), "H100+A100": ("h100-sxm", "a100-sxm4-80gb")}

FloatArray = NDArray[np.float64]
Row = TypeVar("Row")
Key = Callable[[ServingRun], str]
KEYS: Final[dict[str, Key]] = {
    "GPU": lambda run: run.gpu.slug,
    "model": lambda run: run.spec.id,
    "precision": lambda run: run.precision,
    "engine": lambda run: run.engine,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Errors of the calibrated roofline on measured runs.")
    parser.add_argument("csv", type=Path, help="serving_dense.csv; the other tables are looked for beside it")
    parser.add_argument("--write", type=Path, help="save the factors fitted on every run to this TOML file")
    options = parser.parse_args(arguments)
    try:
        runs = serving_runs(options.csv)
    except OSError as error:
        print(f"{options.csv}: {error.strerror}; give the path of serving_dense.csv", file=sys.stderr)
        return 2
    except KeyError as error:
        print(f"{options.csv}: no column {error}; this is not serving_dense.csv", file=sys.stderr)
        return 2
    except (SolverError, ValueError) as error:
        print(f"{options.csv}: {error}; correct the row or leave it out", file=sys.stderr)
        return 2
    if len({run.gpu.slug for run in runs if run.engine == REFERENCE_ENGINE}) < 2:
        print(f"{options.csv}: needs verified {REFERENCE_ENGINE} rows of two GPUs to leave one out", file=sys.stderr)
        return 2
    _report(options.csv, runs, options.write)
    return 0


def _report(path: Path, runs: list[ServingRun], write: Path | None) -> None:
    layers = _beside(path, "layer_gemm_vidur.csv", layer_runs)
    prior = calibration_from_toml(PRIOR.read_text(encoding="utf-8"))
    vllm = [run for run in runs if run.engine == REFERENCE_ENGINE]
    print(f"{len(runs)} verified serving runs ({len(vllm)} of them vLLM), {len(layers)} layer profiles")
    print("Errors: median / p90 of |predicted / measured - 1|, in percent.\n")
    print(f"{'group':<38} {'rows':>4}   {'req/s':^13}   {'TTFT':^13}   {'TPOT':^13}   fitted on")
    judged: list[Errors] = []
    held_out: list[HeldOut] = []
    for name, key in KEYS.items():
        judged.append(_leaving_out(name, key, runs, layers, prior, held_out))
        print()
    fitted = _with_bands(fit(with_room(runs), layers, prior, REFERENCE_ENGINE), runs, judged)
    if write is not None:
        write.write_text(calibration_toml(fitted, path, judged, layers), encoding="utf-8")
    shipped = fitted if write is not None else shipped_calibration()
    judged_on_all = f"{len(with_room(runs))} runs, in sample"
    for group, chosen in (("shipped factors, vLLM", vllm), ("shipped factors, all", runs)):
        print(_errors(group, judged_on_all, chosen, shipped).line())
    for kind, of_kind in _by(vllm, lambda run: f"{run.gpu.slug} {run.spec.id} {run.precision}").items():
        print(_errors(f"  {kind}", "", of_kind, shipped).line())
    _print_simulated(held_out, runs, shipped)
    _print_layers(layers, shipped)
    _print_static(_beside(path, "static_splitwise.csv", static_runs), shipped)
    _print_table6(_beside(path, "paper_table6.csv", table6_rows), shipped)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Runs that a calibration was fitted without, since they share a GPU, model, precision or engine."""

    name: str
    runs: list[ServingRun]
    calibration: Calibration


def _leaving_out(
    name: str,
    key: Key,
    runs: list[ServingRun],
    layers: list[LayerRun],
    prior: Calibration,
    held_out: list[HeldOut],
) -> Errors:
    """Errors of the vLLM runs, each predicted by a fit without its group; and of every group on its own."""
    parts = []
    for group in sorted({key(run) for run in runs}):
        kept = [run for run in runs if key(run) != group]
        layers_kept = layers
        if name == "GPU":
            layers_kept = [layer for layer in layers if layer.gpu.slug != group]
        calibration = fit(with_room(kept), layers_kept, prior, REFERENCE_ENGINE)
        tested = [run for run in runs if key(run) == group]
        held_out.append(HeldOut(name, tested, calibration))
        vllm = [run for run in tested if run.engine == REFERENCE_ENGINE]
        rests_on = f"{len(with_room(kept))} runs, {len(layers_kept)} layer profiles"
        for engine, chosen in ((", vLLM", vllm), (", all", tested)):
            if chosen and (chosen is vllm or len(vllm) < len(tested)):
                print(_errors(f"without {name} {group}{engine}", rests_on, chosen, calibration).line())
        if vllm:
            parts.append(_errors(group, rests_on, vllm, calibration))
    pooled = Errors(
        group=f"leaving one {name} out, all vLLM",
        rests_on="as above, per group",
        req_per_s=np.concatenate([part.req_per_s for part in parts]),
        ttft_s=np.concatenate([part.ttft_s for part in parts]),
        tpot_s=np.concatenate([part.tpot_s for part in parts]),
    )
    print(pooled.line())
    return pooled


def _errors(group: str, rests_on: str, runs: Sequence[ServingRun], calibration: Calibration) -> Errors:
    predicted = predict(run_groups(runs), calibration)
    return Errors(
        group=group,
        rests_on=rests_on,
        req_per_s=_relative(predicted.req_per_s, [run.req_per_s for run in runs]),
        ttft_s=_relative(predicted.ttft_s, [run.ttft_s for run in runs]),
        tpot_s=_relative(predicted.tpot_s, [run.tpot_s for run in runs]),
    )


def _relative(predicted: FloatArray, observed: Iterable[float]) -> FloatArray:
    return np.asarray(np.abs(predicted / np.array(list(observed)) - 1.0))


def _by(runs: Sequence[ServingRun], key: Key) -> dict[str, list[ServingRun]]:
    return {name: [run for run in runs if key(run) == name] for name in sorted({key(run) for run in runs})}


def _beside(path: Path, name: str, read: Callable[[Path], list[Row]]) -> list[Row]:
    beside = path.with_name(name)
    if beside.exists():
        return read(beside)
    print(f"{name} is not beside {path.name}: left out")
    return []


def _with_bands(calibration: Calibration, runs: Sequence[ServingRun], judged: Sequence[Errors]) -> Calibration:
    """GPU classes with serving runs state the worst p90 of leaving a GPU, model, precision or engine out."""
    worst = max(float(np.quantile(errors.req_per_s, 0.9)) for errors in judged)
    band = max(LEAST_BAND, round(1.0 + worst, 2))
    served = {calibration.gpu_class(run.gpu).name for run in runs}
    classes = (replace(one, band=band) if one.name in served else one for one in calibration.gpu_classes)
    return replace(calibration, gpu_classes=tuple(classes))


def _print_simulated(held_out: Sequence[HeldOut], runs: list[ServingRun], shipped: Calibration) -> None:
    """The same runs with the benchmark itself simulated: nothing about waves of prompts is fitted."""
    print("\nThe benchmark itself simulated, client by client (solver/simulation/benchmark.py), by engine; as above")
    print(f"{'group':<38} {'rows':>4}   {'req/s':^13}   {'TTFT':^13}   {'TPOT':^13}")
    cases = [(f"leaving one {name} out", [one for one in held_out if one.name == name]) for name in KEYS]
    cases.append(("shipped factors", [HeldOut("all", runs, shipped)]))
    for title, parts in cases:
        found: dict[str, list[tuple[ServingRun, Benchmarked]]] = {}
        for part in parts:
            for run in part.runs:
                found.setdefault(run.engine, []).append((run, _benchmarked(run, part.calibration)))
        for engine in sorted(found):
            pairs = found[engine]
            errors = [
                _relative(
                    np.array([getattr(simulated, field) for _, simulated in pairs]),
                    [getattr(run, field) for run, _ in pairs],
                )
                for field in ("req_per_s", "ttft_s", "tpot_s")
            ]
            group = f"{title}, {engine}"
            print(f"{group:<38} {len(pairs):>4}   {'   '.join(median_and_p90(one) for one in errors)}")


def _benchmarked(run: ServingRun, calibration: Calibration) -> Benchmarked:
    workload = Workload("w", run.input_tokens, run.output_tokens, 1.0)
    model = ServedModel("w", run.spec, run.precision, run.kv_precision, (workload,))
    layouts = one_layout(run.gpu, tensor_parallel=run.tensor_parallel, pipeline_parallel=1)
    return benchmarked(
        Roofline(calibration, run.engine),
        model,
        with_all_layers(layouts, run.spec.layers),
        concurrency=max(1, round(run.concurrency)),
    )


def _print_layers(layers: list[LayerRun], calibration: Calibration) -> None:
    if not layers:
        return
    errors = _relative(predict_layers(layers, calibration), [layer.seconds for layer in layers])
    print("\nTime of one layer without attention (Vidur), shipped factors: median / p90, percent")
    for slug in sorted({layer.gpu.slug for layer in layers}):
        chosen = errors[[layer.gpu.slug == slug for layer in layers]]
        print(f"  {slug:<36} {len(chosen):>4}   {median_and_p90(chosen)}")


def _print_static(runs: list[ServingRun], calibration: Calibration) -> None:
    if not runs:
        return
    errors = _relative(predict(run_groups(runs), calibration).req_per_s, [run.req_per_s for run in runs])
    print("\nAn engine of 2023 that no factor was fitted on (Splitwise, Llama-2-70B on A100, static batches), req/s:")
    print(f"  {'a100-sxm4-80gb llama-2-70b fp16':<36} {len(runs):>4}   {median_and_p90(errors)}")


def _print_table6(rows: list[Table6Row], calibration: Calibration) -> None:
    if not rows:
        return
    print("\nTable 6 of arXiv 2502.00722 (Llama-3-70B, 2,455 in, 18 out), requests/s; nothing is fitted on it:")
    print(f"  {'GPU':<12} {'TP, PP':<8} {'placement':<14} {'measured':>8} {'roofline':>9} {'low':>7} {'high':>7}")
    for row in rows:
        rate, low, high = _table6_rate(row, calibration)
        degrees = f"{row.tensor_parallel}, {row.pipeline_parallel}"
        numbers = f"{row.req_per_s:8.2f} {rate:9.2f} {low:7.2f} {high:7.2f}"
        print(f"  {row.gpu:<12} {degrees:<8} {row.placement:<14} {numbers}")


def _table6_rate(row: Table6Row, calibration: Calibration) -> tuple[float, float, float]:
    spec = resolve_model("llama-3-70b")
    model = ServedModel("llama-3-70b", spec, "bf16", "bf16", (TABLE6_REQUEST,))
    gpus = tuple(resolve_gpu(name) for name in TABLE6_GPUS[row.gpu])
    shape = (1, row.pipeline_parallel)
    gpu = np.arange(row.pipeline_parallel)[None, :] * len(gpus) // row.pipeline_parallel
    links = np.array([one.link_gb_per_s or 0.0 for one in gpus])[gpu]
    crossing = np.zeros(shape, dtype=np.bool_)
    if row.placement == "cross machine":
        crossing[0, row.pipeline_parallel // 2 - 1] = True
    hop = np.where(crossing, TABLE6_CROSS_MACHINE_GB_PER_S, links)
    hop[0, -1] = np.inf
    layouts = Layouts(gpus, gpu, np.full(shape, row.tensor_parallel), links, hop, crossing)
    rates = Roofline(calibration).rates(model, layouts, utilisation_fraction=1.0)
    return float(rates.rps[0, 0]), float(rates.low_rps[0, 0]), float(rates.high_rps[0, 0])


if __name__ == "__main__":
    sys.exit(main())
