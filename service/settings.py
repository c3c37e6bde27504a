"""The only reader of the environment: one frozen settings object."""

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`debug`: show the traceback of a defect (SUTLER_DEBUG). `no_color`: plain tables (https://no-color.org).

    Both are on when set to anything but nothing.
    """

    debug: bool = False
    no_color: bool = False


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process."""
    return Settings(debug=bool(environment.get("SUTLER_DEBUG")), no_color=bool(environment.get("NO_COLOR")))
