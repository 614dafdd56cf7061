"""Between a command and the shell: exit codes, and errors as one line with their cure.

A wrong request ends with 2, an unexpected error with 1; ``EBBTIDE_DEBUG=1`` shows its traceback.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import click

DONE, NOT_SO, WRONG, DIVERGED, TORN, CORRUPT, INCOMPATIBLE = range(7)

#: The first one wins: an unreadable journal makes the other answers doubtful.
PRECEDENCE = (INCOMPATIBLE, CORRUPT, DIVERGED, TORN, WRONG, NOT_SO, DONE)

DEBUG = "EBBTIDE_DEBUG"
BOUNDS_FACTOR = "EBBTIDE_BOUNDS_FACTOR"


class Refused(click.ClickException):
    """A wrong request, or its subject may be in an unreadable part (``code``: the verdict's). ``message``:
    one line with the problem and the cure.
    """

    def __init__(self, message: str, code: int = WRONG) -> None:
        super().__init__(message)
        self.code = code


class Signalled(Exception):
    """The process ends by the same signal."""

    def __init__(self, number: signal.Signals, message: str) -> None:
        super().__init__(message)
        self.number = number


class ReaderGone(Exception):
    """Of standard output. (Click would turn the OSError into exit code 1.)"""


def worst(codes: Iterable[int]) -> int:
    return min(codes, key=PRECEDENCE.index, default=DONE)


def guarded(arguments: Sequence[str], command: click.Command | None = None, name: str = "ebbtide") -> int:
    """Returns the exit code; ``command`` None: the whole command line. A broken pipe or Ctrl-C ends the
    process by its signal.
    """
    try:
        if command is None:
            from ebbtide.cli.app import cli

            command = cli
        if factor := os.environ.get(BOUNDS_FACTOR):
            # No replay changes: the core takes its time from facts alone.
            from ebbtide.events import bounds

            try:
                bounds.now = bounds.bounds_of(factor)
            except ValueError as error:
                raise Refused(f"{BOUNDS_FACTOR} is {factor!r}: {error}") from None
        code = command.main(list(arguments), prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return _die_of(signal.SIGINT)
    except Exception as error:
        cause = error
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, ReaderGone):
            return _die_of(signal.SIGPIPE)
        if isinstance(cause, Signalled):
            say(str(cause))
            return _die_of(cause.number)
        if os.environ.get(DEBUG) and not isinstance(cause, click.ClickException):
            raise
        message, code = _line_and_code(cause)
        for line in getattr(cause, "mistakes", ()) if sys.stderr.isatty() else ():
            say(line)
            message = ""
        if message:
            say(message)
        return code
    return code if isinstance(code, int) else DONE


def warn_of_wide_bounds() -> None:
    """In a daemon's first line; `guarded` has checked the factor."""
    factor = float(os.environ.get(BOUNDS_FACTOR) or 1)
    if factor != 1:
        say(f"{BOUNDS_FACTOR}={factor:g}: every bound is {factor:g} times as wide; for tests only")


def _line_and_code(error: Exception) -> tuple[str, int]:
    if isinstance(error, Refused):
        return error.format_message(), error.code
    if isinstance(error, click.UsageError):
        text = error.format_message().rstrip(".").replace("a valid integer range", "a whole number")
        text = re.sub(r"\. Did you mean (.+)\?$", r" (did you mean \1?)", text)
        path = error.ctx.command_path if error.ctx else "ebbtide"
        return f"{text[:1].lower()}{text[1:]}; see '{path} --help'", WRONG
    if isinstance(error, click.ClickException):
        return error.format_message(), WRONG
    # Late: most runs end without an error.
    from ebbtide.config import ConfigError
    from ebbtide.control import ControlError
    from ebbtide.events.disk import JournalLocked
    from ebbtide.events.recovery import ForeignJournal
    from ebbtide.extras import PackagesMissing, extra_of, install_command
    from ebbtide.host import RuntimeTaken
    from ebbtide.manifests import ManifestError
    from ebbtide.recover import Unreadable

    whole = (ConfigError, ManifestError, ControlError, JournalLocked, RuntimeTaken)
    if isinstance(error, (*whole, ForeignJournal, PackagesMissing, Unreadable)):
        return str(error), WRONG
    if isinstance(error, OSError):
        # Only common errors have a cure.
        where = f"{error.filename}: " if error.filename else ""
        cure = "; use sudo, or name a path of your own" if isinstance(error, PermissionError) else ""
        return f"{where}{error.strerror or error}{cure}", WRONG
    if isinstance(error, MemoryError):
        return str(error) or "no memory is left", CORRUPT
    if code := code_of(error):
        return unreadable(error), code
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")):
        # `extras.require` gives a better line; this prevents a traceback.
        return f"this needs {error.name}: {install_command(extra)}", WRONG
    return f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows where, please report it", NOT_SO


def code_of(error: Exception) -> int:
    """For an undecodable record; 0 for any other error."""
    from ebbtide.events.codec import BadPayload, UnknownType

    return {BadPayload: CORRUPT, UnknownType: INCOMPATIBLE}.get(type(error), DONE)


def unreadable(error: Exception) -> str:
    cure = "use a newer ebbtide" if code_of(error) == INCOMPATIBLE else "it was edited, or miswritten"
    return f"the journal holds a record that cannot be read: {error}; {cure}"


def say(text: str) -> None:
    from ebbtide.events.record.format import visible

    print(f"ebbtide: {visible(' '.join(text.split()))}", file=sys.stderr)


def _die_of(number: signal.Signals) -> int:
    """As other tools do: the shell sees a signal."""
    # Otherwise the buffered rest fails again at the interpreter's end.
    with suppress(OSError):
        sys.stdout.close()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
