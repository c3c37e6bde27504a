"""Links of the OpenAPI document: which calls can follow an answer, and with which part of it."""

from typing import Any, Final


def _links(parameter: str, value: str, *operations: str) -> dict[str, Any]:
    return {name: {"operationId": name, "parameters": {parameter: value}} for name in operations}


def links_to(parameter: str, *operations: str) -> dict[str, Any]:
    """From an answer with an id to the operations on it."""
    return _links(parameter, "$response.body#/id", *operations)


TO_THE_PLAN: Final = _links("plan_id", "$response.body#/id", "get_plan", "get_problem", "export_plan", "cancel_plan")
TO_THE_OFFLINE_PLAN: Final = _links(
    "plan_id",
    "$response.body#/id",
    "get_offline_plan",
    "get_application",
    "list_offline_revisions",
    "adjust_offline_plan",
    "cancel_offline_plan",
)
TO_THE_DEPLOYMENT: Final = _links(
    "name",
    "$response.body#/name",
    "get_deployment",
    "get_current_plan",
    "list_deployment_plans",
    "get_terraform_state",
    "replan",
    "delete_deployment",
)
