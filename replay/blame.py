"""Which pods and hooks took a shutdown's time, in the manner of ``systemd-analyze blame``.

Two figures a line, both from the record. ``took``: a hook from its start to its result, a stop from the
signal's order to the observed exit. ``alone``: the part in which its wave, or after the last wave the
release, waited for this alone: for no other pod of the wave, and no other container of the same pod. The
shutdown would have saved this time if it had ended together with the next slowest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ebbtide.events.base import FrozenStruct
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record import shutdown_record

#: ``[begin, end)`` in nanoseconds since the signal.
Interval = tuple[int, int]


class Cost(FrozenStruct):
    """One part of a pod's stop (`shutdown_record.StopPart`). ``wave`` None: not in the plan."""

    wave: int | None
    pod: str
    uid: str
    outcome: PodOutcome | None
    container: str
    what: shutdown_record.StopPartKind
    text: str
    began_ns: int
    ended_ns: int
    seen: bool
    alone_ns: int

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def blame(shutdown: shutdown_record.ShutdownRecord, *, wave: int | None = None) -> list[Cost]:
    """Costs of a shutdown, or of one of its waves, the longest first; ties in the order of the inventory."""
    alone = _alone(shutdown)
    costs = [
        Cost(
            wave=pod.wave if pod.wave >= 0 else None,
            pod=pod.label,
            uid=pod.uid,
            outcome=pod.outcome,
            container=part.container,
            what=part.what,
            text=part.text,
            began_ns=part.began_ns,
            ended_ns=part.ended_ns,
            seen=part.seen,
            alone_ns=alone_ns,
        )
        for pod in shutdown.pods
        if wave is None or pod.wave == wave
        for part, alone_ns in _shares(list(shutdown_record.stop_parts(pod, shutdown)), alone.get(pod.uid, ()))
    ]
    return sorted(costs, key=lambda cost: (-cost.took_ns, -cost.alone_ns))


def _alone(shutdown: shutdown_record.ShutdownRecord) -> dict[str, list[Interval]]:
    """When each pod was the only one left: at its wave's end, and after the last wave."""
    begun = [wave for wave in shutdown.waves if wave.began_ns is not None]
    stopped = [pod for pod in shutdown.pods if pod.began_ns is not None]
    # Each wave waits for its own pods, and the release for the rest.
    waits = []
    for wave in begun:
        uids = dict.fromkeys(wave.pods)  # there may be a thousand
        members = [pod for pod in stopped if pod.uid in uids]
        waits.append((members, wave.began_ns or 0, shutdown_record.wave_end_ns(wave, shutdown)))
    last_ns = max((shutdown_record.wave_end_ns(wave, shutdown) for wave in begun), default=0)
    drained_ns = shutdown.last_ns if shutdown.pods_ended_ns is None else shutdown.pods_ended_ns
    if last_ns < drained_ns:
        waits.append((stopped, last_ns, drained_ns))
    found: dict[str, list[Interval]] = {}
    for pods, began_ns, ended_ns in waits:
        ends = {pod.uid: min(shutdown_record.pod_end_ns(pod, shutdown), ended_ns) for pod in pods}
        last = max(ends, key=lambda each: ends[each], default="")
        # It was alone after the one before it had ended. Of two that outlasted the wait none was.
        others_ns = max((end for uid, end in ends.items() if uid != last), default=began_ns)
        begin_ns = max(began_ns, others_ns)
        if last and begin_ns < ends[last]:
            found.setdefault(last, []).append((begin_ns, ends[last]))
    return found


def _shares(
    parts: Sequence[shutdown_record.StopPart], alone: Sequence[Interval]
) -> Iterator[tuple[shutdown_record.StopPart, int]]:
    """A moment counts for a part only if no other part of the pod runs in it."""
    shares = [0] * len(parts)
    # Between two edges the set of running parts is constant.
    edges = sorted({edge: None for part in parts for edge in (part.began_ns, part.ended_ns)})
    for begin_ns, end_ns in pairwise(edges):
        running = [at for at, part in enumerate(parts) if part.began_ns <= begin_ns < part.ended_ns]
        if len(running) == 1:
            shares[running[0]] += sum(
                max(0, min(end_ns, last_ns) - max(begin_ns, first_ns)) for first_ns, last_ns in alone
            )
    return zip(parts, shares, strict=True)
