"""The library's functions, each on a shutdown of a journal as `replay.open` gives it.

They are the commands' own: a command opens a journal, calls one of these, or what it stands on, and prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from actors.logic.flags import LOGIC_FLAGS
from events.decisions import PodOutcome
from events.episodes import Episode
from events.model import Pod, Settings
from replay import blamed, chain, diffing
from replay.account.damage import with_verdict
from replay.account.model import Account
from replay.account.words import rfc3339
from replay.advise.advising import Advice
from replay.advise.advising import advise as advise_on
from replay.journal import Journal, Shutdown
from replay.perfetto import perfetto
from replay.report.page import report
from replay.states import States
from replay.states import states_at as states_of
from replay.stepping import Stepper
from replay.tables import TABLES
from replay.timeline import Line, timeline
from replay.timeline_wanted import EVERYTHING, Wanted
from replay.verification import Verification
from replay.verification import verify as verify_history
from replay.virtual.simulate import Simulated
from replay.virtual.simulate import Wanted as Simulation
from replay.virtual.simulate import simulate as simulate_seed
from replay.whatif.changes import Changes
from replay.whatif.compare import Comparison, compare
from replay.whatif.performing import what_if as decide

#: What tells of a shutdown by itself.
Told = Shutdown | Account


def _account(told: Told) -> Account:
    return told if isinstance(told, Account) else told.account


# --- is it true, and what happened -------------------------------------------------------------


def verify(journal: Journal, shutdown: Shutdown | None = None) -> Verification:
    """Execute all of a journal and compare every decision; with ``shutdown``, judge that one only."""
    only = 0 if shutdown is None else shutdown.account.first_seq
    return verify_history(journal.history(logic_flags=LOGIC_FLAGS), only)


def timeline_of(shutdown: Shutdown, wanted: Wanted = EVERYTHING) -> Iterator[Line]:
    """Its records in words, one a transition."""
    return timeline(shutdown.journal.history().batches(), shutdown.account.first_seq, wanted)


def states_at(shutdown: Shutdown, seq: int) -> States | None:
    """What every actor knew right after record ``seq``; None where there is no such record."""
    return states_of(shutdown.journal.history(), seq)


def step(shutdown: Shutdown) -> Stepper:
    """A place in it that can be moved, forwards and back, with what each event changed."""
    account = shutdown.account
    names = ("id", "trace_id", "first_seq", "last_seq", "kind", "boot_id", "started_wall_ns", "outcome")
    ended_ns = None if account.ended_ns is None else account.started_wall_ns + account.ended_ns
    counts = {outcome: account.count(outcome) for outcome in get_args(PodOutcome)}
    facts = {name: getattr(account, name) for name in names}
    episode = Episode(**facts, ended_wall_ns=ended_ns, pods=counts)
    return Stepper(shutdown.journal.history(), episode)


# --- where the time went -----------------------------------------------------------------------


def blame(shutdown: Told, *, wave: int | None = None) -> list[blamed.Cost]:
    """Pods and hooks by the time that they took (`replay.blamed`)."""
    return blamed.blame(_account(shutdown), wave=wave)


def critical_chain(shutdown: Told) -> chain.Chain:
    """What the total time is made of (`replay.chain`)."""
    return chain.critical_chain(_account(shutdown))


def diff(a: Told, b: Told) -> diffing.Difference:
    """What differs between two shutdowns, also of two journals (`replay.diffing`)."""
    return diffing.diff(_account(a), _account(b))


# --- what would have been ----------------------------------------------------------------------


def what_if(
    shutdown: Shutdown,
    *,
    settings: Settings | None = None,
    pods: Iterable[Pod] = (),
    grant_ns: int | None = None,
    drop: Iterable[int] = (),
    delay: Iterable[tuple[int, int]] = (),
) -> Comparison:
    """The same shutdown under other settings, beside the record (`replay.whatif.changes.Changes`).

    Raises replay.whatif.tape.Diverged where this version decides otherwise than the record, and
    replay.whatif.changes.WrongChange.
    """
    changes = Changes(
        settings=settings, pods=tuple(pods), grant_ns=grant_ns, drop=tuple(drop), delay=tuple(delay)
    )
    history = shutdown.journal.history(logic_flags=LOGIC_FLAGS)
    return compare(decide(history, shutdown.account.first_seq, changes))


def advise(shutdowns: Iterable[Told]) -> Advice:
    """The smallest periods with which every pod would have ended by itself, from all of these together.

    Raises replay.advise.advising.NoEvidence.
    """
    return advise_on(map(_account, shutdowns))


def simulate(seed: int = 0, **wanted: Any) -> Simulated:
    """A whole shutdown in virtual time; ``wanted`` as in `replay.virtual.simulate.Wanted`."""
    return simulate_seed(Simulation(**wanted), seed)


# --- for others --------------------------------------------------------------------------------


def report_html(shutdown: Shutdown) -> str:
    """One self-contained page; it says so where the journal is damaged."""
    account = with_verdict(shutdown.account, shutdown.journal.verdict)
    return report(account, timeline_of(shutdown), rfc3339(account.started_wall_ns))


def rows(shutdowns: Iterable[Told], table: str = "shutdowns") -> Iterator[dict[str, Any]]:
    """Flat rows of one of the tables that docs/fleet.md describes, as a data frame wants them.

    Raises KeyError, naming the tables that there are.
    """
    tables = {each.name: each for each in TABLES}
    if table not in tables:
        raise KeyError(f"no table {table!r}: there are {', '.join(tables)}")
    names = [column.name for column in tables[table].columns]
    for shutdown in shutdowns:
        for row in tables[table].rows(_account(shutdown)):
            yield dict(zip(names, row, strict=True))


def perfetto_trace(shutdown: Shutdown) -> bytes:
    """A trace for Perfetto's viewer, in its native format."""
    return b"".join(perfetto(shutdown.account, timeline_of(shutdown)))
