"""The house rules that a syntax tree can show: who imports whom, who reads the environment, the clock, the terminal.

All folders are one package, `sutler`. solver and adapters are leaves; service is where they meet. Inside solver and
service every room (a folder or a file directly below) stands on a floor and imports only from floors below its own.
At every depth, folders and files that stand side by side import each other in one direction only. Every rule is also
shown a source that breaks it.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "sutler"
PACKAGES = ("solver", "adapters", "service", "migrations")

# From the ground up: a room imports only from floors below its own.
FLOORS = {
    "solver": (
        ("arrays", "errors", "progress", "threads", "units", "version"),
        ("catalog", "outlook"),
        ("calibration",),
        ("problem",),
        ("checks", "plan", "throughput"),
        ("market", "profiling", "simulation"),
        ("candidates", "estimate", "offline"),
        ("polytope",),
        ("answer", "tree"),
        ("methods", "spares", "verify"),
        ("explanation",),
        ("clearing", "planner", "replanning"),
        ("smaller", "strategies"),
    ),
    "service": (
        ("errors", "logs", "outgoing"),
        ("documents", "settings"),
        ("db", "fork_server", "translation", "wording"),
        ("answering", "backup", "export"),
        ("comparing", "simulation", "web"),
        ("auth",),
        ("profiles", "webhooks"),
        ("market", "plans", "trial"),
        ("deployments", "offline"),
        ("operation", "studies"),
        ("pages",),
        ("api", "json_schemas", "workers"),
        ("main",),
        ("library", "processes"),
        ("client",),
        ("routers",),
        ("cli",),
    ),
}

# What a package may import beside the standard library and itself.
ALLOWED_IMPORTS = {
    "solver": {"highspy", "numpy", "scipy", "ortools"},
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
CLOUDS = {
    path.relative_to(ROOT / "adapters").parts[0].removesuffix(".py")
    for path in (ROOT / "adapters").rglob("*.py")
    if "\nPROVIDER: Final" in path.read_text("utf-8")
}

Rule = Callable[[str, ast.Module], Iterator[str]]


def paths(*packages: str) -> list[str]:
    """Of all modules, relative to the root."""
    found = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def tree_of(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def nodes_of(tree: ast.Module) -> Sequence[ast.AST]:
    """All, for the rules that look at a file one after the other."""
    return tuple(ast.walk(tree))


def modules_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in nodes_of(tree):
        yield from modules_in(node)


def own(module: str) -> str | None:
    """Without the package's name, or None for a module of somebody else."""
    return module.removeprefix(f"{PACKAGE}.") if module.startswith(f"{PACKAGE}.") else None


def bare_imports(path: str, tree: ast.Module) -> Iterator[str]:
    """Folders imported by their own names: another program's `service` may be on the path."""
    for module in imported_modules(tree):
        if module.partition(".")[0] in PACKAGES:
            yield f"{path} imports {module}: it is called {PACKAGE}.{module}"


def foreign_imports(path: str, tree: ast.Module) -> Iterator[str]:
    """Imports that the package of `path` may not have."""
    package = path.partition("/")[0]
    eager = {module for node in tree.body for module in modules_in(node)}
    for imported in imported_modules(tree):
        module = own(imported) or imported
        top = module.partition(".")[0]
        lazy = imported not in eager and OPTIONAL_IMPORTS.get(top) == package
        if top in FORBIDDEN_IMPORTS.get(package, set()):
            yield f"{path} imports {module}: {package} may not know {top}"
        elif package == "service" and top == "adapters" and CLOUDS & set(module.split(".")):
            yield f"{path} imports {module}: service knows no particular cloud"
        elif not f"{module}.".startswith(f"{KNOWN_PARTS.get(package, {}).get(top, top)}."):
            yield f"{path} imports {module}: {package} may know only {KNOWN_PARTS[package][top]} of {top}"
        elif package in ALLOWED_IMPORTS and not lazy and top not in known_to(package):
            yield f"{path} imports {module}: {package} may import only {sorted(ALLOWED_IMPORTS[package])}"


def floor_of(module: str) -> int | None:
    """Of a module without the package's name, by its room; the front door of a package stands above all."""
    package, _, rest = module.partition(".")
    if package not in FLOORS:
        return None
    room = rest.partition(".")[0] or "__init__"
    found = [i for i, rooms in enumerate(FLOORS[package]) if room in rooms]
    return found[0] if found else len(FLOORS[package])


def room_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def upward_imports(path: str, tree: ast.Module) -> Iterator[str]:
    """Imports of rooms that do not stand below."""
    mine = path.removesuffix(".py").replace("/", ".")
    for module in filter(None, map(own, imported_modules(tree))):
        here, there = floor_of(mine), floor_of(module)
        if mine.partition(".")[0] != module.partition(".")[0] or here is None or there is None:
            continue
        if room_of(mine) != room_of(module) and there >= here:
            yield f"{path} imports {module}: {room_of(module)} does not stand below {room_of(mine)}"


Arrows = Mapping[str, Iterable[str]]


def arrows(imported: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Which files import which, by path, from the modules that each imports; packages are their __init__.py."""
    files = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in imported}

    def file_of(module: str) -> str | None:
        return files.get(module) or files.get(module.rpartition(".")[0])

    return {
        path: {found for found in map(file_of, filter(None, map(own, modules))) if found} - {path}
        for path, modules in imported.items()
    }


def circles(graph: Arrows) -> Iterator[str]:
    """What imports itself by way of its neighbours: at every depth, the files and folders of one folder."""
    folders = {"/".join(path.split("/")[:depth]) for path in graph for depth in range(path.count("/") + 1)}
    for folder in sorted(folders):
        inside = f"{folder}/" if folder else ""
        neighbours: dict[str, set[str]] = {}
        for path, imported in graph.items():
            if path.startswith(inside):
                child = path[len(inside) :].partition("/")[0]
                others = {p[len(inside) :].partition("/")[0] for p in imported if p.startswith(inside)}
                neighbours.setdefault(child, set()).update(others - {child})
        try:
            TopologicalSorter(neighbours).prepare()
        except CycleError as error:
            yield f"{folder}: {' <- '.join(error.args[1])}"


def known_to(package: str) -> set[str]:
    return {*sys.stdlib_module_names, *ALLOWED_IMPORTS[package], package}


def environment_reads(path: str, tree: ast.Module) -> Iterator[str]:
    if path == ONLY_READER_OF_THE_ENVIRONMENT:
        return
    names = {"environ", "environb", "getenv", "getenvb"}
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr in names:
            yield f"{path}:{node.lineno} reads the environment: only {ONLY_READER_OF_THE_ENVIRONMENT} may"
        elif isinstance(node, ast.ImportFrom) and node.module == "os" and names & {a.name for a in node.names}:
            yield f"{path}:{node.lineno} imports the environment: only {ONLY_READER_OF_THE_ENVIRONMENT} may"


def prints(path: str, tree: ast.Module) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{path}:{node.lineno} prints: the solver reports through its plan and on_progress"


def clock_reads(path: str, tree: ast.Module) -> Iterator[str]:
    """Calls of `time.*` and of `now`; a default argument `clock=time.monotonic` is a reference, not a call."""
    timers = {
        alias.asname or alias.name
        for node in nodes_of(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    for node in nodes_of(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        of_time = (
            isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "time"
        )
        now = isinstance(called, ast.Attribute) and called.attr in {"now", "utcnow", "today"}
        if of_time or now or (isinstance(called, ast.Name) and called.id in timers):
            yield f"{path}:{node.lineno} reads a clock: the solver's comes in as an argument"


TESTS = ("tests", "benchmarks", "examples")
RULES: Mapping[Rule, tuple[str, ...]] = {
    foreign_imports: PACKAGES,
    bare_imports: (*PACKAGES, *TESTS),
    upward_imports: tuple(FLOORS),
    environment_reads: PACKAGES,
    prints: ("solver",),
    clock_reads: ("solver",),
}


@cache
def found() -> tuple[dict[Rule, list[str]], dict[str, list[str]]]:
    """What breaks each rule, and which modules each of ours imports: every file is parsed once and forgotten."""
    broken: dict[Rule, list[str]] = {rule: [] for rule in RULES}
    imported = {}
    for path in paths(*PACKAGES, *TESTS):
        tree = tree_of(path)
        if path.startswith(PACKAGES):
            imported[path] = list(imported_modules(tree))
        for rule, packages in RULES.items():
            if path.partition("/")[0] in packages:
                broken[rule].extend(rule(path, tree))
    return broken, imported


def test_there_is_something_to_check() -> None:
    assert "solver/problem.py" in found()[1]
    assert {"vastai", "runpod"} <= CLOUDS
    assert len(found()[1]) > 20


@pytest.mark.parametrize("rule", RULES)
def test_no_module_breaks_a_rule(rule: Rule) -> None:
    assert found()[0][rule] == []


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_stands_on_a_floor(package: str) -> None:
    rooms = {
        path.stem for path in (ROOT / package).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {room for rooms in FLOORS[package] for room in rooms} == rooms - {"__init__"}


def test_nothing_imports_itself_by_way_of_its_neighbours() -> None:
    assert list(circles(arrows(found()[1]))) == []


# Files of other projects that docstrings speak of.
OTHERS_FILES = frozenset(
    {"toy_proxy_server.py", "benchmark_serving.py", "benchmark/benchmark.py", "src/guidellm/scheduler/strategies.py"}
    | {"genai-perf/genai_perf/export_data/json_exporter.py"}
    | {"src/aiperf/common/models/export_models.py", "src/aiperf/config/phases.py", "pyproject.toml"}
)
FILE = re.compile(r"(?<![\w./:-])(?:[\w-]+/)*[\w-]+\.(?:py|toml)\b")


def named_files(text: str) -> set[str]:
    """Files that the comments and docstrings of a source, or a page, speak of."""
    prose = [line.partition("#")[2] for line in text.splitlines()] + re.findall(r'"""(.*?)"""', text, re.DOTALL)
    return {name for part in prose for name in FILE.findall(part)}


def test_every_file_that_is_named_exists() -> None:
    tables = [
        path.relative_to(ROOT).as_posix() for top in (*PACKAGES, *TESTS) for path in (ROOT / top).rglob("*.toml")
    ]
    known = [*paths(*PACKAGES, *TESTS), *tables]
    endings = {"/".join(path.split("/")[i:]) for path in known for i in range(path.count("/") + 1)} | OTHERS_FILES
    sources = {path: named_files((ROOT / path).read_text("utf-8")) for path in paths(*PACKAGES)}
    pages = {page.name: set(FILE.findall(page.read_text("utf-8"))) for page in (ROOT / "docs").glob("*.md")}
    assert {path: names - endings for path, names in {**sources, **pages}.items() if names - endings} == {}


def test_no_module_is_called_utils() -> None:
    assert [
        path for path in paths(*PACKAGES, *TESTS) if Path(path).stem in {"utils", "util", "helpers", "common", "misc"}
    ] == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {Path(path).parent for path in paths("solver", "adapters", "service", "tests")}
    assert [folder.as_posix() for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (foreign_imports, "solver/x.py", "import pydantic"),
        (bare_imports, "tests/x.py", "from service.settings import settings"),
        (bare_imports, "solver/x.py", "import solver.catalog as c"),
        (upward_imports, "service/web/x.py", "from sutler.service.plans import repository"),
        (
            upward_imports,
            "service/plans/x.py",
            "def f():\n    from sutler.service.market.service import MarketService",
        ),
        (upward_imports, "solver/problem.py", "from sutler.solver import plan"),
        (upward_imports, "solver/strategies/x.py", "from sutler.solver import solve"),
        (foreign_imports, "solver/x.py", "def f():\n    from sutler.service.settings import settings"),
        (foreign_imports, "solver/x.py", "import torch"),
        (foreign_imports, "adapters/x.py", "from sutler.solver.problem import Offer"),
        (foreign_imports, "adapters/x.py", "import numpy as np"),
        (foreign_imports, "service/x.py", "from ortools.math_opt.python import mathopt"),
        (foreign_imports, "service/x.py", "from sutler.adapters import vastai"),
        (foreign_imports, "service/x.py", "import sutler.adapters.runpod"),
        (foreign_imports, "migrations/x.py", "from sutler.service.settings import store_settings"),
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
        (
            foreign_imports,
            "solver/x.py",
            "import numpy as np\nfrom collections import abc\nfrom sutler.solver import units",
        ),
        (foreign_imports, "solver/x.py", "def f():\n    import torch"),
        (foreign_imports, "service/x.py", "import sutler.adapters\nimport pydantic\nfrom sutler.solver import solve"),
        (foreign_imports, "migrations/x.py", "from sutler.service.db.tables import Base"),
        (bare_imports, "tests/x.py", "from sutler.service import main\nfrom tests.service import running"),
        (
            upward_imports,
            "service/plans/x.py",
            "from sutler.service.plans.y import z\nfrom sutler.solver import solve",
        ),
        (upward_imports, "service/plans/x.py", "from sutler.service.web.errors import NotFoundError"),
        (environment_reads, "service/settings.py", "import os\nos.environ['HOME']"),
        (clock_reads, "solver/x.py", "import time\ndef solve(problem, *, clock=time.monotonic):\n    return clock()"),
    ],
)
def test_no_rule_forbids_what_is_allowed(rule: Rule, path: str, text: str) -> None:
    assert list(rule(path, ast.parse(text))) == []


def test_circles_are_seen_between_files_and_between_folders() -> None:
    files = {"service/a/x.py": ["service/a/y.py"], "service/a/y.py": ["service/a/x.py"]}
    [found] = circles(files)
    assert found.startswith("service/a: ")
    folders = {"service/a/x.py": ["service/b/y.py"], "service/b/z.py": ["service/a/w.py"]}
    [found] = circles(folders)
    assert found.startswith("service: ")
    assert list(circles({"service/a/x.py": ["service/b/y.py"], "service/b/y.py": ["service/c.py"]})) == []
