"""The command line: ``tpu-course``, and ``python -m course`` where it isn't installed."""

import os
import signal
import sys


def command() -> None:
    """Run the command line; whatever ends it is told in words, also while it starts or ends.

    SIGTERM and a closed terminal end what was started and leave nothing half written, as Ctrl-C
    does. With PYTHONDEVMODE=1, Python's own tracebacks and warnings are shown.
    """
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def lost(about: object) -> None:
        """Send a signal again that came where Python can't raise, as in a callback."""
        if received and isinstance(about.exc_value, KeyboardInterrupt | SystemExit):
            import threading

            threading.Timer(0.1, os.kill, (os.getpid(), received[-1])).start()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup's
            signal.signal(number, stop)
    for name in ("stdin", "stdout", "stderr"):  # closed (2>&-), another file would be in its place
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r+"))
    for name in ("PYTHONINSPECT", "PYTHONOPTIMIZE"):  # waits at the end; takes texts, asserts away
        if os.environ.pop(name, ""):
            os.execv(sys.executable, sys.orig_argv)
    try:
        import logging
        import warnings

        if not sys.flags.dev_mode:
            sys.unraisablehook, logging.lastResort, logging.raiseExceptions = lost, None, False
            warnings.simplefilter("ignore")  # a library's, which PYTHONWARNINGS=error would raise
        from course.commands import app

        app.run()
    except (KeyboardInterrupt, Exception) as error:
        if sys.flags.dev_mode:
            raise
        stopped = received or isinstance(error, KeyboardInterrupt)
        print("Stopped." if stopped else f"This can't go on: {error!r}", file=sys.stderr)  # noqa: T201
        raise SystemExit(128 + received[-1] if received else 2) from None


if __name__ == "__main__":
    command()
