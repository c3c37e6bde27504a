"""Which CUDA version a driver runs, for clouds that state only the driver."""

import re
from typing import Final

# Branches of the Linux driver and the newest CUDA that each was released for, from the table "CUDA Toolkit and
# Corresponding Driver Versions" of https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html ; 565, for
# which no toolkit was released, reports CUDA 12.7 itself.
NEWEST_CUDA: Final[dict[int, float]] = {
    590: 13.1,
    580: 13.0,
    575: 12.9,
    570: 12.8,
    565: 12.7,
    560: 12.6,
    555: 12.5,
    550: 12.4,
    545: 12.3,
    535: 12.2,
    530: 12.1,
    525: 12.0,
    520: 11.8,
    515: 11.7,
    510: 11.6,
    495: 11.5,
    470: 11.4,
}
_DRIVER: Final = re.compile(r"([0-9]{3})(\.[0-9]{1,4}){1,2}", re.ASCII)


def cuda_of_driver(version: str | None) -> float | None:
    """The newest CUDA that a driver such as "570.124.04" runs, None where the table does not reach.

    A branch between two of the table, as 572 is for Windows, runs what the older of them does.
    """
    found = _DRIVER.fullmatch(version or "")
    branch = int(found[1]) if found else 0
    return next((cuda for known, cuda in NEWEST_CUDA.items() if known <= branch), None)
