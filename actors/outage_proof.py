"""ProofActor: is this machine proved to be off, and does any source contradict it?

    idle -> asking <-> pausing                 (reading the sources)
    open -> proved -> contradicted -> open     (what follows from their answers)

From the first suspicion on, the sources are read until the node is out of service or the outage is over.
docs/outage.md, "How a proof counts", lists when an answer is a proof (`_objection`), and what voids it
(`_voided`).

A kubelet writes its Node's systemUUID, so it is the machine's identity only if `uuid_problem` finds no fault.

Clocks of two machines are never compared: heartbeats are marks that are equal or not, and every time is this
process's own. A new leader begins without a proof, with its own start as the last heartbeat.
"""

from __future__ import annotations

from typing import Literal, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from ebbtide.actors.actor import (
    AND,
    EVERY,
    NEVER_NS,
    ActorType,
    Result,
    Row,
    State,
    Transitions,
    fresh_but,
    ignored,
)
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events import outage_events as o
from ebbtide.events.base import NS_PER_SECOND, Event, order_key, parse_order_key

NAME = "ProofActor"

Reading = Literal["idle", "asking", "pausing"]
ProofStatus = Literal["open", "proved", "contradicted"]
T = TypeVar("T")

#: Between two readings of the sources. A forced restart shows Off for less than this.
READ_PAUSE_NS = 5 * NS_PER_SECOND
#: The pauses after 24 readings (two minutes, in which the node becomes NotReady), and after 144 (an hour
#: more). A reading costs three records, and a node may stay away for weeks.
LATER_PAUSES_NS = ((24, 30 * NS_PER_SECOND), (144, 300 * NS_PER_SECOND))
#: A forced restart shows Off for a moment, so one reading is no proof.
TWICE: tuple[o.Source, ...] = ("redfish", "ipmi")
#: The machine may have run between two answers that are further apart. IPMI's take a minute.
ROW_NS = 120 * NS_PER_SECOND
#: These know only the machine's power: a machine that is on may be dead.
POWER: tuple[o.Source, ...] = (*TWICE, "cloud")
#: A peer that cannot reach a node proves no outage: these only contradict.
NO_PROOF: tuple[o.Source, ...] = ("peer", "kubelet")
#: These stay on the Node and may be old, so they must name the boot.
NAMES_BOOT: tuple[o.Source, ...] = ("certificate", "declared")
#: Their author withdraws them by removing them from the Node.
STATED: tuple[o.Source, ...] = ("certificate", "declared", "cloud-taint")
#: How long a contradiction lasts unless its source withdraws it. A wrong proof costs data, a late one only
#: time; but a source may be gone for good.
CONTRADICTION_NS = 600 * NS_PER_SECOND
#: How long a person's statement counts by default.
DECLARED_NS = 3600 * NS_PER_SECOND
#: A kubelet can write statements under any number of names, and a pool has fewer sources.
NAMES_MAX = 16

#: By the scheme of the Node's providerID, the only state in which its controller sets the shutdown taint.
#: Others also set it while the machine stops, or for one that keeps its memory (docs/outage.md lists them).
FINAL_TAINTS = {"digitalocean": "off", "hcloud": "off", "openstack": "SHUTOFF"}

#: Defaults of firmwares, as `unswapped` spells them: FreeBSD's list (``libexec/rc/rc.d/hostid``) and
#: placeholders of board vendors.
JUNK_UUIDS = (
    *("00010203-0405-0607-0809-0a0b0c0d0e0f", "00020003-0004-0005-0006-000700080009"),
    *("01020907-0301-0103-0807-060504030201", "11111111-2222-3333-4444-555555555555"),
    *("12345678-1234-5678-90ab-cddeefaabbcc", "44454c4c-0000-1020-8020-80c04f202020"),
    *("142d0e89-cdca-d145-ae66-bc80e8bfeb0f", "4458278e-8f17-a844-aceb-a7d7e5178c63"),
    *("978369dc-54fa-f24c-82c8-b1b5307a6a7f",),
)
#: The last four of five groups: only the first one was programmed.
JUNK_END = "-ffff-ffff-ffff-ffffffffffff"

#: In the order's key. After a power-off, read the sources.
POWER_OFF = "power-off"

SAYS_OTHERWISE, REBOOTED, TOO_LONG_AGO = (
    "it says otherwise now",
    "the node has another boot id",
    "it was said too long ago",
)

#: Why the systemUUID does not identify the machine.
UUID_PROBLEMS = NO_UUID, JUNK_UUID, CHANGED_UUID, SAME_UUID = (
    "the Node does not say which machine it is (status.nodeInfo.systemUUID)",
    "its systemUUID is a default of the firmware, which many machines share",
    "its systemUUID is not the first one that was recorded for this machine",
    "another Node has its systemUUID",
)

#: Why an answer that the machine is off does not count.
NO_MACHINE, OTHER_MACHINE, OTHER_BOOT, NO_BOOT, OUTLIVED, ASKED_BEFORE, OVER, *OF_IDS = REFUSALS = (
    "it does not say which machine it is about",
    "it is about another machine",
    "it is about another boot",
    "it does not say which boot it is about",
    "the node has given a sign of life since it was written",
    "it was asked for before the last heartbeat",
    "its time is over: it has to be declared again",
    "this provider's taint may come before the machine is off, or while it keeps its memory",
    "no leader saw it being set: the node may have run since",
    "another Node has its providerID",
    *UUID_PROBLEMS,
)
NOT_FINAL, NOT_SEEN_SET, SAME_PROVIDER, *_ = OF_IDS


def is_junk(uuid: str) -> bool:
    digits = uuid.replace("-", "")
    # 16 times the same byte, also 0 (not set) and f (not present).
    repeats = bool(digits) and digits == digits[:2] * 16
    return o.unswapped(uuid) in JUNK_UUIDS or uuid.endswith(JUNK_END) or repeats


def taint_is_final(provider_id: str) -> bool:
    return provider_id.partition(":")[0] in FINAL_TAINTS


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """As the Node names it. ``first_uuid`` is the first on record; other Nodes may have the same identity."""

    system_uuid: str = ""
    first_uuid: str = ""
    same_uuid_node: str = ""
    provider_id: str = ""
    same_provider_node: str = ""

    def read(self, event: o.NodeRead) -> Machine:
        """The event's first UUID is older than this journal's."""
        return Machine(
            system_uuid=event.system_uuid or self.system_uuid,
            first_uuid=event.first_uuid or self.first_uuid or event.system_uuid,
            same_uuid_node=event.same_uuid_node,
            provider_id=event.provider_id or self.provider_id,
            same_provider_node=event.same_provider_node,
        )

    def of(self, kind: o.IdentityKind) -> tuple[str, str]:
        """The identifier, and why it is none; empty: it is one."""
        if kind == "providerID":
            return self.provider_id, SAME_PROVIDER if self.same_provider_node else ""
        return (self.system_uuid, self.uuid_problem) if kind == "systemUUID" else ("", "")

    @property
    def uuid_problem(self) -> str:
        if not self.system_uuid:
            return NO_UUID
        if is_junk(self.system_uuid):
            return JUNK_UUID
        if self.system_uuid != self.first_uuid:
            return CHANGED_UUID
        return SAME_UUID if self.same_uuid_node else ""


class Off(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A source's answer. ``first_ns``: when the unbroken row of such answers began."""

    source: o.Source
    name: str
    kind: o.IdentityKind = "none"
    first_ns: int
    begun_ns: int
    until_ns: int
    at: str = ""


class Declaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A person's statement. ``at``, ``mark`` and ``valid_seconds`` distinguish it from the next one. A new
    leader grants the time that was left at ``seen_ns``, the last reading.
    """

    at: str
    mark: str
    valid_seconds: int
    until_ns: int
    seen_ns: int
    #: The node has given a sign of life since.
    outlived: bool = False


class ProofState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    reading: Reading = "idle"
    node: str = ""
    proof_ns: int = 60 * NS_PER_SECOND
    node_uid: str = ""
    machine: Machine = Machine()
    boot_id: str = ""
    lease_mark: str = ""
    status_mark: str = ""
    #: The last one that this leader saw, or its start.
    heartbeat_ns: int = 0
    #: Answers that the machine is off, accepted or not yet, by source and name.
    off: dict[kinds.ProofSource, Off] = {}
    #: Contradicting sources, and until when each counts.
    on: dict[kinds.ProofSource, int] = {}
    #: The accepted one, by source and name.
    proof: kinds.ProofSource = ""
    #: The heartbeats when the cloud's taint last counted: a new leader cannot see when it was set.
    cloud_marks: tuple[str, str] = ("", "")
    #: By source and name, also those that do not count any more.
    declared: dict[kinds.ProofSource, Declaration] = {}
    #: Why a source was refused: each reason is recorded once.
    refused: dict[kinds.ProofSource, kinds.Word] = {}
    read_key: str = ""
    pause_until_ns: int = NEVER_NS
    #: Since the last missed renewal.
    readings: int = 0
    ordinal: int = 0


#: A failed actor keeps the machine's identity and the contradictions.
KEPT_FIELDS = (
    *("node", "proof_ns", "node_uid", "machine", "boot_id", "lease_mark", "status_mark"),
    *("on", "cloud_marks", "declared", "ordinal"),
)


def phase_of(state: ProofState) -> str:
    status: ProofStatus = "contradicted" if state.on else "proved" if state.proof else "open"
    return f"{state.reading}{AND}{status}"


_SAID = (o.ProofAccepted, o.ProofRefused, o.ProofVoided, o.Contradicted, o.ContradictionEnded)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        (get_args(Reading), get_args(ProofStatus)), phase_of,
        Row("idle", o.LeaderStarted, _started, "= open contradicted", decides=(o.ProofVoided,)),
        Row("asking pausing", o.LeaderStarted, _started, "= pausing open contradicted",
            decides=(o.ProofVoided,)),
        Row(EVERY, o.NodeRead, _node_read, "= open proved",
            decides=(o.ContradictionEnded, o.ProofVoided, o.ProofAccepted)),
        Row(EVERY, o.HeartbeatSeen, _heartbeat, "= open", decides=(o.ProofVoided,)),
        Row(EVERY, o.HeartbeatMissed, _missed),
        Row(EVERY, o.EvidenceRead, _evidence, "open proved contradicted", decides=_SAID),
        Row(EVERY, o.OutageBegan, lambda state, event, now: _read(state), "= asking",
            decides=(o.ReadSources,)),
        Row("asking", f.OrderEnded, _order_ended, "= pausing"),
        Row("pausing", f.OrderEnded, _order_ended),
        ignored("idle", f.OrderEnded),
        Row("idle asking pausing", f.Tick, _tick, "= asking open proved", decides=(*_SAID, o.ReadSources)),
        Row(EVERY, o.OutOfService, _rest, "= idle"),
        Row(EVERY, o.NodeDeleted, _rest, "= idle"),
        Row(EVERY, o.OutageClosed, _closed, "idle open contradicted"),
    )
# fmt: on


def _with(found: dict[kinds.ProofSource, T], who: str, said: T) -> dict[kinds.ProofSource, T]:
    return dict([*((each, known) for each, known in found.items() if each != who), (who, said)][-NAMES_MAX:])


# --- a source's answer


def _stranger(state: ProofState, event: o.EvidenceRead) -> str:
    """Why the answer may be about another machine; empty: it is not."""
    names = {"nodeUID": state.node_uid, "nodeName": state.node}
    known = names.get(event.identity_kind) or state.machine.of(event.identity_kind)[0]
    if not event.identity or not known:
        return NO_MACHINE
    return "" if event.identity == known else OTHER_MACHINE


def _read_again(state: ProofState, event: o.EvidenceRead) -> Declaration | None:
    """This statement, if it has counted before."""
    known, said = state.declared.get(o.who_of(event)), (event.at, event.mark, event.valid_seconds)
    return known if known and (known.at, known.mark, known.valid_seconds) == said else None


def _objection(state: ProofState, event: o.EvidenceRead, now: int) -> str:
    """Why the answer does not count; empty: it does."""
    if why := _stranger(state, event) or state.machine.of(event.identity_kind)[1]:
        return why
    if event.source == "cloud-taint" and (why := _cloud_objection(state, event)):
        return why
    if event.boot_id and event.boot_id != state.boot_id:
        return OTHER_BOOT
    if event.source in NAMES_BOOT and not event.boot_id:
        return NO_BOOT
    if event.source == "declared":
        known = _read_again(state, event)
        if not event.mark or event.mark != state.lease_mark or (known is not None and known.outlived):
            return OUTLIVED
        if known is not None and known.until_ns <= now:
            return OVER
    if event.begun_ns <= state.heartbeat_ns:
        return ASKED_BEFORE
    return ""


def _cloud_objection(state: ProofState, event: o.EvidenceRead) -> str:
    """The taint names no boot, and stays until the node is Ready: it counts while no heartbeat came since a
    leader saw it being set.
    """
    if not taint_is_final(state.machine.provider_id):
        return NOT_FINAL
    if (state.lease_mark, state.status_mark) in ((event.mark, event.status_mark), state.cloud_marks):
        return ""
    return OUTLIVED if event.mark else NOT_SEEN_SET


def _evidence(state: ProofState, event: o.EvidenceRead, now: int) -> Result:
    who = o.who_of(event)
    if event.verdict == "off":
        return _says_off(state, event, who, now)
    off = {each: said for each, said in state.off.items() if each != who}
    if event.verdict == "unknown" and event.source in STATED:
        # A statement that a sign of life has voided stays void if it comes back.
        declared = {each: said for each, said in state.declared.items() if each != who or said.outlived}
        return _taken_back(replace(state, off=off, declared=declared), who)
    if event.verdict == "unknown" or _stranger(state, event):
        # An unreachable source does not contradict. Its proof still counts, but a row of two readings ends.
        kept = state.off if who == state.proof else off
        return replace(state, off=kept), ()
    # It counts under any boot id: a source may see a reboot before the Node shows it.
    fresh = who not in state.on
    state = replace(state, off={}, on={**state.on, who: now + CONTRADICTION_NS})
    what = "the machine is on" if event.source in POWER else "the node runs"
    said: list[Event] = [o.Contradicted(source=event.source, name=event.name, what=what)] if fresh else []
    state, voided = _voided(state, f"{who} says that {what}")
    return state, [*said, *voided]


def _taken_back(state: ProofState, who: str) -> Result:
    if who != state.proof:
        return state, ()
    state, voided = _voided(state, f"{who} was taken back")
    state, accepted = _weigh(state)
    return state, [*voided, *accepted]


def _says_off(state: ProofState, event: o.EvidenceRead, who: str, now: int) -> Result:
    if (known := _read_again(state, event)) is not None:
        state = replace(state, declared={**state.declared, who: replace(known, seen_ns=event.begun_ns)})
    if event.source not in NO_PROOF and (why := _objection(state, event, now)):
        state = replace(state, off={each: said for each, said in state.off.items() if each != who})
        if state.refused.get(who) == why:
            return state, ()
        refused = o.ProofRefused(source=event.source, name=event.name, reason=why)
        return replace(state, refused=_with(state.refused, who, why)), [refused]
    # The source has withdrawn its contradiction.
    state, ended = _ended(state, tuple(each for each in state.on if each == who), SAYS_OTHERWISE)
    if event.source in NO_PROOF:
        return state, ended
    before = state.off.get(who)
    if before is not None and event.begun_ns - before.begun_ns > max(ROW_NS, state.proof_ns):
        before = None
    first_ns = before.first_ns if before is not None else event.begun_ns
    until_ns = event.begun_ns + state.proof_ns
    if event.source == "declared":
        until_ns = event.begun_ns + (event.valid_seconds * NS_PER_SECOND or DECLARED_NS)
        declaration = known or Declaration(
            at=event.at,
            mark=event.mark,
            valid_seconds=event.valid_seconds,
            until_ns=until_ns,
            seen_ns=event.begun_ns,
        )
        until_ns = declaration.until_ns
        if known is None:
            state = replace(state, declared=_with(state.declared, who, declaration))
    elif event.source == "cloud-taint":
        state = replace(state, cloud_marks=(state.lease_mark, state.status_mark))
    said = Off(
        source=event.source,
        name=event.name,
        kind=event.identity_kind,
        first_ns=first_ns,
        begun_ns=event.begun_ns,
        until_ns=until_ns,
        at=event.at,
    )
    state, accepted = _weigh(replace(state, off={**state.off, who: said}), who)
    return state, [*ended, *accepted]


def _ended(state: ProofState, who: tuple[str, ...], reason: str) -> tuple[ProofState, list[Event]]:
    parts = [each.partition(" ") for each in who]
    said = [
        o.ContradictionEnded(source=cast(o.Source, source), name=name, reason=reason)
        for source, _, name in parts
    ]
    on = {each: until_ns for each, until_ns in state.on.items() if each not in who}
    return replace(state, on=on) if who else state, [*said]


def _is_proof(said: Off) -> bool:
    return said.source not in TWICE or said.begun_ns - said.first_ns >= READ_PAUSE_NS


def _weigh(state: ProofState, who: str = "") -> Result:
    """Accept ``who``'s answer, or any that counts, unless a source contradicts."""
    if state.on:
        return replace(state, proof=""), ()
    candidates = [each for each, said in state.off.items() if _is_proof(said)]
    if not candidates or (who and who not in candidates):
        return state, ()
    chosen = who or candidates[0]
    said = state.off[chosen]
    accepted = o.ProofAccepted(source=said.source, name=said.name, until_ns=said.until_ns, at=said.at)
    return replace(state, proof=chosen), [accepted]


def _voided(state: ProofState, reason: str) -> Result:
    return replace(state, proof=""), [o.ProofVoided(reason=reason)] if state.proof else []


# --- the node


def _heart_beat(state: ProofState, now: int, reason: str) -> Result:
    """Earlier answers are about a time when the node ran."""
    declared = {who: replace(each, outlived=True) for who, each in state.declared.items()}
    return _voided(replace(state, heartbeat_ns=now, off={}, declared=declared, refused={}), reason)


def _heartbeat(state: ProofState, event: o.HeartbeatSeen, now: int) -> Result:
    if event.source == "lease":
        return _heart_beat(replace(state, lease_mark=event.mark), now, "the node has renewed its lease")
    return _heart_beat(replace(state, status_mark=event.mark), now, "the node has reported its status")


def _node_read(state: ProofState, event: o.NodeRead, now: int) -> Result:
    before = state
    state = replace(
        state,
        node_uid=event.uid,
        machine=state.machine.read(event),
        boot_id=event.boot_id,
        lease_mark=event.lease_mark or state.lease_mark,
        status_mark=event.status_mark or state.status_mark,
    )
    if before.boot_id not in ("", event.boot_id):
        state, ended = _ended(state, tuple(state.on), REBOOTED)
        state, voided = _heart_beat(state, now, REBOOTED)
        return state, [*ended, *voided]
    # The heartbeat came while no leader, or another one, was watching.
    marks = (before.lease_mark, state.lease_mark), (before.status_mark, state.status_mark)
    if any(old and old != new for old, new in marks):
        return _heart_beat(state, now, "the node has given a sign of life")
    # Drop answers about a machine that is not, or may not be, the Node's any more.
    old, new = before.machine, state.machine
    state = replace(
        state, off={who: said for who, said in state.off.items() if old.of(said.kind) == new.of(said.kind)}
    )
    if state.proof in ("", *state.off):
        return state, ()
    state, voided = _voided(state, "the Node names another machine")
    state, accepted = _weigh(state)
    return state, [*voided, *accepted]


def _missed(state: ProofState, event: o.HeartbeatMissed, now: int) -> Result:
    """Read the sources often again. A heartbeat does not: a live node that is not Ready for days sends one
    every ten seconds.
    """
    pause_until_ns = now if state.reading == "pausing" else state.pause_until_ns
    mark = state.lease_mark or event.mark
    return replace(state, lease_mark=mark, readings=0, pause_until_ns=pause_until_ns), ()


# --- reading the sources


def _read(state: ProofState) -> Result:
    key = order_key(NAME, "sources", "", state.ordinal)
    state = replace(
        state,
        reading="asking",
        read_key=key,
        pause_until_ns=NEVER_NS,
        readings=state.readings + 1,
        ordinal=state.ordinal + 1,
    )
    return state, [o.ReadSources(key=key, node=state.node)]


def _order_ended(state: ProofState, event: f.OrderEnded, now: int) -> Result:
    if parse_order_key(event.key).what == POWER_OFF:
        pause_until_ns = now if state.reading == "pausing" else state.pause_until_ns
        return replace(state, readings=0, pause_until_ns=pause_until_ns), ()
    # Pause after any outcome: a source that did not answer is read again.
    if event.key != state.read_key:
        return state, ()
    return replace(state, reading="pausing", read_key="", pause_until_ns=now + _pause_ns(state, now)), ()


def _pause_ns(state: ProofState, now: int) -> int:
    if any(not _is_proof(said) for said in state.off.values()):
        return READ_PAUSE_NS  # the second of two readings
    if state.proof:
        # Before its time is over, also where a reading takes 10 s.
        return max(READ_PAUSE_NS, state.off[state.proof].begun_ns + state.proof_ns // 2 - now)
    later = [pause_ns for count, pause_ns in LATER_PAUSES_NS if state.readings >= count]
    return later[-1] if later else READ_PAUSE_NS


def _tick(state: ProofState, event: f.Tick, now: int) -> Result:
    # The first of two readings waits for the second one: a slow controller takes longer than a proof counts.
    ended = [each for each, said in state.off.items() if _is_proof(said) and said.until_ns <= now]
    off = {each: said for each, said in state.off.items() if each not in ended}
    state = replace(state, off=off)
    over = tuple(each for each, until_ns in state.on.items() if until_ns <= now)
    state, decisions = _ended(state, over, TOO_LONG_AGO)
    if state.proof and state.proof not in state.off:
        state, voided = _voided(state, "it was observed too long ago")
        decisions += voided
    if not state.proof:
        state, accepted = _weigh(state)
        decisions += accepted
    if state.reading == "pausing" and state.pause_until_ns <= now:
        state, orders = _read(state)
        decisions += orders
    return state, decisions


def _rest(state: ProofState, event: Event, now: int) -> Result:
    """No proof is needed."""
    return replace(state, reading="idle", read_key="", pause_until_ns=NEVER_NS, readings=0), ()


def _closed(state: ProofState, event: o.OutageClosed, now: int) -> Result:
    state, _ = _rest(state, event, now)
    # Contradictions stay: the next suspicion may come within seconds.
    return replace(state, off={}, proof="", refused={}), ()


def _started(state: ProofState, event: o.LeaderStarted, now: int) -> Result:
    """Another process observed the proof, by another clock."""
    state, voided = _voided(state, "another leader observed it")
    reading = state.reading
    declared = {
        who: replace(each, until_ns=now + max(0, each.until_ns - each.seen_ns), seen_ns=now)
        for who, each in state.declared.items()
    }
    state = replace(
        state,
        declared=declared,
        node=event.node,
        proof_ns=event.settings.proof_seconds * NS_PER_SECOND,
        heartbeat_ns=now,
        off={},
        # Contradictions stay, with a new time.
        on=dict.fromkeys(state.on, now + CONTRADICTION_NS),
        refused={},
        read_key="",
        readings=0,
    )
    if reading == "idle":
        return state, voided
    return replace(state, reading="pausing", pause_until_ns=now), voided


def _deadline(state: ProofState) -> int:
    times = [said.until_ns for said in state.off.values() if _is_proof(said)]
    return min([state.pause_until_ns, *times, *state.on.values()])


def _afresh(state: ProofState, now: int, in_episode: bool, start: o.LeaderStarted | None) -> ProofState:
    """In an outage only with a new leader: a lasting defect must not cost a record a second."""
    reading: Reading = "pausing" if in_episode else "idle"
    return fresh_but(state, KEPT_FIELDS, reading=reading, heartbeat_ns=now)


assert ProofState().proof_ns == o.OutageSettings().proof_seconds * NS_PER_SECOND

PROOF = ActorType(NAME, ProofState, _transitions(), _deadline, afresh=_afresh)
