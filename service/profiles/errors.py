"""What can go wrong with profiles and calibrations, beside documents that are wrong.

ProfileError
├── NoSuchProfileError       nothing is stored under that name: use one that is
└── NothingToFitError        no run is left to calibrate with, or they do not go together: measure, or leave some out
"""

from sutler.service.errors import NOT_FOUND, Exit, RemediedError


class ProfileError(RemediedError):
    """Root of both."""

    exit_status = Exit.BAD_INPUT


class NoSuchProfileError(ProfileError):
    """No profile or calibration is stored under that name."""

    kind = NOT_FOUND


class NothingToFitError(ProfileError):
    """No run is left to calibrate with, or they do not go together."""
