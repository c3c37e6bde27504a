"""What can go wrong while replicas are benchmarked, beside options that are wrong."""

from sutler.service.errors import Exit, RemediedError


class TrialError(RemediedError):
    """A replica does not answer, or not as the plan has it; says which, what happened and what to do."""

    exit_status = Exit.BAD_INPUT
