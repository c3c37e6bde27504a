"""What the fake refuses to be told.

FakeSetupError      a market, failure, speed or file that cannot be; the message names the choices
└── ReplayError         a folder that cannot be played; the message names file, field and remedy
"""


class FakeSetupError(Exception):
    """The fake was told something that it cannot do."""


class ReplayError(FakeSetupError):
    """A folder that cannot be played."""
