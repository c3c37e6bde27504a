"""The front door of profiles and calibrations: command line and API come here, with names as people spell them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Engine, select

from sutler.service.db.api_tables import ProjectRow
from sutler.service.db.engine import connected, transaction
from sutler.service.db.projects import of_project
from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from sutler.service.profiles import repository
from sutler.service.profiles.calibrating import Calibrated, calibrated
from sutler.service.profiles.checks import Given, checked
from sutler.service.profiles.errors import NoSuchProfileError
from sutler.service.profiles.layer_rows import is_layer_file, read, row_of, unknown_name
from sutler.service.profiles.readers import RejectedRun, RunsRead, read_runs
from sutler.service.profiles.repository import Profile, RunFilter
from sutler.service.profiles.runs import ProfileKey, ProfileRun
from sutler.service.translation.estimates import engine_of, precision_of
from sutler.service.translation.names import CATALOGUE, Names

ANY: Final = RunFilter()
NOTHING_GIVEN: Final = Given()


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of a file: how many of `kept` rows were `new` to the store, and which were refused."""

    file: str
    format: str
    kept: int
    new: int
    profiles: tuple[ProfileKey, ...]
    rejected: tuple[RejectedRun, ...]


@dataclass(frozen=True, slots=True)
class ProfilesService:
    """Profiles and calibrations of one store; `of` says of which project."""

    engine: Engine
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    names: Names = CATALOGUE
    """What names of GPUs and models mean."""

    def of(self, project: str) -> "ProfilesService":
        """The same for this project."""
        return replace(self, engine=of_project(self.engine, project))

    def check(self, project: str) -> None:
        """Raises DocumentError where there is no such project."""
        with connected(self.engine) as connection:
            if connection.scalar(select(ProjectRow.name).where(ProjectRow.name == project)) is None:
                raise DocumentError.of("SUTLER_PROJECT", "is none: `sutler projects list` shows all", value=project)

    def import_file(self, name: str, content: bytes, given: Given) -> Imported:
        """Benchmark runs, or the layer times of `sutler profile`; all that pass the checks, or nothing.

        Raises DocumentError for a file that cannot be read at all, DatabaseError.
        """
        name = name.encode(errors="replace").decode()  # what a file system allows, a database may not
        if is_layer_file(content):
            return self._import_layers(name, content)
        return self.import_runs(name, read_runs(content, name=name), given)

    def import_runs(self, name: str, found: RunsRead, given: Given = NOTHING_GIVEN) -> Imported:
        """Runs that are read already: all that pass the checks, or nothing. Raises DatabaseError."""
        runs, rejected = self.judged(found, given)
        with transaction(self.engine) as connection:
            new = repository.add_runs(connection, runs, name)
        keys = tuple(dict.fromkeys(run.key for run in runs))
        return Imported(name, found.format, len(runs), new, keys, (*found.rejected, *rejected))

    def judged(
        self, found: RunsRead, given: Given = NOTHING_GIVEN
    ) -> tuple[tuple[ProfileRun, ...], tuple[RejectedRun, ...]]:
        """What would be kept of these runs, and what not."""
        judged = [checked(run, given, self.names) for run in found.runs]
        runs = tuple(one for one in judged if isinstance(one, ProfileRun))
        return runs, tuple(one for one in judged if isinstance(one, RejectedRun))

    def _import_layers(self, name: str, content: bytes) -> Imported:
        rows = list(enumerate(read(content, field=name), start=1))
        problems = {number: reason for number, row in rows if (reason := unknown_name(row, self.names))}
        layers = [row for number, row in rows if number not in problems]
        rejected = tuple(RejectedRun(f"row {number}", (reason,)) for number, reason in problems.items())
        with transaction(self.engine) as connection:
            new = repository.add_layers(connection, layers, name)
        return Imported(name, "layer times", len(layers), new, (), rejected)

    def profiles(self, wanted: RunFilter = ANY) -> list[Profile]:
        """What is stored. Raises DatabaseError."""
        with connected(self.engine) as connection:
            return repository.profiles(connection, wanted)

    def profile(self, profile_id: str) -> Profile:
        """The profile of this id, or of this beginning of one. Raises NoSuchProfileError, DatabaseError."""
        known = self.profiles()
        found = [one for one in known if one.key.id.startswith(profile_id)]
        if len(found) != 1:
            reason = f"{profile_id!r} is {'the beginning of several profiles' if found else 'no profile'}"
            raise NoSuchProfileError(reason, "name one by its id (`sutler profiles list`)")
        return found[0]

    def runs(self, profile: Profile) -> list[ProfileRun]:
        """The runs of a profile. Raises DatabaseError."""
        key = profile.key
        wanted = RunFilter(key.gpu, key.model, key.precision, key.engine, key.engine_version)
        with connected(self.engine) as connection:
            return [run for run in repository.runs_of(connection, wanted) if run.key == key]

    def delete(self, profile: Profile) -> int:
        """Deletes the runs of a profile. Returns how many are gone. Raises DatabaseError."""
        with transaction(self.engine) as connection:
            return repository.delete_profile(connection, profile.key)

    def calibrate(self, name: str, wanted: RunFilter, besides: Sequence[ProfileRun] = ()) -> Calibrated:
        """Fits, also to runs `besides` those in the store; `keep` stores. Raises NothingToFitError, DatabaseError."""
        with connected(self.engine) as connection:
            stored = repository.runs_of(connection, wanted)
            rows = repository.layers_of(connection, wanted)
        runs = list({run.digest: run for run in (*stored, *besides)}.values())
        return calibrated(name, runs, [row_of(row) for row in rows], now=self.now(), names=self.names)

    def keep(self, made: Calibrated) -> Calibrated:
        """Stores a calibration. Returns it with the revision that it got. Raises DatabaseError."""
        document = made.document
        content = document.model_dump(mode="json", by_alias=True)
        with transaction(self.engine) as connection:
            revision = repository.add_calibration(connection, document.name, content)
        return replace(made, document=document.model_copy(update={"revision": revision}))

    def calibration(self, name: str) -> CalibrationDocument:
        """The newest calibration of that name. Raises NoSuchProfileError, DatabaseError."""
        with connected(self.engine) as connection:
            found = connection.execute(repository.newest_calibration(name)).scalar_one_or_none()
        if found is None:
            raise no_calibration(name, [one.name for one in self.calibrations()])
        return validate(CalibrationDocument, found)

    def calibrations(self) -> Sequence[CalibrationDocument]:
        """The newest calibration of every name. Raises DatabaseError."""
        with connected(self.engine) as connection:
            found = connection.scalars(repository.calibrations()).all()
        return [validate(CalibrationDocument, one) for one in found]


def no_calibration(name: str, known: Sequence[str]) -> NoSuchProfileError:
    """What to say of a name that no calibration has."""
    remedy = f"use one of {', '.join(known)}" if known else "make one with `sutler calibrate`"
    return NoSuchProfileError(f"there is no calibration {name!r}", remedy)


def run_filter(
    *,
    gpu: str | None = None,
    model: str | None = None,
    precision: str | None = None,
    engine: str | None = None,
    engine_version: str | None = None,
    names: Names = CATALOGUE,
) -> RunFilter:
    """The filter; None: any. Raises UnknownNameError, DocumentError."""
    return RunFilter(
        gpu=None if gpu is None else names.gpu(gpu, field="--gpu").slug,
        model=None if model is None else names.model(model, field="--model").id,
        precision=None if precision is None else precision_of("--precision", precision),
        engine=None if engine is None else engine_of(engine),
        engine_version=engine_version,
    )
