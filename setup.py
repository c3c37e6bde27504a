"""Brings what browsers load with the pages into the package when it is built, and compiles the search of fleets; all
else is in pyproject.toml."""

import runpy
from pathlib import Path

from pybind11.setup_helpers import Pybind11Extension
from setuptools import Command, setup
from setuptools.command.build import build

FETCH = Path(__file__).parent / "service" / "pages" / "fetch.py"


class FetchLibraries(Command):  # type: ignore[misc]
    """Puts the libraries beside the pages' sources, from where they go into the package like all its data."""

    description = "fetch the browser libraries of the pages with npm"
    user_options = []  # noqa: RUF012
    editable_mode = False

    def initialize_options(self) -> None:
        """Has no options."""

    def finalize_options(self) -> None:
        """Has no options."""

    def run(self) -> None:
        """A checkout works without them, and its pages say so; a package without them would be broken."""
        try:
            runpy.run_path(str(FETCH))["fetch"]()
        except (OSError, RuntimeError) as error:
            if not self.editable_mode:
                raise
            self.warn(f"{error}: the service runs without them, and its pages tell how to get them")


build.sub_commands.insert(0, ("fetch_libraries", None))
TREE = "solver/tree"
setup(
    cmdclass={"fetch_libraries": FetchLibraries},
    ext_modules=[
        Pybind11Extension(
            "sutler.solver.tree._tree",
            [f"{TREE}/module.cpp"],
            depends=[f"{TREE}/simplex.hpp", f"{TREE}/tree.hpp"],
            cxx_std=17,
            # No sum in one step where the processor can: the same plan on every machine.
            extra_compile_args=["-O3", "-ffp-contract=off"],
            optional=True,  # without a compiler plans take longer
        )
    ],
)
