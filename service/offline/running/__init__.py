"""The running phase of an offline plan: the plan document -> a schedule of steps -> a bash script for each host.

Flow: plan document -> schedule.py (commands by engine.py) -> script.py with run_steps.sh.
The rules by which one step gives way to the next are those of SamuLLM (Fang et al., §4.3), decided while it runs.
"""

from sutler.service.offline.running.schedule import FIRST_PORT, schedule_of
from sutler.service.offline.running.script import script_of

__all__ = ["FIRST_PORT", "schedule_of", "script_of"]
