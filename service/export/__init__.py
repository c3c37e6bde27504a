"""How to run a plan: pure functions from a plan document to the text of one format, the same text every time."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.export.compose import compose_text
from sutler.service.export.envoy import envoy_text
from sutler.service.export.kubernetes import kubernetes_text
from sutler.service.export.layout import FIRST_PORT, Layout, further_arguments, layout_of, obstacle_of, refuse
from sutler.service.export.nginx import nginx_text
from sutler.service.export.result import FORMATS, ROUTERS, Exported, ExportFormat, NothingToRunError
from sutler.service.export.router import router_text
from sutler.service.export.skypilot import skypilot_text
from sutler.service.export.vllm_script import script_text

__all__ = ["FORMATS", "ROUTERS", "ExportFormat", "Exported", "NothingToRunError", "exported"]

Writer = Callable[[Layout], tuple[str, tuple[str, ...]]]
YAML: Final = "application/yaml"  # https://www.rfc-editor.org/rfc/rfc9512

_WRITERS: Final[Mapping[ExportFormat, tuple[Writer, str, str]]] = {
    "vllm": (script_text, "text/x-shellscript", "sh"),
    "compose": (compose_text, YAML, "compose.yaml"),
    "kubernetes": (kubernetes_text, YAML, "kubernetes.yaml"),
    "skypilot": (skypilot_text, YAML, "skypilot.yaml"),
    "router": (router_text, "application/json", "router.json"),
    "envoy": (envoy_text, "application/json", "envoy.json"),
    "nginx": (nginx_text, "text/plain", "nginx.conf"),
}


def exported(
    plan: PlanDocument, format: ExportFormat, *, port: int = FIRST_PORT, arguments: Sequence[str] = ()
) -> Exported:
    """How to run the whole plan with its engines, in one of FORMATS.

    `port`: of the first server on every machine, the others count on from there. `arguments`: of all servers besides,
    as NAME=VALUE by vLLM's names with true or false for switches; they win over those of the plan.

    Raises NothingToRunError for a plan that runs nothing, and DocumentError naming every replica that the format
    cannot start, or the parts of the plan that contradict each other.
    """
    write, media_type, ending = _WRITERS[format]
    if format == "kubernetes" and port != FIRST_PORT:
        remedy = f"kubernetes gives every server an address of its own, at {FIRST_PORT}: leave it out"
        raise DocumentError.of("port", remedy, value=port)
    layout = layout_of(plan, may_sleep=format in ROUTERS, first_port=port, further=further_arguments(arguments))
    if format not in ROUTERS:
        refuse(layout, format, {replica.id: obstacle_of(replica) for replica in plan.replicas})
    content, warnings = write(layout)
    filename = f"sutler-{plan.id}-{plan.revision}.{ending}"
    return Exported(format, media_type, content, filename, (*layout.warnings, *warnings))
