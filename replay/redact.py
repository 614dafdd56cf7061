"""A journal without names: its facts with pseudonyms, and everything decided anew from them.

Each field's type says what its texts name (`events.kinds`). The logic runs again, so order keys and sentences
have the pseudonyms too, and the result verifies. Every record keeps its number, times and cause; the
journal's id and all hashes are new.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import inspect

from ebbtide.actors.logind import OPERATION_IN_PROGRESS
from ebbtide.actors.node_events import TURNS
from ebbtide.actors.node_marks import (
    DOWN_CONDITIONS,
    EVENT_REASON,
    GOING_DOWN_CONDITIONS,
    NODE_MESSAGE,
    NODE_REASON,
)
from ebbtide.actors.node_status import KILLED_REASON, POD_MESSAGE, POD_REASON
from ebbtide.actors.outage import BRAKE_SAYS, REFUSAL, UNPROVED, WAITS
from ebbtide.actors.outage_proof import REFUSALS, is_junk, taint_is_final
from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, System, mark_recorded, restore, take_checkpoint
from ebbtide.events import base
from ebbtide.events.codec import FLAG_LAST, RawRecord, decode_event
from ebbtide.events.kinds import CSI_VOLUME, FIELD_NAMES
from ebbtide.events.outage_events import CHANGED, OutageWaits, Source
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.segment import Chain, Header, Identity, Link, WriterStart, segment_file_name
from ebbtide.replay.replayer import NO_BEGIN, Divergence
from ebbtide.replay.verify import verify

_DOMAIN = b"ebbtide.redacted.v1"
_ID_BYTES = 16


class NoBegin(Exception):
    """The journal does not begin with a checkpoint: its first record cannot be executed."""


class Diverged(Exception):
    """The original does not replay (``replay verify``)."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(f"it diverges at record {divergence.seq}")
        self.divergence = divergence


class Written(NamedTuple):
    """A piece of a segment."""

    name: str
    data: bytes


def redact(history: History, names: Pseudonyms) -> Iterator[Written]:
    """The new journal's files in pieces, in order. Reads ``history`` four times.

    Raises Diverged and NoBegin before the first piece, UnknownType and BadPayload (events.codec), OSError.
    """
    result = verify(history)
    if result.divergence is not None:
        if result.divergence.field == NO_BEGIN:
            raise NoBegin("it does not begin with a checkpoint")
        raise Diverged(result.divergence)
    if result.failure is not None:
        raise result.failure
    statement = _statement(history)
    # Learn every name first, so that no pseudonym equals one. Facts and the first checkpoint have all names.
    first = True
    for batch in history.batches():
        _identity(batch.header.identity, names)
        for raw in batch.records:
            if first or not (raw.cause or raw.tag == base.Checkpoint.__name__):
                event = decode_event(raw.tag, raw.payload)
                if isinstance(event, base.Checkpoint):
                    _state(event, raw.seq, names)
                elif first:
                    raise NoBegin("it does not begin with a checkpoint")
                else:
                    names.pseudonymized(event)
            first = False
    names.replace()
    return _copy(history, names, statement)


def _statement(history: History) -> base.RedactedFrom:
    traces = {episode.first_seq: episode.trace_id for episode in episodes(history)}
    end = history.verdict.end
    # The chain hash of the last whole step, where the copy ends: it proves the copy's original.
    head = b""
    for batch in history.batches():
        head = batch.records[-1].hash
    return base.RedactedFrom(
        journal_id=history.journal_id.hex(), head_seq=end.seq, head=head.hex(), trace_ids=traces
    )


def _identity(identity: Identity, names: Pseudonyms) -> Identity:
    return identity._replace(
        node=names.of("node", identity.node),
        machine_id=names.of("machine", identity.machine_id),
        boot_id=names.of("boot", identity.boot_id),
        code_version=names.text("version", identity.code_version),
    )


def _state(mark: base.Checkpoint, seq: int, names: Pseudonyms) -> System:
    system, pseudonymized = restore(mark, seq + 1), System(seq + 1, mark.logic)
    pseudonymized.episode = system.episode
    for opened in system.open_orders.values():
        order = names.pseudonymized(opened.order)
        pseudonymized.open_orders[order.key] = opened._replace(order=order)
    for (kind, subject), slot in system.slots.items():
        who = names.subject(subject)
        twin = pseudonymized.slots.get((kind, who)) or pseudonymized.register(slot.kind, who)
        twin.state, twin.failed = names.pseudonymized(slot.state), slot.failed
        pseudonymized.watch(twin)
    mark_recorded(pseudonymized.slots.values())
    return pseudonymized


# A separate generator, because `redact` must raise before the first piece.
def _copy(history: History, names: Pseudonyms, statement: base.RedactedFrom) -> Iterator[Written]:
    head = bytes.fromhex(statement.journal_id) + bytes.fromhex(statement.head)
    journal_id = hashlib.sha256(_DOMAIN + head).digest()[:_ID_BYTES]
    header, scribe = None, _SegmentWriter(names, statement)
    for batch in history.batches():
        for raw in batch.records:
            if batch.header != header:
                header = batch.header
                yield from scribe.begin(header, raw.seq, journal_id)
            yield scribe.write(raw)


class _SegmentWriter:
    """``_step``: the rest of the current step."""

    def __init__(self, names: Pseudonyms, statement: base.RedactedFrom) -> None:
        self._names, self._statement = names, statement
        self._system: System | None = None
        self._chain: Chain | None = None
        self._step: deque[base.Record] = deque()

    def begin(self, header: Header, seq: int, journal_id: bytes) -> Iterator[Written]:
        """For each segment of the original: its anchor displays the times."""
        identity = _identity(header.identity, self._names)
        if self._chain is None:
            # The copy lacks the same first segments as the original.
            number = max(header.segment, 2 if seq > 1 else 1)
            before = Link(number - 1, 0, seq - 1) if seq > 1 else Link()
            self._chain = Chain(identity, WriterStart(journal_id, before, number))
        self._chain.identity = identity
        for item in self._chain.begin_segment(base.Stamp(header.anchor_mono_ns, header.anchor_wall_ns)):
            yield Written(segment_file_name(item.end.segment, journal_id), item.data)

    def write(self, raw: RawRecord) -> Written:
        assert self._chain is not None
        item = self._chain.append(self._record(raw), raw.durable_seq)
        return Written(segment_file_name(item.end.segment, self._chain.journal_id), item.data)

    def _record(self, raw: RawRecord) -> base.Record:
        # Read only a step's fact: the original replays, so the logic makes as many decisions.
        if self._step:
            return self._step.popleft()
        event = decode_event(raw.tag, raw.payload)
        if not isinstance(event, base.Checkpoint):
            assert self._system is not None
            stamp = base.Stamp(raw.mono_ns, raw.wall_ns)
            self._step.extend(self._system.step(self._names.pseudonymized(event), stamp))
            return self._step.popleft()
        # Only the first checkpoint, which names the original, is taken over.
        if self._system is None:
            self._system = _state(event, raw.seq, self._names)
            mark = msgspec.structs.replace(take_checkpoint(self._system), redacted=self._statement)
        else:
            mark = take_checkpoint(self._system)
            self._system.next_seq = raw.seq + 1
        return base.Record(
            seq=raw.seq,
            mono_ns=raw.mono_ns,
            wall_ns=raw.wall_ns,
            episode=mark.episode,
            cause=0,
            actor=base.JOURNAL_ACTOR,
            last=bool(raw.flags & FLAG_LAST),
            event=mark,
        )


# Pseudonyms are numbered in the order of the names: the copy has no key and no hash of a name. The map ends
# with the process.

#: Messages without a name.
PLAIN_MESSAGES = re.compile(
    rf"|{OPERATION_IN_PROGRESS}|{CHANGED}|(preStop failed: )?exit code \d{{1,3}}|cancelled|timed out|failed"
    "|unknown"
)

#: A Kubernetes Event on the Node repeats the decision's text.
OUTAGE_WAITS = OutageWaits.template.removesuffix("{self.reason}")

#: A setting's origin that is no place in a file.
DEFAULT_NAMESPACE = "default"

#: In an order's key.
_ORDER_WORD = re.compile(r"[a-z-]+")

#: root is no person.
ROOT_UID = 0
PERSONS_FROM = 60_001

#: No name of Kubernetes has a ``~``: pseudonyms are easy to see.
_FORMS: dict[str, str] = {
    "uid": "eeeeeeee-0000-4000-8000-{:012x}",
    "namespace": "ns~{}",
    "pod": "pod~{}",
    "container": "container~{}",
    "node": "node~{}",
    "machine": "machine~{}",
    "boot": "boot~{}",
    "path": "/path~{}",
    "volume": "volume~{}",
    "owner": "owner~{}",
    "command": "command~{}",
    "hook": "hook~{}",
    "tty": "tty~{}",
    "unit": "unit~{}.service",
    "workload kind": "Kind~{}",
    "message": "message~{}",
}

#: Of this program and of Kubernetes. Any other text in their place is a message.
WORDS: Mapping[str, None] = dict.fromkeys(
    (
        "",
        *("process", "api", "cri", "auto", "observe", "none", "simulate", "simulated"),
        *("poweroff", "reboot", "halt", "kexec", "soft-reboot", "unknown"),
        *get_args(base.Barrier),
        *("running", "sleeping", "uninterruptible", "stopped", "traced", "zombie", "idle"),
        *"RSDTtZIXPKW",
        *("PrepareForShutdown", "PrepareForShutdownWithMetadata"),
        *("GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"),
        *("PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero"),
        *ACTOR_TYPE_BY_NAME,
        *(NODE_REASON, NODE_MESSAGE, EVENT_REASON, KILLED_REASON, POD_REASON, POD_MESSAGE),
        *(*GOING_DOWN_CONDITIONS, *DOWN_CONDITIONS),
        *("Failed", "Succeeded"),
        *(turn.__name__ for turn in TURNS),
        *("NoExecute", "NoSchedule"),
        *REFUSALS,
    )
)

#: In every cluster. Another kind names an operator, and so perhaps its user.
WORKLOAD_KINDS = (
    *("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"),
    *("ReplicationController", "Node", "Pod"),
)

KUBELET_UNITS = ("", "kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service")

#: An image may have any text as its stop signal.
_SIGNAL_NAMES = (
    "ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS"
    r"|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN(\+\d\d?)?|RTMAX(-\d\d?)?|\d\d?"
)
_SIGNAL = re.compile(rf"|(SIG)?({_SIGNAL_NAMES})", re.IGNORECASE)

#: Texts that stay, by kind. A unique bus name is a number. A version's part after the plus may name its
#: builder.
_KEPT_FORMS: dict[str, re.Pattern[str]] = {
    "signal": _SIGNAL,
    "version": re.compile(r"|\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?"),
    "bus name": re.compile(r"|:\d+\.\d+|embedded|simulated"),
    "revision": re.compile(r"\d*"),
    # A journal's or a trace's id.
    "hash": re.compile(r"|[0-9a-f]{32}"),
    "kernel symbol": re.compile(r"[a-z0-9_.]{0,128}"),
    "field": re.compile(r"[a-z][A-Za-z.]*"),
}


_type_info = cache(inspect.type_info)


class Pseudonyms:
    """While ``learning`` it remembers names, and returns values unchanged."""

    def __init__(self) -> None:
        self.learning = True
        self._made: dict[str, dict[str, str]] = {form: {} for form in _FORMS}
        self._persons: dict[int, int] = {}
        self._special: dict[str, Callable[[str], str]] = {
            "boot pair": lambda text: "/".join(self.of("boot", part) for part in text.split("/")),
            "file position": self._place,
            "key": self._key,
            "owner": self._owner,
            "namespaced owner": self._redacted_owner,
            "event subject": lambda text: self.of("node" if text in self._made["node"] else "owner", text),
            "pod reference": self._reference,
            "message": self._message,
            "uid": self._uid,
            "word": lambda text: text if text in WORDS else self.of("message", text),
            "source": self._source,
            "outage waits": self._outage_waits,
            "volume in use": self._volume_in_use,
            **{kind: partial(self._kept_form, pattern) for kind, pattern in _KEPT_FORMS.items()},
        }

    def replace(self) -> None:
        """All names are known: return pseudonyms from now on."""
        self.learning = False

    def of(self, form: str, text: str) -> str:
        made = self._made[form]
        if not text:
            return text
        if form == "unit" and text in KUBELET_UNITS:
            return text
        if form == "workload kind" and text in WORKLOAD_KINDS:
            return text
        if text not in made:
            made[text] = _FORMS[form].format(len(self._made[form]) + 1)
        return text if self.learning else made[text]

    def originals(self) -> list[str]:
        return [text for made in self._made.values() for text in made]

    def text(self, names: str, text: str) -> str:
        """``names``: the text's kind (`events.kinds`)."""
        special = self._special.get(names)
        return self.of(names, text) if special is None else special(text)

    def pseudonymized(self, value: Any) -> Any:
        """A Struct with its texts replaced."""
        kind: Any = type(value)
        return self._replaced(value, _type_info(kind))

    def _replaced(self, value: Any, kind: inspect.Type, names: str = "message") -> Any:
        """``names``: the kind of its texts, unless its parts have another."""
        match kind:
            case inspect.Metadata(inner, extra={"names": str(names)}):
                if names == "dropped":
                    return value if self.learning else ()
                return self._replaced(value, inner, names)
            case inspect.StructType(cls, fields):
                return cls(
                    **{
                        field.name: self._replaced(
                            getattr(value, field.name), field.type, names_of_field(field.name)
                        )
                        for field in fields
                    }
                )
            case inspect.StrType():
                return self.text(names, value)
            case inspect.VarTupleType(item):
                return tuple([self._replaced(each, item, names) for each in value])
            case inspect.TupleType(items):
                return tuple(
                    [self._replaced(each, item, names) for each, item in zip(value, items, strict=True)]
                )
            case inspect.DictType(key, item):
                return {
                    self._replaced(name, key, names): self._replaced(each, item, names)
                    for name, each in value.items()
                }
            case inspect.UnionType(types) if value is not None:
                return self._replaced(value, types[0], names)
            case inspect.IntType() if names == "person" and value != ROOT_UID:
                made = self._persons.setdefault(value, PERSONS_FROM + len(self._persons))
                return value if self.learning else made
        return value

    def _kept_form(self, form: re.Pattern[str], text: str) -> str:
        return text if form.fullmatch(text) else self.of("message", text)

    def _place(self, text: str) -> str:
        """``path:line`` of a setting."""
        if text == DEFAULT_NAMESPACE:
            return text
        path, colon, line = text.rpartition(":")
        return f"{self.of('path', path)}:{line}" if colon and line.isdecimal() else self.of("path", text)

    def _source(self, text: str) -> str:
        source, space, name = text.partition(" ")
        if source not in get_args(Source):
            return self.of("message", text)
        return f"{source}{space}{self.text('message', name)}"

    def _uid(self, text: str) -> str:
        """Firmwares' defaults and clouds' schemes change decisions. A source may give the Node's name."""
        if text in self._made["node"]:
            return self.of("node", text)
        scheme = text.partition("://")[0]
        if taint_is_final(text) and scheme != text:
            return f"{scheme}://{self.of('uid', text.removeprefix(f'{scheme}://'))}"
        return text if is_junk(text) else self.of("uid", text)

    def _message(self, text: str) -> str:
        if text.startswith(OUTAGE_WAITS):
            return OUTAGE_WAITS + self._outage_waits(text.removeprefix(OUTAGE_WAITS))
        return text if PLAIN_MESSAGES.fullmatch(text) else self.of("message", text)

    def _outage_waits(self, text: str) -> str:
        """The core's own sentences stay; an edge's error after `BRAKE_SAYS` does not."""
        if not text.startswith(BRAKE_SAYS):
            return text if text in (*WAITS, *UNPROVED.values()) else self.of("message", text)
        reason = text.removeprefix(BRAKE_SAYS)
        return f"{BRAKE_SAYS}{self._kept_form(REFUSAL, reason)}"

    def _volume_in_use(self, text: str) -> str:
        """Decisions depend on its kind and driver."""
        if not text.startswith(CSI_VOLUME):
            return self.of("message", text)
        driver, sign, handle = text.removeprefix(CSI_VOLUME).partition("^")
        return f"{CSI_VOLUME}{self.of('message', driver)}{sign}{self.of('message', handle)}"

    def _owner(self, text: str) -> str:
        """``Kind/name`` of a workload."""
        kind, slash, name = text.partition("/")
        if not slash:
            return self.of("owner", text)
        return f"{self.of('workload kind', kind)}{slash}{self.of('owner', name)}"

    def _redacted_owner(self, text: str) -> str:
        """``namespace/Kind/name``."""
        namespace, slash, owner = text.partition("/")
        return f"{self.of('namespace', namespace)}{slash}{self._owner(owner)}"

    def _key(self, text: str) -> str:
        key = base.parse_order_key(text)
        if (
            key.actor not in ACTOR_TYPE_BY_NAME
            or not _ORDER_WORD.fullmatch(key.what)
            or not key.ordinal.isdecimal()
        ):
            return self.of("message", text)
        part = f":{self.of('container', key.part)}" if key.part else ""
        return f"{key.actor}/{key.what}{part}/{self.subject(key.subject)}/{key.ordinal}"

    def subject(self, text: str) -> str:
        """A pod's UID, or a wave's number, which stays."""
        return self.of("uid", text) if text in self._made["uid"] or not text.isdecimal() else text

    def _reference(self, text: str) -> str:
        """A pod as a person names it: its UID, ``namespace/name``, or its name."""
        if text in self._made["uid"]:
            return self.of("uid", text)
        namespace, slash, name = text.rpartition("/")
        return f"{self.of('namespace', namespace)}{slash}{self.of('pod', name)}"


@cache
def names_of_field(name: str) -> str:
    """The kind of a text in a field of this name, unless its type has another."""
    return next((kind for kind, form in FIELD_NAMES.items() if form.fullmatch(name)), "message")
