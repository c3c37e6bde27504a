"""Asks SkyPilot itself whether it reads the exported tasks: run it in an environment with skypilot, not in the tests.

python -m venv build/skypilot && build/skypilot/bin/pip install skypilot==0.14.1
build/skypilot/bin/python tests/service/export/check_skypilot.py

SkyPilot's dependencies would decide the versions of FastAPI and SQLAlchemy here, so it stays outside. It needs no
network and no credentials for this; prices and the names of GPUs, which it fetches, are not checked.
"""

import copy
import sys
from pathlib import Path

import sky  # type: ignore[import-not-found, unused-ignore]
import yaml

GOLDEN = Path(__file__).parent / "golden"


def main() -> int:
    count = 0
    for path in sorted(GOLDEN.glob("*.skypilot.yaml")):
        documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
        for document in documents:
            task = sky.Task.from_yaml_config(copy.deepcopy(document))  # it empties what it reads
            (resources,) = task.resources
            assert task.num_nodes == document["num_nodes"], f"{path.name}: {task.num_nodes} nodes"
            assert resources.accelerators == document["resources"]["accelerators"], f"{path.name}: {resources}"
            assert resources.use_spot == document["resources"]["use_spot"], f"{path.name}: {resources}"
            count += 1
    sys.stdout.write(f"SkyPilot {sky.__version__} reads {count} tasks\n")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
