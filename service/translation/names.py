"""What names of GPUs and models mean: the catalogue's, and those that a problem of the caller's own describes.

Flow: service/profiles, estimates.py -> Names -> Gpu, ModelSpec.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.given_models import given_spec
from sutler.service.translation.gpu_choice import NEEDED_FOR_ESTIMATES, own_gpus
from sutler.solver.catalog import Gpu, ModelSpec, resolve_gpu, resolve_model
from sutler.solver.errors import UnknownNameError


@dataclass(frozen=True, slots=True)
class Names:
    """GPUs by slug and models by the problem's names for them, before those of the catalogue."""

    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    models: Mapping[str, ModelSpec] = field(default_factory=dict)

    def gpu(self, name: str, *, field: str = "gpu") -> Gpu:
        """Returns the GPU. Raises UnknownNameError, and DocumentError for one without the figures that estimates
        need."""
        own = self.gpus.get(name)
        lacking = [figure for figure in NEEDED_FOR_ESTIMATES if own is not None and getattr(own, figure) is None]
        if lacking:
            raise DocumentError.of(f"gpus.{name}.{lacking[0]}", "is missing: estimates need it")
        return own or resolve_gpu(name, field=field)

    def model(self, name: str, *, field: str = "model") -> ModelSpec:
        """Returns the model. Raises UnknownNameError."""
        return self.models.get(name) or resolve_model(name, field=field)

    def has(self, gpu: str, model: str) -> bool:
        """Whether both are known: the catalogue may lose what an older one had."""
        try:
            self.gpu(gpu)
            self.model(model)
        except UnknownNameError:
            return False
        return True


CATALOGUE: Final = Names()


def names_of(document: ProblemDocument, folder: Path | None = None) -> Names:
    """Returns what the problem describes itself; paths are relative to `folder` (None: refused).

    Raises DocumentError and InvalidProblemError naming the field.
    """
    models = {
        model.name: given_spec(f"models[{at}].model", model.name, model.model, folder, [])
        for at, model in enumerate(document.models)
        if not isinstance(model.model, str)
    }
    return Names(own_gpus(document), models)
