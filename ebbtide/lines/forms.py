"""What of the sentences stands in the log, and in which form: with its time, and with its pod's name.

``{text}`` is the sentence (`events.words`), ``{since}`` the seconds since the shutdown began, ``{pod}`` its
pod's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ebbtide.lines.base import Line, Lines
from events import decisions as d
from events import facts as f
from events.base import Event
from events.words import ERROR, NOTICE, WARNING, Said
from events.words.shutdown import autopsied

#: How the key of an order to start a pod begins, and of the one to start the kubelet.
START, START_KUBELET = "NodeStatusActor/start/", "KubeletActor/start/"

PLAIN, TIMED = "{text}", "+{since} s {text}"
OF_POD = "pod {pod} {text}"

FORMS: dict[type[Event], str] = {
    d.Armed: PLAIN,
    d.Disarmed: PLAIN,
    d.GrantAssessed: PLAIN,
    d.WriteDropIn: PLAIN,
    d.RemoveDropIn: PLAIN,
    d.ConfigDeferred: PLAIN,
    d.ActorFailed: PLAIN,
    d.Leave: PLAIN,
    f.ScheduleRead: PLAIN,
    f.ManifestRejected: PLAIN,
    f.SettingsRejected: PLAIN,
    f.EffectPanicked: PLAIN,
    f.DurabilityLate: PLAIN,
    f.StorageFailed: PLAIN,
    f.StorageMoved: PLAIN,
    f.SignalRejected: PLAIN,
    f.HurryRequested: PLAIN,
    f.ReleaseRequested: PLAIN,
    d.ShutdownBegan: PLAIN,
    d.PlanMade: TIMED,
    d.DeadlineMoved: PLAIN,
    d.EpisodeClosed: PLAIN,
    d.WaveStarted: TIMED,
    d.WaveEnded: TIMED,
    d.ShutdownCancelled: TIMED,
    d.PodsEnded: TIMED,
    d.ReleaseLock: TIMED,
    f.KubeletRead: PLAIN,
    f.RuntimeRead: PLAIN,
    f.ApiRead: PLAIN,
    d.MeansChosen: TIMED,
    d.HandedOver: TIMED,
    d.KubeletStopped: TIMED,
    d.StartKubelet: TIMED,
    d.LeftUndone: TIMED,
    d.DetachCertified: TIMED,
    f.PodJoined: f"+{{since}} s {OF_POD}",
    d.DeleteRefused: "+{since} s pod {pod}: {text}",
    d.PodPlanned: "pod {pod}: {text}",
    d.PodRejected: OF_POD,
    d.PodEnded: f"+{{since}} s {OF_POD}",
    d.HookEnded: "+{since} s pod {pod}: {text}",
}


def _resumed(lines: Lines, event: d.Resumed, said: Said) -> Iterator[Line]:
    """What the last boot left, and what is done about it, are two lines; a plain start is none."""
    left, _, start = said.text.rpartition("; ")
    if left:
        yield said.level, left
    if event.action not in ("fresh", "begin"):
        yield NOTICE, start


def _order_ended(lines: Lines, event: f.OrderEnded, said: Said) -> Iterator[Line]:
    """A failed stop stands in its pod's reason, a failed arming in ours; a failed start in none."""
    if said.level <= WARNING and event.key.startswith((START, START_KUBELET)):
        yield ERROR, said.text


def _autopsy(lines: Lines, event: f.AutopsyTaken, said: Said) -> Iterator[Line]:
    """A line a process: each may be long."""
    name = lines.names.of(event.uid)
    for process in event.processes:
        yield said.level, f"autopsy of {name}/{event.container}: {autopsied(process)}"


#: Types that are not always one line.
SPECIAL: dict[type[Event], Callable[[Lines, Any, Said], Iterator[Line]]] = {
    d.Resumed: _resumed,
    f.OrderEnded: _order_ended,
    f.AutopsyTaken: _autopsy,
}

#: Told when they are bad news only.
BAD_ONLY: tuple[type[Event], ...] = (d.HookEnded,)
