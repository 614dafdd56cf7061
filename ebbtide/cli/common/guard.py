"""What stands between a command and the shell: exit codes, and errors as one line with their cure.

A request that was wrong ends with 2, one line on standard error and nothing changed. What nobody foresaw
ends with 1 and a line that names it; ``EBBTIDE_DEBUG=1`` shows its traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

import click

DONE, NOT_SO, WRONG, DIVERGED, TORN, CORRUPT, INCOMPATIBLE = range(7)

#: Where several apply, the first of these wins. What makes the others doubtful comes first: of a journal that
#: cannot be read nobody can say that it replays, and what diverged says more than the tail that is missing.
PRECEDENCE = (INCOMPATIBLE, CORRUPT, DIVERGED, TORN, WRONG, NOT_SO, DONE)

DEBUG = "EBBTIDE_DEBUG"
BOUNDS_FACTOR = "EBBTIDE_BOUNDS_FACTOR"


class Refused(click.ClickException):
    """The request was wrong, or what was asked for may be in what cannot be read (``code``: the verdict's).

    ``message`` is one line that says what, and what to do instead.
    """

    def __init__(self, message: str, code: int = WRONG) -> None:
        super().__init__(message)
        self.code = code


class Signalled(Exception):
    """A signal ended a command that has put its things in order: the process ends as the signal does."""

    def __init__(self, number: signal.Signals, message: str) -> None:
        super().__init__(message)
        self.number = number


class ReaderGone(Exception):
    """Nobody reads standard output any more. (Click would turn the OSError into exit code 1.)"""


def worst(codes: Iterable[int]) -> int:
    """The exit code that wins."""
    return min(codes, key=PRECEDENCE.index, default=DONE)


def guarded(arguments: Sequence[str], command: click.Command | None = None, name: str = "ebbtide") -> int:
    """Run the command line, or another ``command`` that is called by ``name``; the exit code. A broken pipe
    or Ctrl-C ends the process as its signal does.
    """
    try:
        if command is None:
            from ebbtide.cli.app import cli

            command = cli
        if factor := os.environ.get(BOUNDS_FACTOR):
            _widen_bounds(factor)
        code = command.main(list(arguments), prog_name=name, standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return _die_of(signal.SIGINT)
    except Exception as error:
        # Nurseries hand on what happened in groups. The first one is the cause; what the others say is
        # mostly that they were cancelled because of it.
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
        # A configuration's mistakes are one line for a log, and one a line for a person.
        for line in getattr(cause, "mistakes", ()) if sys.stderr.isatty() else ():
            say(line)
            message = ""
        if message:
            say(message)
        return code
    return code if isinstance(code, int) else DONE


def _widen_bounds(factor: str) -> None:
    # Imported where it is asked for: the core takes its time from its facts alone, so no replay changes.
    from ebbtide.events import bounds

    try:
        bounds.now = bounds.bounds_of(factor)
    except ValueError as error:
        raise Refused(f"{BOUNDS_FACTOR} is {factor!r}: {error}") from None


def warn_of_wide_bounds() -> None:
    """A daemon's first line where its bounds are not the product's; `guarded` has checked the factor."""
    factor = float(os.environ.get(BOUNDS_FACTOR) or 1)
    if factor != 1:
        say(f"{BOUNDS_FACTOR}={factor:g}: every bound is {factor:g} times as wide; for tests only")


def _line_and_code(error: Exception) -> tuple[str, int]:
    """What went wrong in one line with its cure, and the exit code for it."""
    if isinstance(error, Refused):
        return error.format_message(), error.code
    if isinstance(error, click.UsageError):
        # Click's message in the style of the other lines, with where to look.
        text = error.format_message().rstrip(".")
        path = error.ctx.command_path if error.ctx else "ebbtide"
        return f"{text[:1].lower()}{text[1:]}; see '{path} --help'", WRONG
    if isinstance(error, click.ClickException):
        return error.format_message(), WRONG
    # Errors whose text is already one line with its cure. Imported late: most runs end without one.
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
        # A failed system call. The cure is known only for the commonest.
        where = f"{error.filename}: " if error.filename else ""
        cure = "; use sudo, or name a path of your own" if isinstance(error, PermissionError) else ""
        return f"{where}{error.strerror or error}{cure}", WRONG
    if code := code_of(error):
        return unreadable(error), code
    if isinstance(error, ModuleNotFoundError) and (extra := extra_of(error.name or "")):
        # Who looks before (`extras.require`) has a better line; nobody gets a traceback.
        return f"this needs {error.name}: {install_command(extra)}", WRONG
    return (
        f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows where, please report it",
        NOT_SO,
    )


def code_of(error: Exception) -> int:
    """The exit code of a record that cannot be decoded; 0 for any other error."""
    from ebbtide.events.codec import BadPayload, UnknownType

    return {BadPayload: CORRUPT, UnknownType: INCOMPATIBLE}.get(type(error), DONE)


def unreadable(error: Exception) -> str:
    """The line about it, with the cure."""
    cure = "use a newer ebbtide" if code_of(error) == INCOMPATIBLE else "it was edited, or miswritten"
    return f"the journal holds a record that cannot be read: {error}; {cure}"


def say(text: str) -> None:
    """One line on standard error."""
    # Imported late, for most runs say nothing: with it come the events, and half again of the time of a help.
    from ebbtide.events.record.format import visible

    print(f"ebbtide: {visible(' '.join(text.split()))}", file=sys.stderr)


def _die_of(number: signal.Signals) -> int:
    """As every other tool does, so that a shell sees a signal and no exit code of its own meaning."""
    # What is still buffered can go nowhere; closed here, it does not fail once more at the interpreter's end.
    with suppress(OSError):
        sys.stdout.close()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
