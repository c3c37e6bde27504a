"""The built wheel without this checkout, run from a folder whose own packages are called like our folders."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.service.running import finished, serving, settings, until

ROOT: Final = Path(__file__).parents[1]
OURS: Final = ("service", "solver", "adapters", "migrations")
FOREIGN: Final = 'raise RuntimeError("this is the package of somebody else")\n'
MODEL: Final = {
    "name": "chat",
    "model": "llama-3-8b",
    "workloads": [{"name": "chat", "input_tokens": 1000, "output_tokens": 200, "rate_rps": 1.0}],
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"))


def built(folder: Path, **environment: str) -> Path:
    """From a copy: what an earlier build left beside the sources would get into it."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("sutler", *OURS):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("*.so"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    subprocess.run(command, cwd=folder, env={**os.environ, **environment}, check=True, timeout=300)
    [made] = folder.glob("sutler-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands: the wheel alone, and the libraries of the tests' environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    packages = next((folder / "lib").glob("python*/site-packages"))
    # A path file adds the libraries, not what they add themselves: no editable install of this checkout.
    (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--quiet", "--python", str(folder), "install", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, timeout=300)
    return folder / "bin"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder with packages of these names, and others' contents."""
    for name in OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(FOREIGN, encoding="utf-8")
    return tmp_path


def environment_in(folder: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in settings(folder).items() if name != "PYTHONPATH"}
    return {**kept, "SUTLER_DATA_DIR": str(folder / "data")}


def ran(command: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment_in(folder), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_one_package_with_its_types_and_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"sutler"}
    assert {"sutler/py.typed", "sutler/solver/catalog/gpus.toml", "sutler/adapters/gpu_names.toml"} <= set(names)
    versions = {path.name for path in (ROOT / "migrations" / "versions").glob("*.py")}
    assert versions == {Path(name).name for name in names if name.startswith("sutler/migrations/versions/")}
    tracked = subprocess.run(
        ["git", "ls-files", *OURS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    sources = (".mako", ".cpp", ".hpp")
    assert [path for path in tracked if f"sutler/{path}" not in names and not path.endswith(sources)] == []
    assert [name for name in names if name.startswith("sutler/solver/tree/_tree.") and name.endswith((".so", ".pyd"))]


def test_without_a_compiler_all_but_the_tree_is_built(tmp_path: Path) -> None:
    names = zipfile.ZipFile(built(tmp_path, CC="false", CXX="false")).namelist()
    assert {name for name in names if "/tree/" in name} == {
        f"sutler/solver/tree/{one}" for one in ("__init__.py", "_tree.pyi")
    }


def test_the_library_is_ours_whatever_is_called_like_our_folders(installed: Path, foreign: Path) -> None:
    code = "import sutler.solver, sutler.service.main, sutler.adapters.registry; print(sutler.solver.__file__)"
    assert ran([installed / "python", "-c", code], foreign).startswith(str(installed.parent))


def test_the_command_plans_from_such_a_folder(installed: Path, foreign: Path) -> None:
    plan = json.loads(ran([installed / "sutler", "plan", ROOT / "examples" / "min_cost_slo.yaml", "--json"], foreign))
    assert plan["status"] == "optimal"


def test_the_service_with_its_children_runs_from_such_a_folder(installed: Path, foreign: Path) -> None:
    with serving(foreign, environment_in(foreign), sutler=[str(installed / "sutler")]) as running:
        until(lambda: running.get("/readyz").status_code == 200)
        made = running.post("/v1/plans", {"objective": {"kind": "min_cost"}, "models": [MODEL]})
        assert finished(running, f"/v1/plans/{made.json()['id']}")["status"] == "optimal", made.text
    assert "somebody else" not in running.said()
