"""The library's functions on a journal's shutdowns, with the commands' names and answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, get_args

from ebbtide.events.record.format import rfc3339
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord, with_verdict
from ebbtide.events.segment import LOGICS
from ebbtide.events.values import Pod, Settings
from ebbtide.replay import diff as diffing
from ebbtide.replay import time_spent
from ebbtide.replay.advise import CAUTION, Advice, Caution
from ebbtide.replay.advise import advise as advise_on
from ebbtide.replay.journal_library import Journal, Outage, Shutdown, utc
from ebbtide.replay.report.outage_page import outage_report
from ebbtide.replay.report.page import report
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.simulate import Simulated
from ebbtide.replay.sim.simulate import SimulationRequest as Simulation
from ebbtide.replay.sim.simulate import simulate as simulate_seed
from ebbtide.replay.states import States
from ebbtide.replay.states import states_at as states_of
from ebbtide.replay.tables import TABLES
from ebbtide.replay.timeline import ALL_LINES, Line, LineFilter, timeline
from ebbtide.replay.verify import Verification
from ebbtide.replay.verify import verify as verify_history
from ebbtide.replay.whatif.record import Changes
from ebbtide.replay.whatif.verdicts import Curves
from ebbtide.replay.whatif.whatif_run import Comparison, trial_of
from ebbtide.replay.whatif.whatif_run import what_if as decide

ShutdownOrRecord = Shutdown | ShutdownRecord
ShutdownOrOutage = Shutdown | Outage


def _account(found: ShutdownOrRecord) -> ShutdownRecord:
    return found if isinstance(found, ShutdownRecord) else found.account


def verify(journal: Journal, shutdown: ShutdownOrOutage | None = None) -> Verification:
    """Executes the whole journal and compares every decision; with ``shutdown``, only its decisions count."""
    only = 0 if shutdown is None else shutdown.account.first_seq
    return verify_history(journal.history(logics=LOGICS), only)


def timeline_of(shutdown: ShutdownOrOutage, wanted: LineFilter = ALL_LINES) -> Iterator[Line]:
    """One line for each record."""
    return timeline(shutdown.journal.history().batches(), shutdown.account.first_seq, wanted)


def states_at(shutdown: ShutdownOrOutage, seq: int) -> States | None:
    """Every actor's state right after record ``seq``; None: no such record."""
    return states_of(shutdown.journal.history(), seq)


def blame(shutdown: ShutdownOrRecord, *, wave: int | None = None) -> list[time_spent.Cost]:
    """Pods and hooks by their time (`replay.time_spent`)."""
    return time_spent.blame(_account(shutdown), wave=wave)


def critical_chain(found: ShutdownOrRecord | Outage | OutageRecord) -> time_spent.Chain:
    """The parts of the total time (`replay.time_spent`), or what an outage waited for."""
    account = found.account if isinstance(found, Outage) else found
    if isinstance(account, OutageRecord):
        return time_spent.recovery_chain(account)
    return time_spent.critical_chain(_account(account))


def diff(a: ShutdownOrRecord, b: ShutdownOrRecord) -> diffing.Difference:
    """Compares two shutdowns, also of two journals (`replay.diff`)."""
    return diffing.diff(_account(a), _account(b))


def what_if(
    shutdown: Shutdown,
    *,
    settings: Settings | None = None,
    pods: Iterable[Pod] = (),
    grant_ns: int | None = None,
) -> Comparison:
    """The shutdown under other settings, beside the record (`replay.whatif.record.Changes`).

    Raises replay.whatif.record.Diverged and WrongChange.
    """
    changes = Changes(settings=settings, pods=tuple(pods), grant_ns=grant_ns)
    history = shutdown.journal.history(logics=LOGICS)
    return decide(history, shutdown.account.first_seq, changes, Curves([shutdown.account]))


def advise(shutdowns: Iterable[ShutdownOrRecord], caution: Caution = CAUTION) -> Advice:
    """The smallest periods with which every pod would have ended by itself. Shutdowns of a journal are tried
    (`Advice.trial`): none of their pods is lost. Raises replay.advise.NoEvidence.
    """
    given = list(shutdowns)
    nights = [
        (each.account, partial(each.journal.history, logics=LOGICS))
        for each in given
        if isinstance(each, Shutdown)
    ]
    whole = len(nights) == len(given)
    return advise_on(map(_account, given), caution, partial(trial_of, nights) if whole else None)


def simulate(seed: int = 0, **wanted: Any) -> Simulated:
    """Simulates a whole shutdown. ``wanted``: as in `replay.sim.simulate.SimulationRequest`.

    Raises TypeError for an unknown name, ValueError for a wrong value.
    """
    if wanted.get("mode") == "process":
        del wanted["mode"]
    asked = Simulation(**wanted)
    if asked.mode not in ("", *get_args(NodeMode)):
        raise ValueError(
            f"no mode {asked.mode!r}: there are process, {', '.join(filter(None, get_args(NodeMode)))}"
        )
    if asked.synthetic < 0:
        raise ValueError(f"synthetic={asked.synthetic}: there is no such number of pods")
    return simulate_seed(asked, seed)


def report_html(found: ShutdownOrOutage) -> str:
    """One self-contained page, with the journal's damage."""
    account, verdict = found.account, found.journal.verdict
    lines, started = timeline_of(found), rfc3339(account.started_wall_ns)
    if isinstance(account, OutageRecord):
        return outage_report(with_verdict(account, verdict), lines, started)
    return report(with_verdict(account, verdict), lines, started)


def rows(
    shutdowns: Iterable[ShutdownOrRecord], table: str = "shutdowns", *, datetimes: bool = False
) -> Iterator[dict[str, Any]]:
    """Flat rows of a table (docs/fleet.md), for a data frame.

    ``datetimes``: `utc` times in place of nanoseconds. Raises KeyError with the tables' names.
    """
    tables = {each.name: each for each in TABLES}
    if table not in tables:
        raise KeyError(f"no table {table!r}: there are {', '.join(tables)}")
    columns = tables[table].columns
    names = [column.name for column in columns]
    times = [column.name for column in columns if datetimes and column.type == "time"]
    for shutdown in shutdowns:
        for values in tables[table].rows(_account(shutdown)):
            row = dict(zip(names, values, strict=True))
            yield row | {name: utc(row[name]) for name in times if row[name] is not None}
