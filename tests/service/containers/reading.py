"""docker-compose.yml as Compose reads it, and its containers as processes of this machine, without Docker."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[3]
FILE: Final = ROOT / "docker-compose.yml"
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "sutler": (sys.executable, "-m", "sutler"),
    "python": (sys.executable,),
}
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:[-?+])([^}]*))?\})")
_SECONDS: Final = {"s": 1, "m": 60}


def compose(**variables: str) -> dict[str, Any]:
    """The file with its variables filled in. Raises KeyError for one that must be given."""
    filled: dict[str, Any] = _filled(yaml.safe_load(FILE.read_text(encoding="utf-8")), variables)
    return filled


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    return _VARIABLE.sub(lambda found: _value(found, variables), value) if isinstance(value, str) else value


def _value(found: "re.Match[str]", variables: Mapping[str, str]) -> str:
    dollar, name, operator, usual = found.groups()
    if dollar:
        return "$"
    if operator == ":+":
        return usual if variables.get(name) else ""
    return variables.get(name) or usual if operator == ":-" else variables[name]


def seconds(duration: str) -> int:
    """`45s`, `2m`."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


def words(service: Mapping[str, Any], *arguments: str) -> list[str]:
    """What a container of this service runs; `arguments` stand in for its command, as in `docker compose run`."""
    program, *first = service.get("entrypoint", ["sutler"])
    return [*PROGRAMS[program], *first, *(arguments or service["command"])]


def ran(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """To its end."""
    return subprocess.run(
        command, env=dict(environment), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


PASSWORD: Final = "p@ss/word:1#2 $x%40"
COMPOSE: Final = compose(POSTGRES_PASSWORD=PASSWORD)
SERVICES: Final[dict[str, Any]] = COMPOSE["services"]
ROLES: Final = ("api", "worker", "scheduler")
STAGES: Final = re.split(r"(?m)^FROM ", (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " "))[1:]
