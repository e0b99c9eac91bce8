"""The shape of every error a learner can cause: what happened, why, what to do."""


class CourseError(Exception):
    """An error with a cause and a remedy; derived only where someone catches or shows the class.

    Args:
        what: What happened, one sentence.
        why: The cause, one sentence.
        fix: What to do now, one sentence, with the command where there is one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}\n  Why: {why}\n  Fix: {fix}")
        self.what, self.why, self.fix = what, why, fix

    def __reduce__(self) -> tuple[type["CourseError"], tuple[str, str, str]]:
        # An error that comes from another process is made again from its three parts.
        return type(self), (self.what, self.why, self.fix)
