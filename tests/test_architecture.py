"""The house rules that a syntax tree can show: who imports whom, who reads the environment, the clock, the terminal.

solver and adapters are leaves; service is where they meet. Every rule is also shown a source that breaks it.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("solver", "adapters", "service", "migrations")

# What a package may import beside the standard library and itself.
ALLOWED_IMPORTS = {
    "solver": {"numpy", "scipy", "ortools"},
    "adapters": {"requests", "pydantic"},
}
# Optional dependencies, imported lazily in one file each.
OPTIONAL_IMPORTS = {
    "aiconfigurator_core": "solver",
    "torch": "solver",
    "gpuhunt": "adapters",
    "matplotlib": "service",
}
# What a package may know of another; without a line here, all or, for leaves, nothing.
KNOWN_PARTS = {"migrations": {"service": "service.db"}}
FORBIDDEN_IMPORTS = {"service": {"ortools"}, "solver": {"service", "adapters"}, "adapters": {"service", "solver"}}
ONLY_READER_OF_THE_ENVIRONMENT = "service/settings.py"
# Modules of one cloud each: those that define what the registry lists.
CLOUDS = {path.stem for path in (ROOT / "adapters").glob("*.py") if "\nPROVIDER: Final" in path.read_text("utf-8")}

IMPORTS = (ast.Import, ast.ImportFrom)

Rule = Callable[[str, ast.Module], Iterator[str]]


def sources(*packages: str) -> dict[str, ast.Module]:
    """Syntax trees by path relative to the root."""
    paths = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def foreign_imports(path: str, tree: ast.Module) -> Iterator[str]:
    """Imports that the package of `path` may not have."""
    package = path.partition("/")[0]
    eager = {module for node in tree.body if isinstance(node, IMPORTS) for module in imported_modules(node)}
    for module in imported_modules(tree):
        top = module.partition(".")[0]
        lazy = module not in eager and OPTIONAL_IMPORTS.get(top) == package
        if top in FORBIDDEN_IMPORTS.get(package, set()):
            yield f"{path} imports {module}: {package} may not know {top}"
        elif package == "service" and top == "adapters" and CLOUDS & set(module.split(".")):
            yield f"{path} imports {module}: service knows no particular cloud"
        elif not f"{module}.".startswith(f"{KNOWN_PARTS.get(package, {}).get(top, top)}."):
            yield f"{path} imports {module}: {package} may know only {KNOWN_PARTS[package][top]} of {top}"
        elif package in ALLOWED_IMPORTS and not lazy and top not in known_to(package):
            yield f"{path} imports {module}: {package} may import only {sorted(ALLOWED_IMPORTS[package])}"


def known_to(package: str) -> set[str]:
    return {*sys.stdlib_module_names, *ALLOWED_IMPORTS[package], package}


def environment_reads(path: str, tree: ast.Module) -> Iterator[str]:
    if path == ONLY_READER_OF_THE_ENVIRONMENT:
        return
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in names:
            yield f"{path}:{node.lineno} reads the environment: only {ONLY_READER_OF_THE_ENVIRONMENT} may"
        elif isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names}:
            yield f"{path}:{node.lineno} imports the environment: only {ONLY_READER_OF_THE_ENVIRONMENT} may"


def prints(path: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{path}:{node.lineno} prints: the solver reports through its plan and on_progress"


def clock_reads(path: str, tree: ast.Module) -> Iterator[str]:
    """Calls of `time.*` and of `now`; a default argument `clock=time.monotonic` is a reference, not a call."""
    timers = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        of_time = (
            isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "time"
        )
        now = isinstance(called, ast.Attribute) and called.attr in {"now", "utcnow", "today"}
        if of_time or now or (isinstance(called, ast.Name) and called.id in timers):
            yield f"{path}:{node.lineno} reads a clock: the solver's comes in as an argument"


def broken(rule: Rule, *packages: str) -> list[str]:
    found = sources(*packages)
    return [sentence for path, tree in found.items() for sentence in rule(path, tree)]


def test_there_is_something_to_check() -> None:
    found = sources("solver", "service")
    assert "solver/problem.py" in found
    assert {"vastai", "runpod"} <= CLOUDS
    assert len(found) > 20


def test_packages_import_only_what_they_may() -> None:
    assert broken(foreign_imports, *PACKAGES) == []


def test_only_the_settings_read_the_environment() -> None:
    assert broken(environment_reads, *PACKAGES) == []


def test_the_solver_does_not_print() -> None:
    assert broken(prints, "solver") == []


def test_the_solver_reads_no_clock_but_the_one_handed_in() -> None:
    assert broken(clock_reads, "solver") == []


def test_no_module_is_called_utils() -> None:
    found = sources(*PACKAGES, "tests", "benchmarks")
    assert [path for path in found if Path(path).stem in {"utils", "util", "helpers", "common", "misc"}] == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {Path(path).parent for path in sources("solver", "adapters", "service", "tests")}
    assert [folder.as_posix() for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (foreign_imports, "solver/x.py", "import pydantic"),
        (foreign_imports, "solver/x.py", "def f():\n    from service.settings import settings"),
        (foreign_imports, "solver/x.py", "import torch"),
        (foreign_imports, "adapters/x.py", "from solver.problem import Offer"),
        (foreign_imports, "adapters/x.py", "import numpy as np"),
        (foreign_imports, "service/x.py", "from ortools.math_opt.python import mathopt"),
        (foreign_imports, "service/x.py", "from adapters import vastai"),
        (foreign_imports, "service/x.py", "import adapters.runpod"),
        (foreign_imports, "migrations/x.py", "from service.settings import store_settings"),
        (environment_reads, "service/x.py", "import os\nos.environ['HOME']"),
        (environment_reads, "solver/x.py", "from os import getenv"),
        (prints, "solver/x.py", "def f():\n    print('x')"),
        (clock_reads, "solver/x.py", "import time\nstart = time.monotonic()"),
        (clock_reads, "solver/x.py", "from time import perf_counter as tick\ntick()"),
        (clock_reads, "solver/x.py", "from datetime import datetime\ndatetime.now()"),
    ],
)
def test_each_rule_sees_what_breaks_it(rule: Rule, path: str, text: str) -> None:
    assert len(list(rule(path, ast.parse(text)))) == 1


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (foreign_imports, "solver/x.py", "import numpy as np\nfrom collections import abc\nfrom solver import units"),
        (foreign_imports, "solver/x.py", "def f():\n    import torch"),
        (foreign_imports, "service/x.py", "import adapters\nimport pydantic\nfrom solver import solve"),
        (foreign_imports, "migrations/x.py", "from service.db.tables import Base"),
        (environment_reads, "service/settings.py", "import os\nos.environ['HOME']"),
        (clock_reads, "solver/x.py", "import time\ndef solve(problem, *, clock=time.monotonic):\n    return clock()"),
    ],
)
def test_no_rule_forbids_what_is_allowed(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, ast.parse(text))) == []
