"""What the page's script draws, as compact JSON: rows of the timeline, and the events column by column.

Times are microseconds since the signal: exact for a screen, and a third shorter than nanoseconds. Whatever
the tables say already is not here again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from events.decisions import PodOutcome
from replay.account.model import Account, HookTold, PodTold, WaveTold
from replay.account.parts import stop_began_ns
from replay.report.around import BESIDE
from replay.report.words import fate, visible
from replay.timeline import Line

DOCUMENT_VERSION = 1
NS_PER_US = 1000

#: The page shows so much of an event; ``ebbtide journal show`` has all of it.
TEXT_CHARACTERS_MAX, DATA_CHARACTERS_MAX, ENTRIES_MAX = 200, 240, 8

FATES: tuple[PodOutcome, ...] = get_args(PodOutcome)

COLUMNS = ("seq", "at", "cause", "type", "actor", "pod", "bad", "text", "data")


def _us(at_ns: int | None) -> int | None:
    return None if at_ns is None else at_ns // NS_PER_US


def document(account: Account, lines: Iterable[Line], holders: Iterable[str]) -> dict[str, Any]:
    """The page's data; its shape is this module's and the script's own matter. ``holders`` are UIDs."""
    index = {pod.uid: at for at, pod in enumerate(account.pods)}
    return {
        "version": DOCUMENT_VERSION,
        "first": account.first_seq,
        "last": _us(account.last_ns),
        "fates": list(FATES),
        "lines": [[name, _us(at_ns)] for name, at_ns in _lines(account) if at_ns is not None],
        "beside": _beside(account),
        "waves": list(map(_wave, account.waves)),
        "pods": list(map(_pod, account.pods)),
        "holders": [index[uid] for uid in holders if uid in index],
        "events": _events(account, index, lines),
    }


def _lines(account: Account) -> list[tuple[str, int | None]]:
    """What stands across the whole timeline."""
    here = [each for each in account.processes if each.boot_id == account.boot_id and not each.came_after]
    restarts = [("restart", each.at_ns) for each in here]
    return [
        ("signal", 0),
        ("deadline", account.deadline_ns or None),
        ("handed over", account.by.handed_over_ns),
        ("cancelled", account.cancelled_ns),
        ("released" if account.outcome == "complete" else "closed", account.ended_ns),
        *restarts,
    ]


def _beside(account: Account) -> list[list[Any]]:
    """One row a kind: its name, and from when to when each of its orders was open."""
    rows: dict[str, list[Any]] = {}
    for span in account.beside:
        rows.setdefault(BESIDE[span.what], []).append([_us(span.began_ns), _us(span.ended_ns)])
    return [[name, spans] for name, spans in rows.items()]


def _wave(wave: WaveTold) -> list[Any]:
    times = (wave.began_ns, wave.ended_ns, wave.deadline_ns)
    return [wave.index, wave.priority, *map(_us, times), wave.outcome]


def _pod(pod: PodTold) -> list[Any]:
    """Label, wave, fate, began, ended, bound, signals, kills, hurried, hooks."""
    begun = (stop_began_ns(each) for each in pod.containers)
    signals = sorted(_us(began_ns) or 0 for began_ns in begun if began_ns is not None)
    kills = sorted(_us(each.killed_ns) or 0 for each in pod.containers if each.killed_ns is not None)
    times = (pod.began_ns, pod.ended_ns, _bound_ns(pod))
    hooks = list(map(_hook, pod.hooks))
    return [
        visible(pod.label),
        pod.wave,
        FATES.index(fate(pod)),
        *map(_us, times),
        signals,
        kills,
        _us(pod.hurried_ns),
        hooks,
    ]


def _bound_ns(pod: PodTold) -> int | None:
    """Until when it could have run: the end of its grace, or of the shutdown's own time."""
    if pod.began_ns is None or pod.grace_ns is None:
        return pod.kill_by_ns
    end_ns = pod.began_ns + pod.grace_ns
    return end_ns if pod.kill_by_ns is None else min(end_ns, pod.kill_by_ns)


def _hook(hook: HookTold) -> list[Any]:
    result = "early" if hook.early else hook.result or "open"
    return [_us(hook.began_ns), _us(hook.ended_ns), _us(hook.until_ns), hook.kind, result]


# --- events ------------------------------------------------------------------------------------


class Shelf(dict[str, int]):
    """Each distinct text once, by the order in which it came."""

    def place(self, value: str) -> int:
        return self.setdefault(value, len(self))


def _events(account: Account, index: dict[str, int], lines: Iterable[Line]) -> dict[str, Any]:
    """Columns; ``pod`` points into the table of pods, -1 where an event is about none."""
    names = {pod.uid: pod.label for pod in account.pods}
    types, actors = Shelf(), Shelf()
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for line in lines:
        row = (
            line.seq,
            _us(line.since_ns),
            line.cause,
            types.place(visible(line.type)),
            actors.place(visible(line.short)),
            index.get(line.uid, -1),
            int(line.bad),
            visible(_cut(line.text, TEXT_CHARACTERS_MAX)),
            visible(_cut(_data(line.data, names), DATA_CHARACTERS_MAX)),
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return {**columns, "types": list(types), "actors": list(actors)}


def _data(data: Any, names: dict[str, str]) -> str:
    """Fields that are not at their default, pods by name; long lists only by their length."""
    if not isinstance(data, dict):
        return str(data)
    return " ".join(f"{name}={_value(value, names)}" for name, value in data.items())


def _value(value: Any, names: dict[str, str]) -> str:
    if isinstance(value, list | tuple | dict) and len(value) > ENTRIES_MAX:
        return f"({len(value)} of them)"
    if isinstance(value, str):
        return names.get(value) or "/".join(names.get(part, part) for part in value.split("/"))
    return f"({len(value)} bytes)" if isinstance(value, bytes) else str(value)


def _cut(words: str, length_max: int) -> str:
    return words if len(words) <= length_max else words[: length_max - 1] + "…"
