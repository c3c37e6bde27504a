"""What a worker and its solvers need, loaded once for all that are forked from here (forks.py)."""

import sutler.service.processes.worker
import sutler.service.workers.solver_main  # noqa: F401
