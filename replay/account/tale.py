"""A shutdown while it is being read: everything told so far, in values that are replaced as more is learned.

Here are time, pods and waves by name, and notices; what each event means stands in the tables of `pods`,
`course` and `machine`. What a record says of a pod or a wave that nobody introduced makes one: an
account of a journal whose begin is lost is short, and never a traceback.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from events.decisions import EpisodeOutcome
from events.frames import RawRecord
from events.model import Pod, ShutdownKind
from events.record import episode_id, trace_id
from events.segment import Header
from replay.account.before import Before
from replay.account.model import (
    Account,
    ConfigurationTold,
    ContainerTold,
    DamageTold,
    HookTold,
    Notice,
    PodTold,
    ProcessTold,
    SpanTold,
    WaveTold,
)
from replay.account.notices import TALLIED, sentence
from replay.account.words import plural


class Place(NamedTuple):
    """Where the record stands that is being told: its number, when, and whether the signal's boot goes on."""

    seq: int
    at_ns: int
    same_boot: bool


class Tale:
    """``fields`` are those of the account that are set by a single event."""

    def __init__(
        self, number: int, first: RawRecord, header: Header, before: Before, former: Tale | None
    ) -> None:
        self.number = number
        self.first = first
        self.header = header
        self.place = Place(first.seq, 0, True)
        self.last_seq, self.last_ns, self.events = first.seq, 0, 0
        self.longest_wait_ns = 0
        self.kind: ShutdownKind = "unknown"
        self.fields: dict[str, Any] = {}
        self.configuration: ConfigurationTold = before.configuration
        self.assessed = before.assessed
        self.schedule = before.schedule
        self.pods: dict[str, PodTold] = {}
        self.specs: dict[str, Pod] = {}
        self.waves: list[WaveTold] = []
        self.beside: dict[str, SpanTold] = {}
        self.processes: list[ProcessTold] = [before.process] if before.process is not None else []
        self.notices: list[Notice] = []
        self.tallies: dict[str, tuple[Place, int, dict[str, object]]] = {}
        self.unknown_types: dict[str, int] = {}
        self.planned = False
        self.released_ns: int | None = None
        self.closed: EpisodeOutcome | None = None
        self.closed_ns: int | None = None
        #: Pods that have no part in the plan: left on their way down by an earlier shutdown, or listed late.
        self.listed = {} if former is None else former.introductions()

    # --- time ---------------------------------------------------------------------------------

    def turn_to(self, raw: RawRecord, header: Header) -> None:
        """What follows is told of this record. The monotonic clock says nothing of another boot."""
        same = header.identity.boot_id == self.header.identity.boot_id
        at_ns = raw.mono_ns - self.first.mono_ns if same else raw.wall_ns - self.first.wall_ns
        self.place = Place(raw.seq, at_ns, same)

    def since(self, mono_ns: int) -> int:
        """A moment of this boot, as time since the signal."""
        return mono_ns - self.first.mono_ns

    # --- pods and waves -----------------------------------------------------------------------

    def introductions(self) -> dict[str, Pod]:
        """What is known of its pods that have not ended."""
        return {uid: spec for uid, spec in self.specs.items() if self.pods[uid].outcome is None}

    def introduce(self, spec: Pod) -> PodTold:
        """A pod by what its manifest says; what is known of its way down stays."""
        self.specs[spec.uid] = spec
        pod = self.pods.get(spec.uid)
        if pod is None:
            pod = self.pods[spec.uid] = PodTold(
                uid=spec.uid,
                namespace=spec.namespace,
                name=spec.name,
                priority=spec.priority,
                wanted_grace_seconds=spec.grace_seconds,
                owner=spec.owner,
                volumes=spec.volumes,
                containers=tuple(
                    ContainerTold(
                        name=each.name,
                        sidecar=each.sidecar,
                        stop_signal=each.stop_signal,
                        running=each.running,
                    )
                    for each in spec.containers
                ),
            )
        return pod

    def pod(self, uid: str) -> PodTold:
        """Also one that nobody introduced: then only its UID is known."""
        pod = self.pods.get(uid)
        if pod is not None:
            return pod
        return self.introduce(self.listed.get(uid) or Pod(uid=uid, namespace="", name=uid))

    def change_pod(self, uid: str, **changes: Any) -> None:
        self.pods[uid] = replace(self.pod(uid), **changes)

    def change_container(self, uid: str, name: str, **changes: Any) -> None:
        containers = self.pod(uid).containers
        if all(each.name != name for each in containers):
            containers = (*containers, ContainerTold(name=name))
        changed = tuple(replace(each, **changes) if each.name == name else each for each in containers)
        self.change_pod(uid, containers=changed)

    def container(self, uid: str, name: str) -> ContainerTold:
        found = (each for each in self.pod(uid).containers if each.name == name)
        return next(found, ContainerTold(name=name))

    def change_hook(self, uid: str, container: str, **changes: Any) -> HookTold | None:
        """The hook of a container that has not ended; None where none has begun."""
        hooks = list(self.pod(uid).hooks)
        for at, hook in enumerate(hooks):
            if hook.container == container and hook.ended_ns is None:
                hooks[at] = replace(hook, **changes)
                self.change_pod(uid, hooks=tuple(hooks))
                return hooks[at]
        return None

    def change_wave(self, index: int, **changes: Any) -> WaveTold:
        """Waves that no plan has named (the fallback makes none) come into being here."""
        while len(self.waves) <= max(index, 0):
            self.waves.append(WaveTold(index=len(self.waves), priority=0, planned_ns=0))
        self.waves[index] = replace(self.waves[index], **changes)
        return self.waves[index]

    # --- notices ------------------------------------------------------------------------------

    def note(self, code: str, uid: str = "", **words: object) -> None:
        """One notice, at the record that is being told."""
        if uid:
            words["pod"] = self.pod(uid).label
        seq, at_ns, _ = self.place
        self.notices.append(Notice(seq=seq, at_ns=at_ns, code=code, text=sentence(code, **words), pod=uid))

    def tally(self, code: str, **words: object) -> None:
        """One notice however often it happens, at the first time; ``words`` are those of the last one."""
        place, count, _ = self.tallies.get(code, (self.place, 0, {}))
        self.tallies[code] = (place, count + 1, words)

    # --- the end ------------------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Neither the release nor a close stands in the record."""
        return self.released_ns is None and self.closed is None

    def told(self, journal_id: bytes, boot_id: str | None, damage: DamageTold | None = None) -> Account:
        """The account as it stands. ``boot_id`` is this machine's, now (see `replay.account.fold`)."""
        identity = self.header.identity
        damaged = damage is not None and damage.here
        outcome = self._outcome(boot_id, damaged)
        schedule = self.schedule
        return Account(
            id=episode_id(journal_id, self.number),
            trace_id=trace_id(self.first.hash),
            journal_id=journal_id.hex(),
            first_seq=self.number,
            last_seq=self.last_seq,
            node=identity.node,
            machine_id=identity.machine_id,
            boot_id=identity.boot_id,
            version=identity.code_version,
            logic_flags=identity.logic_flags,
            kind=self.kind,
            outcome=outcome,
            started_wall_ns=self.first.wall_ns,
            started_mono_ns=self.first.mono_ns,
            ended_ns={"complete": self.released_ns, "cancelled": self.closed_ns}.get(outcome),
            damage=damage,
            last_ns=self.last_ns,
            configuration=self.configuration,
            waves=tuple(self.waves),
            pods=tuple(self.pods.values()),
            beside=tuple(self.beside.values()),
            processes=tuple(self.processes),
            notices=self._all_notices(outcome, damaged),
            unknown_types=self.unknown_types,
            events=self.events,
            asked_by_uid=schedule.uid if schedule else None,
            asked_tty=schedule.tty if schedule else "",
            wall_message=schedule.wall_message if schedule else "",
            **self.fields,
        )

    def _outcome(self, boot_id: str | None, damaged: bool) -> EpisodeOutcome:
        """Complete if and only if the release stands in the journal, and the machine did go down."""
        if self.released_ns is not None:
            return "complete"
        if self.closed is not None:
            return "truncated" if self.closed == "complete" else self.closed
        same_boot = boot_id in (None, self.header.identity.boot_id)
        return "running" if same_boot and not damaged else "truncated"

    def _all_notices(self, outcome: EpisodeOutcome, damaged: bool) -> tuple[Notice, ...]:
        """In the order of the record; what only the end can say comes last."""
        found = list(self.notices)
        for code, (place, count, words) in self.tallies.items():
            text = sentence(code, count=plural(count, TALLIED[code]), **words)
            found.append(Notice(seq=place.seq, at_ns=place.at_ns, code=code, text=text))
        found.sort(key=lambda notice: notice.seq)
        wave = self.fields.get("last_wave", -1)
        if outcome in ("truncated", "never-begun"):
            code = "cut-short" if outcome == "truncated" and wave >= 0 else "never-begun"
            code = "record-damaged" if damaged else code
            text = sentence(code, wave=wave)
            found.append(Notice(seq=self.last_seq, at_ns=self.last_ns, code=code, text=text))
        if self.unknown_types:
            count, types = sum(self.unknown_types.values()), ", ".join(self.unknown_types)
            text = sentence("unknown-events", count=plural(count, "event"), types=types)
            found.append(Notice(seq=self.last_seq, at_ns=self.last_ns, code="unknown-events", text=text))
        return tuple(found)
