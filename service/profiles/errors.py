"""What can go wrong with profiles and calibrations, beside documents that are wrong.

ProfileError
├── NoSuchProfileError       nothing is stored under that name
└── NothingToFitError        no run is left to calibrate with, or they do not go together
"""


class ProfileError(Exception):
    """`remedy`: what to do next."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason, self.remedy = reason, remedy


class NoSuchProfileError(ProfileError):
    """Nothing is stored under that name."""


class NothingToFitError(ProfileError):
    """No run is left to calibrate with, or they do not go together."""
