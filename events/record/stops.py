"""What a pod's stop is made of: its hooks, and for each container the time from stop signal to exit.

The same parts are blamed, stand on the critical chain, and are compared between two shutdowns. They have a
module of their own because the daemon, which follows a shutdown too, has no use for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from ebbtide.events.record.format import span
from ebbtide.events.record.model import ContainerRecord, PodRecord, ShutdownRecord, WaveRecord

#: ``killed``: it ended by our SIGKILL, or has not ended in spite of it.
StopPartKind = Literal["hook", "stop", "killed"]


class StopPart(NamedTuple):
    """``ended_ns`` is where the record stops to tell of it, if nobody saw its end (``seen`` False)."""

    what: StopPartKind
    container: str
    began_ns: int
    ended_ns: int
    seen: bool
    #: In words: the hook's kind and result, or the signals.
    text: str

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def stop_parts(pod: PodRecord, shutdown: ShutdownRecord) -> Iterator[StopPart]:
    """In the order of their begin; those of one moment in the manifest's order."""
    until_ns = pod_end_ns(pod, shutdown)
    found = []
    for hook in pod.hooks:
        # Of one whose end nobody saw the record tells up to the pod's own end.
        ended_ns = max(hook.began_ns, until_ns) if hook.ended_ns is None else hook.ended_ns
        detail = f" {hook.detail}" if hook.detail else ""
        result = hook.result or "not ended"
        early = ", early" if hook.early and result == "done" else ""
        reason = f": {hook.reason}" if hook.reason and result != "done" else ""
        text, seen = f"hook {hook.kind}{detail}: {result}{early}{reason}", hook.ended_ns is not None
        found.append(StopPart("hook", hook.container, hook.began_ns, ended_ns, seen, text))
    found += [_stop_part(each, until_ns, pod) for each in pod.containers if stop_began_ns(each) is not None]
    yield from sorted(found, key=lambda part: part.began_ns)


def pod_end_ns(pod: PodRecord, shutdown: ShutdownRecord) -> int:
    """When it ended; where nobody saw that, up to when it was waited for."""
    if pod.ended_ns is not None:
        return pod.ended_ns
    given_up_ns = shutdown.pods_ended_ns if shutdown.pods_ended_ns is not None else shutdown.last_ns
    return max(given_up_ns, pod.began_ns or 0)


def wave_end_ns(wave: WaveRecord, shutdown: ShutdownRecord) -> int:
    """When it ended; where that is not on record, when the next one began or nobody waited any longer."""
    if wave.ended_ns is not None:
        return wave.ended_ns
    later = [each.began_ns for each in shutdown.waves[wave.index + 1 :] if each.began_ns is not None]
    ends = (*later[:1], shutdown.pods_ended_ns, shutdown.ended_ns)
    return next((end_ns for end_ns in ends if end_ns is not None), shutdown.last_ns)


def stop_began_ns(container: ContainerRecord) -> int | None:
    """Our signal, or before that the moment from which the kubelet was to end it."""
    return container.signalled_ns if container.asked_ns is None else container.asked_ns


#: How the kubelet comes to end a pod.
BY_KUBELET_TEXTS = {"api": "deleted", "observe": "by the kubelet"}


def _stop_part(container: ContainerRecord, until_ns: int, pod: PodRecord) -> StopPart:
    began_ns = stop_began_ns(container) or 0
    seen = container.exited_ns is not None
    ended_ns = max(began_ns, until_ns if container.exited_ns is None else container.exited_ns)
    killed = was_killed(container)
    text = container.stop_signal
    if container.asked_ns is not None:
        text = BY_KUBELET_TEXTS.get(pod.means, "deleted")
        if container.signalled_ns is not None:
            text += f", {container.stop_signal} after {span(container.signalled_ns - began_ns)}"
    if killed and container.killed_ns is not None:
        text += f", SIGKILL after {span(container.killed_ns - began_ns)}"
    how = "ended" if container.exit_code is None else f"exit code {container.exit_code}"
    if container.exit_signal:
        how = f"ended by {container.exit_signal}"
    text += f", {how if seen else 'not seen to end'}"
    return StopPart("killed" if killed else "stop", container.name, began_ns, ended_ns, seen, text)


def was_killed(container: ContainerRecord) -> bool:
    """By our SIGKILL, or by a kubelet's."""
    # A kubelet's leaves no order of ours: it shows in how the container ended. Of a process that was not ours
    # to wait for, ours is all that is known, so only an end of another kind speaks against it.
    if container.killed_ns is None:
        by_kubelet = container.asked_ns is not None and container.signalled_ns is None
        return by_kubelet and (container.exit_code == 137 or container.exit_signal == "SIGKILL")
    by_itself = container.exit_code not in (None, 137) or container.exit_signal not in ("", "SIGKILL")
    return not (container.exited_ns is not None and by_itself)
