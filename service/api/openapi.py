"""The OpenAPI document: FastAPI's, with the schemas of the bodies that `bodies` reads itself."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from sutler.service.web.bodies import described
from sutler.service.web.problems import ProblemDetails
from sutler.solver.version import VERSION

REFERENCE: Final = "#/components/schemas/{model}"
DESCRIPTION: Final = """Plans which GPUs to rent, how to deploy LLMs on them and where to route each workload.

Units are in the names: seconds, USD per hour, requests per second. Times are RFC 3339 in UTC. Errors are RFC 9457
problems. Lists are `{items, next}`: give `next` as `cursor` for the following page.
"""


def document_of(app: FastAPI) -> dict[str, Any]:
    """The document, made once and kept."""
    if app.openapi_schema is None:
        app.openapi_schema = _made(app)
    return app.openapi_schema


def _made(app: FastAPI) -> dict[str, Any]:
    made = get_openapi(title="sutler", version=VERSION, description=DESCRIPTION, routes=app.routes)
    wanted = [*((kind, "validation") for kind in described), (ProblemDetails, "serialization")]
    _, bodies = models_json_schema(wanted, ref_template=REFERENCE)  # type: ignore[arg-type]
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in bodies["$defs"].items():
        schemas.setdefault(name, schema)
    for path in made["paths"].values():
        for operation in path.values():
            _without_own_errors(operation)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return made


def _without_own_errors(operation: dict[str, Any]) -> None:
    """FastAPI documents its own 422, which is a problem here like all others."""
    described_as = operation.get("responses", {}).get("422", {}).get("content", {})
    described_as.pop("application/json", None)
