"""The document of a trial: what replicas did, what was planned of them, and what that changes.

Units: requests/s, seconds, tokens.
"""

from typing import Literal
from uuid import UUID

from pydantic import Field

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.fields import Document, Timestamp
from sutler.service.documents.what_if import WhatIfDocument
from sutler.service.simulation.schemas import SimulationResource


class ExpectedLoad(Document):
    """What estimates say of a load."""

    req_per_s: float
    """Completed per second."""
    low_req_per_s: float
    """Low end of the band."""
    high_req_per_s: float
    """High end of the band."""
    ttft_s: float | None
    """Mean time to first token."""
    tpot_s: float | None
    """Mean time per output token after the first."""


class TrialRun(Document):
    """One load on one replica: `concurrency` clients, of which each sends its next request when one ends."""

    replica: str
    """Id in the plan."""
    workload: str
    """Whose lengths the requests had."""
    concurrency: int
    """Requests in flight."""
    input_tokens: int
    """Of every prompt."""
    output_tokens: int
    """Of every answer."""
    completed: int
    """Requests that were measured."""
    duration_s: float
    """From the first request to the end of the last."""
    req_per_s: float
    """Completed per second."""
    ttft_s: float
    """Mean time to first token, the way to the server and back included."""
    tpot_s: float | None
    """Mean time per output token after the first; null where answers have one."""
    planned: ExpectedLoad
    """What the plan says of this load: at its batch the requests/s and the band that it states (`evidence`), else its
    estimates."""
    within_band: bool
    """Whether the measured requests/s lie in the planned band."""
    calibrated: ExpectedLoad | None
    """What estimates say with the new calibration; null where there is none."""
    refused: tuple[str, ...]
    """Why the run is not believed; empty: it is."""
    sending_busy_fraction: float
    """What sending took, as a share of a core of the machine that this ran on."""


class TrialDocument(Document):
    """A trial of a plan's replicas."""

    schema_: Literal["sutler/trial/v1"] = Field(alias="schema")
    """Version of this format."""
    created_at: Timestamp
    """When it was finished."""
    plan_id: UUID
    """Which plan."""
    runs: tuple[TrialRun, ...]
    """In the order in which they ran."""
    imported: int
    """Runs that the store did not have; 0 with --dry-run."""
    calibration: CalibrationDocument | None
    """What was fitted to these runs and to those of the same engine and version in the store; revision 0: it is not
    stored. Null where nothing could be fitted."""
    replay: SimulationResource | None
    """The present plan on random arrivals at its own rates, as fast as the calibration says; null as above."""
    what_if: WhatIfDocument | None
    """The problem planned today as it is and with the calibration; null without a problem."""
    notes: tuple[str, ...]
    """What to know of the numbers."""
