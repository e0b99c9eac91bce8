"""The command line: ``tpu-course``, and ``python -m course`` where it isn't installed."""

import io
import os
import sys

from course import shadows

# At once: what follows, and the script `tpu-course` itself, use modules that could be hidden.
_MESSAGE = shadows.explanation(loaded_only=True)
if _MESSAGE is not None:
    sys.stderr.write("{}\n  Why: {}\n  Fix: {}\n".format(*_MESSAGE))
    raise SystemExit(2)

import signal  # noqa: E402


def command() -> None:
    """Run the command line; whatever ends it is told in words, also while it starts or ends.

    SIGTERM and a closed terminal end what was started and leave nothing half written, as Ctrl-C
    does. With PYTHONDEVMODE=1, Python's own tracebacks and warnings are shown.
    """
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def resend(unraisable: object) -> None:
        """Send a signal again that came where Python can't raise, as in a callback."""
        is_stop = isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit)
        if received and is_stop:
            import threading

            threading.Timer(0.1, os.kill, (os.getpid(), received[-1])).start()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup's
            signal.signal(number, stop)
    _open_closed_streams()
    _drop_unread_output()
    _restart_without_flags()
    try:
        if not sys.flags.dev_mode:
            _silence_libraries()
            sys.unraisablehook = resend
        from course.commands import app

        app.run()
    except (KeyboardInterrupt, Exception) as error:
        if sys.flags.dev_mode:
            raise
        if received or isinstance(error, KeyboardInterrupt):
            message = "Stopped."
        elif shadows.explanation():
            message = "{}\n  Why: {}\n  Fix: {}".format(*shadows.explanation())
        else:
            message = f"This can't go on: {error!r}"
        print(message, file=sys.stderr)  # noqa: T201
        status = 128 + received[-1] if received else 2
        raise SystemExit(status) from None


def _open_closed_streams() -> None:
    """Keep another file from getting the number of a stream that is closed (2>&-)."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(descriptor, "r+"))


class _UnreadFile(io.FileIO):
    """A stream's file; what is written to a pipe that nobody reads any more is dropped."""

    def write(self, data: bytes) -> int | None:
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def _drop_unread_output() -> None:
    """Let no work end because its words have no reader: `| head`, or `| tee` after Ctrl-C.

    A run that says that it saves now would end at these words, and lose its steps.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__"):  # opened by this program, or by a test
            continue
        file = io.BufferedWriter(_UnreadFile(stream.fileno(), "w", closefd=False))
        is_at_once = name == "stderr" or stream.line_buffering
        writer = io.TextIOWrapper(file, stream.encoding, stream.errors, line_buffering=is_at_once)
        setattr(sys, name, writer)


def _restart_without_flags() -> None:
    """Begin again without flags of Python that wait at the end, or take texts and asserts away."""
    for name in ("PYTHONINSPECT", "PYTHONOPTIMIZE"):
        if os.environ.pop(name, ""):
            os.execv(sys.executable, sys.orig_argv)


def _silence_libraries() -> None:
    import logging
    import warnings

    logging.lastResort = None
    logging.raiseExceptions = False
    warnings.simplefilter("ignore")  # PYTHONWARNINGS=error would raise a library's


if __name__ == "__main__":
    command()
