"""What a pod's way down is made of: its hooks, and for each container the time from stop signal to exit.

The same parts are blamed, stand on the critical chain, and are compared between two shutdowns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from replay.account.model import Account, ContainerTold, HookTold, PodTold, WaveTold
from replay.account.words import span

#: ``killed``: it ended by our SIGKILL, or has not ended in spite of it.
What = Literal["hook", "stop", "killed"]


class Part(NamedTuple):
    """``ended_ns`` is where the record stops to tell of it, if nobody saw its end (``seen`` False)."""

    what: What
    container: str
    began_ns: int
    ended_ns: int
    seen: bool
    #: In words: the hook's kind and result, or the signals.
    text: str

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def parts(pod: PodTold, account: Account) -> Iterator[Part]:
    """In the order of their begin; those of one moment in the manifest's order."""
    until_ns = end_of(pod, account)
    found = [_hook(hook, until_ns) for hook in pod.hooks]
    found += [_stop(each, until_ns, pod) for each in pod.containers if stop_began_ns(each) is not None]
    yield from sorted(found, key=lambda part: part.began_ns)


def end_of(pod: PodTold, account: Account) -> int:
    """When it ended; where nobody saw that, up to when it was waited for."""
    if pod.ended_ns is not None:
        return pod.ended_ns
    given_up_ns = account.pods_ended_ns if account.pods_ended_ns is not None else account.last_ns
    return max(given_up_ns, pod.began_ns or 0)


def wave_end(wave: WaveTold, account: Account) -> int:
    """When it ended; where that is not on record, when the next one began or nobody waited any longer."""
    if wave.ended_ns is not None:
        return wave.ended_ns
    later = [each.began_ns for each in account.waves[wave.index + 1 :] if each.began_ns is not None]
    ends = (*later[:1], account.pods_ended_ns, account.ended_ns)
    return next((end_ns for end_ns in ends if end_ns is not None), account.last_ns)


def _hook(hook: HookTold, until_ns: int) -> Part:
    ended_ns = max(hook.began_ns, until_ns) if hook.ended_ns is None else hook.ended_ns
    detail = f" {hook.detail}" if hook.detail else ""
    result = hook.result or "not ended"
    early = ", early" if hook.early and result == "done" else ""
    reason = f": {hook.reason}" if hook.reason and result != "done" else ""
    seen = hook.ended_ns is not None
    text = f"hook {hook.kind}{detail}: {result}{early}{reason}"
    return Part("hook", hook.container, hook.began_ns, ended_ns, seen, text)


def stop_began_ns(container: ContainerTold) -> int | None:
    """Our signal, or before that the moment from which the kubelet was to end it."""
    return container.signalled_ns if container.asked_ns is None else container.asked_ns


#: How the kubelet comes to end a pod.
BY_KUBELET = {"api": "deleted", "observe": "by the kubelet"}


def _stop(container: ContainerTold, until_ns: int, pod: PodTold) -> Part:
    began_ns = stop_began_ns(container) or 0
    seen = container.exited_ns is not None
    ended_ns = max(began_ns, until_ns if container.exited_ns is None else container.exited_ns)
    killed = was_killed(container)
    text = container.stop_signal
    if container.asked_ns is not None:
        text = BY_KUBELET.get(pod.means, "deleted")
        if container.signalled_ns is not None:
            text += f", {container.stop_signal} after {span(container.signalled_ns - began_ns)}"
    if killed and container.killed_ns is not None:
        text += f", SIGKILL after {span(container.killed_ns - began_ns)}"
    text += f", {_exit(container)}"
    return Part("killed" if killed else "stop", container.name, began_ns, ended_ns, seen, text)


def was_killed(container: ContainerTold) -> bool:
    """By us: of a process that was not ours to wait for our SIGKILL is all that is known. Or by a kubelet."""
    if container.killed_ns is None:
        by_kubelet = container.asked_ns is not None and container.signalled_ns is None
        return by_kubelet and (container.exit_code == 137 or container.exit_signal == "SIGKILL")
    by_itself = container.exit_code not in (None, 137) or container.exit_signal not in ("", "SIGKILL")
    return not (container.exited_ns is not None and by_itself)


def _exit(container: ContainerTold) -> str:
    if container.exited_ns is None:
        return "not seen to end"
    if container.exit_signal:
        return f"ended by {container.exit_signal}"
    return "ended" if container.exit_code is None else f"exit code {container.exit_code}"
