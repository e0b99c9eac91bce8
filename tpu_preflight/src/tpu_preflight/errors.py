"""The shape of every error that a user can cause: what happened, why, what to do."""


class PreflightError(Exception):
    """An error with a cause and a remedy.

    Args:
        what: What happened, one sentence.
        why: The cause, one sentence.
        fix: What to do now, one sentence, with the command where there is one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Fix: {fix}")
        self.what, self.why, self.fix = what, why, fix

    def __reduce__(self) -> tuple[type["PreflightError"], tuple[str, str, str]]:
        # An error that comes from another process is made again from its three parts.
        return type(self), (self.what, self.why, self.fix)
