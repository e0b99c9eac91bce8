"""The command line: ``tpu-course``, and ``python -m helpers`` where it isn't installed."""

import sys


def command() -> None:
    """Run the command line; an interrupt ends it with one line, also while it is starting."""
    try:
        from helpers.course.commands import app

        app.run()
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        raise SystemExit(130) from None


if __name__ == "__main__":
    command()
