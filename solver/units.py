"""The only home of conversion factors; everything else carries its unit in its name."""

from typing import Final

BYTES_PER_GB: Final = 1e9
FLOPS_PER_TFLOP: Final = 1e12
SECONDS_PER_HOUR: Final = 3600.0
MILLISECONDS_PER_SECOND: Final = 1e3
MICROSECONDS_PER_SECOND: Final = 1e6
NANOSECONDS_PER_SECOND: Final = 1e9
HOURS_PER_MONTH: Final = 720.0  # how Vast.ai turns a monthly disk price into an hourly one
TOKENS_PER_MILLION: Final = 1e6
PARAMETERS_PER_BILLION: Final = 1e9
