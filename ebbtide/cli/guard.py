"""What stands between a command and the shell: exit codes, and errors as one line with their cure.

A request that was wrong ends with 2, one line on standard error and nothing changed. What nobody foresaw
ends with 1 and a line that names it; ``EBBTIDE_DEBUG=1`` shows its traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence

import click

from ebbtide.text import visible

DONE, NOT_SO, WRONG, DIVERGED, TORN, CORRUPT, INCOMPATIBLE = range(7)

#: Where several apply, the first of these wins (interface.md, "Exit codes").
PRECEDENCE = (INCOMPATIBLE, CORRUPT, DIVERGED, TORN, WRONG, NOT_SO, DONE)

DEBUG = "EBBTIDE_DEBUG"


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


def guarded(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code. A broken pipe or Ctrl-C ends the process as its signal does."""
    from ebbtide.cli.app import cli

    try:
        code = cli.main(list(arguments), prog_name="ebbtide", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        return _die_of(signal.SIGINT)
    except Exception as group:
        error = _first_of(group)
        if isinstance(error, ReaderGone):
            return _die_of(signal.SIGPIPE)
        if isinstance(error, Signalled):
            say(str(error))
            return _die_of(error.number)
        if os.environ.get(DEBUG) and not isinstance(error, click.ClickException):
            raise
        return _tell(error)
    return code if isinstance(code, int) else DONE


def _tell(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        say(_usage(error) if isinstance(error, click.UsageError) else error.format_message())
        return error.code if isinstance(error, Refused) else WRONG
    if isinstance(error, _foreseen()):
        say(str(error))
        return WRONG
    if isinstance(error, OSError):
        say(_system(error))
        return WRONG
    if code := code_of(error):
        say(unreadable(error))
        return code
    say(f"unexpected {type(error).__name__}: {error}; {DEBUG}=1 shows where, please report it")
    return NOT_SO


def code_of(error: Exception) -> int:
    """The exit code of a record that cannot be decoded; 0 for any other error."""
    from events.codec import BadPayload, UnknownType

    return {BadPayload: CORRUPT, UnknownType: INCOMPATIBLE}.get(type(error), DONE)


def unreadable(error: Exception) -> str:
    """The line about it, with the cure."""
    cure = "use a newer ebbtide" if code_of(error) == INCOMPATIBLE else "it was edited, or miswritten"
    return f"the journal holds a record that cannot be read: {error}; {cure}"


def _first_of(error: Exception) -> Exception:
    """Out of the groups in which nurseries hand on what happened."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def say(text: str) -> None:
    """One line on standard error."""
    print(f"ebbtide: {visible(' '.join(text.split()))}", file=sys.stderr)


def _usage(error: click.UsageError) -> str:
    """Click's message in the style of the other lines, with where to look."""
    text = error.format_message().rstrip(".")
    path = error.ctx.command_path if error.ctx else "ebbtide"
    return f"{text[:1].lower()}{text[1:]}; see '{path} --help'"


def _system(error: OSError) -> str:
    """A failed system call. The cure is known only for the commonest."""
    where = f"{error.filename}: " if error.filename else ""
    cure = "; use sudo, or name a path of your own" if isinstance(error, PermissionError) else ""
    return f"{where}{error.strerror or error}{cure}"


def _foreseen() -> tuple[type[Exception], ...]:
    """Errors whose text is already one line with its cure. Imported late: most runs end without one."""
    from ebbtide.claim import RuntimeTaken
    from ebbtide.config import ConfigError
    from ebbtide.control import ControlError
    from ebbtide.manifests import ManifestError
    from ebbtide.recover import Unreadable
    from events.recovery import ForeignJournal
    from events.storage import JournalLocked

    return (
        ConfigError,
        ManifestError,
        ControlError,
        JournalLocked,
        RuntimeTaken,
        ForeignJournal,
        Unreadable,
    )


def _die_of(number: signal.Signals) -> int:
    """As every other tool does, so that a shell sees a signal and no exit code of its own meaning."""
    try:
        sys.stdout.close()
    except OSError:
        pass
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
