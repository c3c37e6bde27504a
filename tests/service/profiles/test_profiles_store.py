"""Profiles and calibrations in a real store: kept once, found again, numbered."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.validation import validate
from sutler.service.profiles.checks import Given
from sutler.service.profiles.errors import NoSuchProfileError, NothingToFitError
from sutler.service.profiles.layer_rows import LayerRow, written
from sutler.service.profiles.repository import RunFilter
from sutler.service.profiles.service import ProfilesService, run_filter
from sutler.service.profiles.simulated import first_token_error, protocol_of_run
from sutler.service.translation.calibrations import calibration_of
from tests.service.profiles.builders import HEADER, a_table

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def service(engine: Engine) -> ProfilesService:
    return ProfilesService(engine, now=lambda: NOW)


def imported(service: ProfilesService, text: str, given: Given | None = None) -> tuple[int, int, int]:
    found = service.import_file("runs.csv", text.encode(), given or Given())
    return found.kept, found.new, len(found.rejected)


def test_a_file_that_is_imported_twice_is_kept_once(service: ProfilesService) -> None:
    assert imported(service, a_table()) == (8, 8, 0)
    assert imported(service, a_table()) == (8, 0, 0)
    (profile,) = service.profiles()
    assert (profile.runs, profile.tensor_parallel, profile.imported_from) == (8, (1,), ("runs.csv",))
    assert len(service.runs(profile)) == 8


def test_what_a_file_says_of_its_benchmark_is_kept_and_is_no_other_run(service: ProfilesService) -> None:
    header, *rows = a_table().splitlines()
    described = [f"{header},length_spread_fraction", *(f"{row},0.25" for row in rows)]
    assert imported(service, "\n".join(described)) == (8, 8, 0)
    assert imported(service, a_table()) == (8, 0, 0)
    (profile,) = service.profiles()
    runs = service.runs(profile)
    assert {run.length_spread_fraction for run in runs} == {0.25}
    assert {protocol_of_run(run).spread_fraction for run in runs} == {0.25}
    assert all(-1 < first_token_error(run) < 10 for run in runs)


def test_arrivals_at_random_are_simulated_as_such(service: ProfilesService) -> None:
    imported(service, a_table())
    (profile,) = service.profiles()
    run = replace(service.runs(profile)[0], completed=320)
    random = replace(run, request_rate_rps=0.3 * run.req_per_s, concurrency=8.0)
    assert protocol_of_run(run).requests_per_client == round(320 / run.concurrency)
    assert protocol_of_run(random).request_rate_rps == pytest.approx(0.3 * run.req_per_s)
    assert first_token_error(random) < first_token_error(run)  # who comes alone waits for nobody


def test_runs_that_are_refused_do_not_lose_the_others(service: ProfilesService) -> None:
    rows = a_table().splitlines()
    rows[3] = rows[3].replace("h100-sxm", "h1000")
    found = service.import_file("runs.csv", "\n".join(rows).encode(), Given())
    assert (found.kept, found.new) == (7, 7)
    assert [run.place for run in found.rejected] == ["row 4"]


def test_versions_of_an_engine_are_profiles_of_their_own(service: ProfilesService) -> None:
    imported(service, a_table(version="0.10"))
    imported(service, a_table(0.9, version="0.11"))
    assert [one.key.engine_version for one in service.profiles()] == ["0.10", "0.11"]
    assert len(service.profiles(RunFilter(engine_version="0.11"))) == 1
    assert len({one.key.id for one in service.profiles()}) == 2


def test_a_profile_is_found_by_the_beginning_of_its_id_and_can_be_forgotten(service: ProfilesService) -> None:
    imported(service, a_table())
    (profile,) = service.profiles()
    assert service.profile(profile.key.id[:4]) == profile
    assert service.delete(profile) == 8
    with pytest.raises(NoSuchProfileError, match="profiles list"):
        service.profile(profile.key.id)


@pytest.mark.slow
def test_calibrations_count_up_and_the_newest_is_what_a_name_means(service: ProfilesService) -> None:
    imported(service, a_table())
    first = service.keep(service.calibrate("mine", RunFilter())).document
    second = service.keep(service.calibrate("mine", RunFilter())).document
    assert (first.revision, second.revision) == (1, 2)
    assert service.calibration("mine") == second
    assert [one.name for one in service.calibrations()] == ["mine"]
    with pytest.raises(NoSuchProfileError, match="use one of mine"):
        service.calibration("yours")


def test_eight_runs_of_a_slower_stack_are_learned(service: ProfilesService) -> None:
    imported(service, a_table(0.7))
    made = service.calibrate("mine", RunFilter())
    document = made.document
    assert document.before is not None
    assert document.left_out is not None
    assert document.before.req_per_s_median_fraction == pytest.approx(1 / 0.7 - 1, rel=0.01)
    assert (document.left_out.req_per_s_median_fraction or 1) < 0.1
    assert (document.engine, document.engine_versions, document.runs) == ("vllm", ("0.11.0",), 8)
    assert made.notes == ()


def test_a_calibration_comes_back_from_the_store_as_it_went_in(service: ProfilesService) -> None:
    imported(service, a_table(0.7, in_flight=(1, 32)))
    made = service.keep(service.calibrate("mine", RunFilter()))
    stored = calibration_of(service.calibration("mine"))
    fitted = made.result.calibration
    assert stored.factors == fitted.factors
    assert stored.gpu_classes == fitted.gpu_classes
    assert stored.engines == fitted.engines
    assert [stored.kernels_at(*one.key) for one in fitted.kernels] == list(fitted.kernels)
    assert stored.corrections is not None
    assert fitted.corrections is not None
    assert stored.corrections.share == fitted.corrections.share
    assert stored.corrections.weights == pytest.approx(fitted.corrections.weights)
    assert stored.corrections.phases is not None
    assert fitted.corrections.phases is not None
    assert stored.corrections.phases.weights == pytest.approx(fitted.corrections.phases.weights)
    assert stored.name == "mine (revision 1)"
    text = made.document.model_dump_json(by_alias=True)
    assert CalibrationDocument.model_validate_json(text) == made.document


def test_engines_are_calibrated_one_by_one(service: ProfilesService) -> None:
    imported(service, a_table())
    imported(service, a_table(engine="sglang"))
    with pytest.raises(NothingToFitError, match="--engine"):
        service.calibrate("mine", RunFilter())
    assert service.calibrate("mine", run_filter(engine="SGLang")).document.engine == "sglang"


def test_mixed_versions_are_noted_and_nothing_is_an_error(service: ProfilesService) -> None:
    imported(service, a_table(version="0.10"))
    imported(service, a_table(version="0.11"))
    assert "0.10, 0.11" in service.calibrate("mine", RunFilter()).notes[0]
    with pytest.raises(NothingToFitError, match="profiles import"):
        service.calibrate("mine", RunFilter(gpu="a40"))


@pytest.mark.slow
def test_runs_of_old_versions_are_calibrated_apart_from_the_factors_of_their_time(service: ProfilesService) -> None:
    imported(service, a_table(version="0.11"))
    imported(service, a_table(0.8, engine="vllm", version="0.6.3"))
    with pytest.raises(NothingToFitError, match=r"vllm, vllm before 0.7"):
        service.calibrate("mine", RunFilter())
    old = service.calibrate("mine", RunFilter(engine_version="0.6.3"))
    assert old.document.engine == "vllm-2024"
    assert calibration_of(old.document).serves == "vllm-2024"
    assert service.calibrate("mine", RunFilter(engine_version="0.11")).document.engine == "vllm"


def test_pipelines_are_kept_but_not_fitted_to(service: ProfilesService) -> None:
    imported(service, a_table())
    imported(service, a_table(), Given(pipeline_parallel=2))
    made = service.calibrate("mine", RunFilter())
    assert made.document.runs == 8
    assert made.notes == ("8 runs of pipelines are left out: a calibration is fitted to runs of one stage",)


def a_layer(phase: str, seconds: float, **others: object) -> LayerRow:
    fields: dict[str, object] = {
        "gpu": "l40s",
        "model": "llama-3.1-8b",
        "precision": "bf16",
        "kv_precision": "bf16",
        "tp": 1,
        "phase": phase,
        "new_tokens": 1024,
        "batch": 1,
        "context_tokens": 1024,
        "attention": "included",
        "seconds": seconds,
        "repetitions": 10,
        "spread_fraction": 0.01,
        "bytes": None,
        "torch": "2.9",
        "cuda": "12.8",
        "driver": "580",
        "measured_at": NOW,
        **others,
    }
    return LayerRow(**fields)  # type: ignore[arg-type]


def test_times_of_layers_are_kept_and_fitted_to(service: ProfilesService) -> None:
    rows = [
        a_layer("prefill", 0.004),
        a_layer("prefill", 0.0035, attention="excluded", context_tokens=0),
        a_layer("decode", 0.0008, new_tokens=1, batch=16),
        a_layer("all_reduce", 0.0001, attention="excluded", context_tokens=0, bytes=8192, tp=2),
    ]
    found = service.import_file("profile.csv", written(rows), Given())
    assert (found.format, found.kept, found.new) == ("layer times", 4, 4)
    assert service.import_file("profile.csv", written(rows), Given()).new == 0
    document = service.keep(service.calibrate("layers", RunFilter())).document
    assert (document.runs, document.layer_times, document.left_out) == (0, 3, None)
    odd = [a_layer("prefill", 0.004, gpu="foo"), a_layer("prefill", 0.005, gpu="cpu"), a_layer("prefill", 0.006)]
    again = service.import_file("odd.csv", written(odd), Given())
    assert (again.kept, [run.place for run in again.rejected]) == (1, ["row 1", "row 2"])
    assert validate(CalibrationDocument, document.model_dump(mode="json", by_alias=True)) == document


def test_calibrations_of_one_name_at_once_each_get_a_revision(service: ProfilesService) -> None:
    imported(service, a_table())
    made = service.calibrate("mine", RunFilter())
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(lambda _: service.keep(made).document.revision, range(12)))
    assert sorted(kept) == list(range(1, 13))


def test_runs_without_room_and_without_others_are_nothing_to_fit(service: ProfilesService) -> None:
    row = "h100-sxm,llama-3.1-70b,bf16,vllm,0.11,2,512,128,4,0.4,0.5,0.075"
    assert imported(service, f"{HEADER}\n{row}\n") == (1, 1, 0)
    with pytest.raises(NothingToFitError):
        service.calibrate("mine", RunFilter())
    imported(service, a_table())
    assert "leave no room" in service.calibrate("mine", RunFilter()).notes[0]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "1970-01-01"])
def test_times_before_there_were_such_engines_are_refused(service: ProfilesService, time: str) -> None:
    header, row, *_ = a_table().splitlines()
    rows = f"{header},measured_at\n{row},{time}\n{row},2026-11-01T10:00:00Z\n"
    assert imported(service, rows) == (1, 1, 1)
