"""`what_if`: the record read, changed, and performed twice: hopeful, and grim.

Two runs span what the record leaves open (`replay.whatif.way`). In the hopeful one every container and hook
of which only a bound is known ends just after that; in the grim one never by itself. What is certain is the
same in both; totals are the interval between them. Between the two each unknown may fall anywhere, so an
interval is what these extremes lead to, not a guarantee for every mixture of them.

With nothing changed both runs are the record, event by event (`WhatIf.is_same`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from actors.logic.arming import NAME as LOGIND
from actors.logic.arming import LogindState
from actors.logic.config import NAME as CONFIG
from actors.logic.config import ConfigState
from actors.logic.system import System
from events.base import NS_PER_SECOND, Mark
from events.decisions import WriteDropIn
from events.facts import LogindRead, PrepareForShutdown, SettingsLoaded
from events.history import History
from events.record import Record, Stamp
from replay.account.words import span
from replay.whatif.changes import Changes, WrongChange, facts_under
from replay.whatif.evidence import Evidence, Support, weakest
from replay.whatif.outline import Outline, outline
from replay.whatif.seen import Seen
from replay.whatif.sight import see
from replay.whatif.stage import Performance, Stage
from replay.whatif.tape import Tape, config_of, own, read_tape, up_to_next
from replay.whatif.world import Recorded

#: (code, sentence). Codes stay; sentences are for people.
Assumption = tuple[str, str]


class Run(NamedTuple):
    """One performance."""

    records: tuple[Record, ...]
    outline: Outline
    evidence: Evidence
    world: Recorded


class WhatIf(NamedTuple):
    """The record (``then``), and the two runs under ``changes``."""

    tape: Tape
    changes: Changes
    then: Outline
    hopeful: Run
    grim: Run
    assumptions: tuple[Assumption, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing at all happens otherwise, in either run."""
        recorded = [(each.mono_ns, each.event) for each in self.tape.events]
        return all(
            recorded == [(each.mono_ns, each.event) for each in run.records]
            for run in (self.hopeful, self.grim)
        )

    def support(self, uid: str) -> Support:
        """How well the record supports what is said of a pod."""
        return weakest(run.evidence.of(uid) for run in (self.hopeful, self.grim))


def what_if(history: History, first_seq: int, changes: Changes) -> WhatIf:
    """The shutdown that begins at record ``first_seq``, under ``changes``.

    Raises WrongChange; replay.whatif.tape.Diverged and NotThere; events.codec.UnknownType and BadPayload.
    """
    return perform(read_tape(history, first_seq), changes)


def perform(tape: Tape, changes: Changes) -> WhatIf:
    """The same for a record that is read already. Raises WrongChange."""
    grant_ns = changes.grant_ns if changes.grant_ns is not None else _raised_ns(tape, changes)
    seen = see(tape, facts_under(tape, changes, grant_ns))
    hopeful, grim = (_run(tape, changes, grant_ns, seen, hopeful=hopeful) for hopeful in (True, False))
    then = outline(((each.mono_ns, each.event) for each in tape.own), tape.signal_ns)
    assumed = (*_granted(tape, changes, grant_ns), *_assumptions(tape, seen, grim))
    return WhatIf(tape, changes, then, hopeful, grim, assumed)


def _run(tape: Tape, changes: Changes, grant_ns: int | None, seen: Seen, *, hopeful: bool) -> Run:
    system = tape.system()
    _set_up(system, tape, changes)
    if grant_ns is not None:
        _grant(system, tape, grant_ns)
    system.next_seq = tape.first_seq
    stage = Stage(tape, seen)
    world = Recorded(tape, seen, stage, hopeful=hopeful)
    end_ns = _end_ns(tape, grant_ns)
    if end_ns is not None:
        stage.end(end_ns)
    records = Performance(system, stage, world, tape.wall_offset_ns).perform()
    mine = up_to_next(records, tape.first_seq)
    happened = tuple(each for each in mine if not isinstance(each.event, Mark))
    told = own(happened, tape.first_seq)
    folded = outline(((each.mono_ns, each.event) for each in told), tape.signal_ns)
    return Run(happened, folded, world.evidence, world)


def _set_up(system: System, tape: Tape, changes: Changes) -> list[Record]:
    """The new settings, just before the signal; what is decided about them, and is too late to be done."""
    if changes.settings is None or changes.settings == tape.settings:
        return []
    records = system.step(SettingsLoaded(settings=changes.settings), _stamp(tape))
    if config_of(system).settings != changes.settings:
        raise WrongChange("settings wait for the end of the shutdown before, which this one follows at once")
    return records


def _grant(system: System, tape: Tape, grant_ns: int) -> None:
    """For a shutdown whose first fact does not tell the grant: as if logind had been read just before."""
    if isinstance(tape.events[0].event, PrepareForShutdown):
        return
    state = cast(LogindState, system.slots[(LOGIND, "")].state)
    system.step(LogindRead(owner="", grant_ns=grant_ns, preparing=False, kind=state.kind), _stamp(tape))


def _stamp(tape: Tape) -> Stamp:
    return Stamp(tape.signal_ns, tape.signal_ns + tape.wall_offset_ns)


def _raised_ns(tape: Tape, changes: Changes) -> int | None:
    """What logind would have been asked for, had these settings been loaded in time: the actor decides it.

    None where nothing is asked, or where logind had not obeyed the drop-in that was there already.
    """
    system = tape.system()
    known = config_of(system)
    files = known.drop_ins
    disobeyed = files is not None and (bool(files.overridden_by) or known.grant_ns < (files.ours_ns or 0))
    records = _set_up(system, tape, changes)
    orders = [each.event for each in records if isinstance(each.event, WriteDropIn) and each.actor == CONFIG]
    return orders[-1].seconds * NS_PER_SECOND if orders and not disobeyed else None


def _end_ns(tape: Tape, grant_ns: int | None) -> int | None:
    """When the machine goes down whatever is decided; None: not before the release.

    A record that was cut ends the world there, or, where logind's own timer did that, when that fires. A
    shutdown that was released within its grant has no more time than another grant gives.
    """
    took_ns = tape.last_ns - tape.signal_ns
    by_timer = took_ns >= tape.grant_ns > 0
    if tape.is_cut:
        now_ns = tape.grant_ns if grant_ns is None else grant_ns
        return max(tape.signal_ns, tape.last_ns + (now_ns - tape.grant_ns if by_timer else 0))
    if grant_ns is None or by_timer or tape.is_moved:
        return None
    return tape.signal_ns + grant_ns


def _granted(tape: Tape, changes: Changes, raised_ns: int | None) -> Iterator[Assumption]:
    """Where these settings need more than was granted, and nobody said what is granted now."""
    if changes.grant_ns is not None:
        return
    if raised_ns is not None:
        yield "grant", f"logind grants {span(raised_ns)}, as the drop-in for these settings asks"
        return
    system = tape.system()
    _set_up(system, tape, changes)
    known = config_of(system)
    if changes.settings is not None and tape.grant_ns < known.needed_ns:
        then, needed = span(tape.grant_ns), span(known.needed_ns)
        yield "grant", f"logind grants {then} as it did, of {needed} that these settings need{_why(known)}"


def _why(known: ConfigState) -> str:
    """What kept logind's limit where it was, as far as it is on record."""
    files = known.drop_ins
    if files is not None and files.overridden_by:
        return f": {files.overridden_by} overrides the drop-in"
    if known.settings is not None and not known.settings.raise_grant:
        return ": raiseGrant is false"
    return ": it was not raised on record" if files is not None else ": no drop-in was read"


def _assumptions(tape: Tape, seen: Seen, run: Run) -> list[Assumption]:
    found: list[Assumption] = []
    if not run.outline.began:
        found.append(("off", "graceful shutdown is off under these settings: nothing is held back"))
    for down in seen.downtimes:
        when = f"from {span(down.begin_ns - tape.signal_ns)} to {span(down.end_ns - tape.signal_ns)}"
        found.append(("restart", f"no daemon runs {when} after the signal, as in the record"))
    for name, count in run.world.invented.items():
        slowest = span(seen.slowest_ns.get(name, 0))
        found.append(("order", f"{name}: {count} more than the record has, done after {slowest}"))
    if run.world.first_kills:
        found.append(("kill", f"SIGKILL ends {_named(run)} at once, or never: the record shows none of it"))
    if run.world.missed:
        missed = f"{run.world.missed} recorded fact{'s' if run.world.missed > 1 else ''}"
        found.append(("too-late", f"{missed} would have come after the release, and did not happen"))
    if not tape.is_cut and run.outline.outcome == "truncated":
        grant = span(run.outline.grant_ns)
        found.append(("grant-over", f"logind lets the machine go {grant} after the signal, unreleased"))
    if tape.is_cut:
        end = span(tape.last_ns - tape.signal_ns)
        found.append(("cut-short", f"the record ends {end} after the signal: what comes later is not known"))
    return found


def _named(run: Run) -> str:
    """Who is killed and was not, three of them by name."""
    labels = [run.outline.pods[uid].pod.label for uid in run.world.first_kills]
    more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
    return f"{', '.join(labels[:3])}{more}"
