"""From the document of an offline plan back to what a simulation or an adjustment needs.

Flow: plan_issue.py -> file or store -> planned_application, planned_hardware, planned_schedule (here) ->
solver/offline. Architectures and GPUs are those that the plan holds, whatever became of the catalogue.
"""

from collections.abc import Mapping

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.plan_schema import OfflinePlanDocument, ScheduledStage
from sutler.service.offline.translate import to_application, to_loading
from sutler.service.translation.given_models import inline_spec
from sutler.solver.catalog.entries import Gpu
from sutler.solver.offline.application import Application
from sutler.solver.offline.hardware import Hardware, Island
from sutler.solver.offline.stages import ExecutionPlan, Schedule, ScheduleStage


def planned_application(document: OfflinePlanDocument) -> Application:
    """The application that the plan is for, with the architectures it was made with."""
    specs = {model.name: inline_spec(model.model, model.architecture) for model in document.models}
    return to_application(document.application, specs=specs)


def planned_hardware(document: OfflinePlanDocument) -> Hardware:
    """The GPUs that the plan runs on. Raises DocumentError for a plan without."""
    given = document.hardware
    if given is None:
        raise DocumentError.of("hardware", f"the plan is {document.status} and runs on nothing: plan anew")
    gpu = Gpu(slug=given.gpu, **given.figures.model_dump())
    islands = tuple(Island(island.host, island.gpus, island.gb_per_s) for island in given.islands)
    return Hardware(gpu, islands, given.across_gb_per_s, to_loading(given.loading))


def planned_schedule(document: OfflinePlanDocument) -> Schedule:
    """What was planned. Raises DocumentError where it names a model that the plan does not have."""
    numbers = model_numbers(document)
    return tuple(_stage(f"schedule[{i}]", stage, numbers) for i, stage in enumerate(document.schedule))


def model_numbers(document: OfflinePlanDocument) -> dict[str, int]:
    """What the solver calls the models of a plan, by their names."""
    return {model.name: number for number, model in enumerate(document.models)}


def number_of(field: str, name: str, numbers: Mapping[str, int]) -> int:
    """The number of a model. Raises DocumentError, naming the field, for one that the plan does not have."""
    if name not in numbers:
        raise DocumentError.of(field, f"is no model of this plan: use {', '.join(numbers)}", value=name)
    return numbers[name]


def _stage(at: str, stage: ScheduledStage, numbers: Mapping[str, int]) -> ScheduleStage:
    plans = {
        number_of(f"{at}.models[{i}].model", model.model, numbers): ExecutionPlan(
            model.data_parallel, model.tensor_parallel
        )
        for i, model in enumerate(stage.models)
    }
    if stage.until is None:
        return ScheduleStage(plans)
    return ScheduleStage(plans, number_of(f"{at}.until.model", stage.until.model, numbers), stage.until.fraction)
