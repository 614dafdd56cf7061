"""One pod on its way down: the HookActor's state, and what it leaves to the fallback when it fails."""

from __future__ import annotations

from actors.logic.actor import State
from actors.logic.container import Down
from events.base import NS_PER_SECOND, Event
from events.decisions import PodPlanned, PodStopBegan
from events.facts import ContainerExited
from events.model import Handover, Means, Pod


class PodState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    pod: Pod | None = None
    wave: int = -1
    sleep_action: bool = True
    begun_ns: int = 0
    grace_ns: int = 0
    downs: tuple[Down, ...] = ()
    #: What the autopsy found of the stop signal, in words.
    finding: str = ""
    over: bool = False
    #: Said before its wave began: it will have no grace then, only the floor.
    hurried: bool = False
    #: By whom it is ended; of "api" it becomes "cri" when it is handed over.
    means: Means = ""
    #: Deletes so far, and the key of the one whose outcome is not known.
    deletes: int = 0
    delete_key: str = ""
    #: The API server did not take the delete: its hooks have not run.
    refused: bool = False
    #: It took it, perhaps after somebody had lost patience: the object is going.
    deleted: bool = False
    #: The shutdown was cancelled while a delete was under way.
    withdrawn: bool = False
    #: What the last delete gave, as a time: another one only ever shortens it.
    delete_until_ns: int = 0
    first_ordinal: int = 0

    @property
    def begun(self) -> bool:
        return self.begun_ns > 0


def handed_over(state: PodState, event: Event, now: int) -> Handover | None:
    """The fallback must not lose what the event said that could not be handled.

    A pod that the kubelet ends of its own accord is nobody's to stop.
    """
    if isinstance(event, PodPlanned) and event.means != "observe" and not state.begun:
        return Handover(pod=event.pod, wave=event.wave, grace_ns=event.grace_seconds * NS_PER_SECOND)
    if state.over or state.pod is None or state.means == "observe":
        return None
    exited = [down.spec.name for down in state.downs if down.phase == "exited"]
    if isinstance(event, ContainerExited):
        exited.append(event.container)
    grace_ns, begun_ns = state.grace_ns, state.begun_ns
    if isinstance(event, PodStopBegan) and not state.begun:
        grace_ns, begun_ns = event.grace_ns, max(now, 1)
    return Handover(
        pod=state.pod, wave=state.wave, grace_ns=grace_ns, begun_ns=begun_ns, exited=tuple(exited)
    )
