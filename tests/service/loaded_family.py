"""What a family's processes need, loaded once for all families that are forked from here (forks.py)."""

import sutler.service.processes.api
import sutler.service.processes.family
import sutler.service.processes.scheduler  # noqa: F401
import tests.service.loaded_worker  # noqa: F401
