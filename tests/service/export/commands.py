"""What the exported texts start, read back by the rules of each format."""

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

import yaml

HEAD: Final = "HEAD"
_ADDRESS: Final = r"\$\{RENTAL_\d+_MACHINE_\d+_ADDRESS:\?set it to the IP address of rental-\d+-machine-\d+\}"
_IN_SHELL: Final = re.compile(rf'"{_ADDRESS}"|"\$\{{nodes\[\d+\]\}}"')
_IN_COMPOSE: Final = re.compile(_ADDRESS)
_IN_POD: Final = re.compile(r"\$\(LWS_(?:LEADER_ADDRESS|WORKER_INDEX)\)")


def in_shell(script: str) -> list[tuple[dict[str, str], list[str]]]:
    """Assignments and words of every `vllm serve` in a script; references to heads read HEAD."""
    words = shlex.split(_IN_SHELL.sub(HEAD, script), comments=True)
    starts = [number for number in range(len(words)) if words[number : number + 2] == ["vllm", "serve"]]
    found = []
    for start, following in zip(starts, [*starts[1:], len(words)], strict=True):
        end = max(number for number in range(start, following) if words[number] == "&")  # an earlier one is text
        first = start
        while re.match(r"[A-Za-z_]\w*=", words[first - 1]):
            first -= 1
        found.append((dict(word.split("=", 1) for word in words[first:start]), words[start:end]))
    return found


def in_compose(text: str) -> dict[str, tuple[dict[str, str], list[str]]]:
    """Variables with a value and words of every service, after Compose's interpolation."""
    services = yaml.safe_load(text)["services"]
    return {name: (_compose_environment(service), _compose_words(service)) for name, service in services.items()}


def interpolated(value: str) -> str:
    """As Compose does it: $$ is a dollar, references read HEAD, anything else with a dollar is an error.

    https://github.com/compose-spec/compose-spec/blob/main/12-interpolation.md
    """

    def replaced(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        assert _IN_COMPOSE.fullmatch(match.group()), f"Compose would replace {match.group()!r} in {value!r}"
        return HEAD

    return re.sub(r"\$\$|\$\{[^}]*\}|\$", replaced, value)


def _compose_environment(service: dict[str, Any]) -> dict[str, str]:
    return {name: interpolated(value) for name, value in service["environment"].items() if value is not None}


def _compose_words(service: dict[str, Any]) -> list[str]:
    return [interpolated(word) for word in [*service["entrypoint"], *service["command"]]]


def pods(text: str) -> Iterator[dict[str, Any]]:
    """Every pod template, heads first."""
    for document in yaml.safe_load_all(text):
        if document["kind"] == "Deployment":
            yield document["spec"]["template"]
        elif document["kind"] == "LeaderWorkerSet":
            group = document["spec"]["leaderWorkerTemplate"]
            yield from (group["leaderTemplate"], group["workerTemplate"])


def in_pod(pod: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Variables with a value and words of a pod's container, after Kubernetes' expansion of $(NAME)."""
    (container,) = pod["spec"]["containers"]
    environment = {item["name"]: expanded(item["value"]) for item in container["env"] if "value" in item}
    return environment, [expanded(word) for word in [*container["command"], *container["args"]]]


def expanded(value: str) -> str:
    """As Kubernetes does it: $$ is a dollar, $(NAME) a variable, any other dollar stands for itself.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (args)
    """

    def replaced(match: re.Match[str]) -> str:
        if match.group() == "$$":
            return "$"
        assert _IN_POD.fullmatch(match.group()), f"Kubernetes would replace {match.group()!r} in {value!r}"
        return HEAD

    return re.sub(r"\$\$|\$\([^)]*\)", replaced, value)
