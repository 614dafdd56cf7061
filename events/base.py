"""A journal's contents: events, and the record around each.

An edge reports a *fact*; an actor derives a *decision*; an *order* is a decision that asks an edge for an
effect; a *mark* is the journal's record about itself. The class name is the type tag in the journal: never
rename a class.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, dataclass_transform

import msgspec

from ebbtide.events.messages import DEBUG, INFO, NOTICE, PLAIN, TIMED, UNLOGGED, Message, Names, plural

NS_PER_SECOND, NS_PER_MS = 1_000_000_000, 1_000_000

#: The longest wait of an effect for its barrier. A hung disk costs evidence, never a pod's grace.
BARRIER_NS_MAX = 20_000_000
#: Least time between a container's stop signal and its SIGKILL, as the kubelet has it.
FLOOR_SECONDS = 2
#: A smaller reserve costs the last pods time: it pays for the floor and the margins before logind's limit.
RESERVE_SECONDS_MIN = 3

#: What an order waits for. *none*: it only reads. *written*: its effect ends with the boot, and a completed
#: ``write()`` survives our process. *synced*: its effect outlives the boot. *confirmed*: it changes the
#: cluster, where another leader continues from the stored journal. This wait has no limit: a process that
#: cannot store is no leader.
Barrier = Literal["none", "written", "synced", "confirmed"]

#: For each plan of a pod; a restart may use one.
ORDINALS_PER_PLAN = 1000

TYPES: dict[str, type[Event]] = {}


class FrozenMeta(msgspec.StructMeta):
    """Gives each class these options."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **config: Any) -> Any:
        options = {"frozen": True, "kw_only": True, "omit_defaults": True, "gc": False} | config
        return super().__new__(mcls, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class FrozenStruct(msgspec.Struct, frozen=True, metaclass=FrozenMeta):
    """Base of events and their values."""


class Event(FrozenStruct):
    """Times are integer nanoseconds, never floats.

    A text says what happened, without time and pod: log, timeline and report have columns for these.
    """

    #: A template over ``self``; or a class overrides `text`.
    template: ClassVar[str] = ""
    #: The same for `sentence`. Empty: the text.
    story: ClassVar[str] = ""
    #: A field, and the levels with and without it; or a class has one ``level``.
    level_by: ClassVar[tuple[str, int, int]] = ("", DEBUG, DEBUG)
    #: A form of `events.messages`, and the mildest level that the log shows.
    log: ClassVar[str] = UNLOGGED
    log_level_max: ClassVar[int] = NOTICE
    #: Write it to the kernel's log if no disk takes the journal.
    last_resort: ClassVar[bool] = False
    #: A key of `events.record.shutdown_record.NOTICE_TEXTS`.
    notice: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        if cls.__name__ in KINDS or not cls.__module__.startswith("ebbtide.events."):
            return
        if TYPES.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(f"event type {cls.__name__} is registered twice")

    @property
    def level(self) -> int:
        field, with_it, without = self.level_by
        return with_it if field and getattr(self, field) else without

    def text(self, names: Names, at: Stamp) -> str:
        return self.template.format(self=self)

    def sentence(self, text: str, wave: int | None) -> str:
        """For one pod's story, whose subject is the pod. ``wave``: the event's, or the pod's."""
        return self.story.format(self=self) or text

    @property
    def pod_uid(self) -> str:
        """Empty: the event is about no pod, or several."""
        return str(getattr(self, "uid", "") or getattr(getattr(self, "pod", None), "uid", ""))

    @property
    def repeats(self) -> bool:
        """A better event has the same content, so a timeline may omit this one."""
        return False

    def introduce(self, names: Names) -> None:
        """Note names for later texts."""

    def describe(self, names: Names, at: Stamp) -> Message:
        self.introduce(names)
        return Message(self.level, self.text(names, at))

    def log_messages(self, names: Names, message: Message, since: str) -> Iterator[Message]:
        """The log's lines for this event."""
        if self.log and message.level <= self.log_level_max:
            pod = names.of(self.pod_uid)
            yield message._replace(text=self.log.format(text=message.text, since=since, pod=pod))


#: These are no event types.
KINDS = ("Fact", "Decision", "Order", "Mark")


#: Waiting facts are admitted lane by lane; a `Tick` comes between the first lane and the second.
URGENT, OUTCOMES, REST = range(3)


class Fact(Event):
    level_by = ("", INFO, INFO)
    log = PLAIN
    lane: ClassVar[int] = REST


class Decision(Event):
    log = TIMED


#: An order that a shutdown's record lists beside the waves.
SideOrder = Literal[
    "inventory",
    "announce",
    "statuses",
    "release",
    "traces",
    "kubelet",
    "kubelet-start",
    "withdraw",
    "await",
    "mounts",
    "certificate",
]


class Order(Decision):
    """One ``OrderEnded`` answers it. An order has the same ``key`` (`order_key`) in a replay, a what-if and a
    restarted daemon.
    """

    barrier: ClassVar[Barrier] = "written"
    #: Another boot does not repeat it; its outcome is then unknown.
    this_boot: ClassVar[bool] = False
    #: Its span's role; empty: no span.
    span_role: ClassVar[str] = ""
    #: Its name as a side order, or empty.
    beside: ClassVar[SideOrder | Literal[""]] = ""

    key: str


class Mark(Event):
    """The journal's record about itself, such as a checkpoint."""


def order_key(actor: str, what: str, subject: str = "", ordinal: int = 0) -> str:
    """``what`` is often ``word:container``."""
    return f"{actor}/{what}/{subject}/{ordinal}"


class OrderKey(NamedTuple):
    """``part`` is behind the word's colon, a container."""

    actor: str
    what: str
    part: str
    subject: str
    ordinal: str


def parse_order_key(key: str) -> OrderKey:
    parts = key.split("/")
    if len(parts) != 4:
        return OrderKey("", "", "", "", "")
    what, _, part = parts[1].partition(":")
    return OrderKey(parts[0], what, part, parts[2], parts[3])


# --- the envelope around an event

#: docs/traces.md has the rule of the trace id.
TRACE_DOMAIN = b"ebbtide.trace.v1"


class Stamp(NamedTuple):
    """When the sequencer admitted a fact. Decisions have their fact's stamp."""

    mono_ns: int
    wall_ns: int


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``cause``: the number of the event that it answers; 0: a fact. ``episode``: the number of its
    shutdown's first record; 0: outside. ``actor``: name and subject, or ``edge``. ``last``: it ends a step.
    """

    seq: int
    mono_ns: int
    wall_ns: int
    episode: int
    cause: int
    actor: str
    last: bool
    event: Event


def episode_id(journal_id: bytes, episode: int) -> str:
    """A shutdown's name for people."""
    return f"{journal_id.hex()[:8]}-{episode}"


def shutdown_trace_id(first_record_hash: bytes) -> str:
    """32 hex digits, from the chain hash of the shutdown's first record."""
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in (TRACE_DOMAIN, first_record_hash))
    return hashlib.sha256(framed).hexdigest()[:32]


def head_text(seq: int, chain_hash: bytes) -> str:
    """The last record's number and chain hash; empty for none."""
    return f"{seq}:{chain_hash.hex()}" if chain_hash else ""


# --- marks

#: The actor of the journal's own records.
JOURNAL_ACTOR = "journal"


class ActorState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    actor: str
    subject: str
    state: msgspec.Raw
    failed: bool = False


class OpenOrder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A later process must know the whole request."""

    seq: int
    type: str
    order: msgspec.Raw


#: Three times the pods of the largest simulated node. Each takes half a kilobyte in memory.
ITEMS_MAX = 32_768
_FEW_ITEMS = msgspec.Meta(max_length=ITEMS_MAX)
_KeyT = TypeVar("_KeyT")
_ItemT = TypeVar("_ItemT")
#: The type of each list in an event, and of large ones in a state.
BoundedDict = Annotated[dict[_KeyT, _ItemT], _FEW_ITEMS]
BoundedTuple = Annotated[tuple[_ItemT, ...], _FEW_ITEMS]


class RedactedFrom(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The original of a redacted journal; its records have the same numbers.

    ``head``: the chain hash of the original's last record; ``trace_ids``: by the number of a shutdown's first
    record. All in hexadecimal digits.
    """

    journal_id: str
    head_seq: int
    head: str
    trace_ids: BoundedDict[int, str]


class Checkpoint(Mark):
    """The whole state at a segment's begin, so that readers need no older segments."""

    episode: int
    actors: Annotated[tuple[ActorState, ...], _FEW_ITEMS] = ()
    open_orders: Annotated[tuple[OpenOrder, ...], _FEW_ITEMS] = ()
    #: As in the segment's header, because a replay may have only the records.
    logic: str = ""
    #: In the first checkpoint of a redacted journal.
    redacted: RedactedFrom | None = None

    def text(self, names: Names, at: Stamp) -> str:
        open_orders = plural(len(self.open_orders), "open order")
        return f"checkpoint of {plural(len(self.actors), 'actor')}, {open_orders}"


class StatesDigest(Mark):
    """At a wave's end: a few bytes for each changed actor, by its label (docs/journal-format.md)."""

    actors: BoundedDict[str, bytes] = {}

    def text(self, names: Names, at: Stamp) -> str:
        return f"digest of the states of {plural(len(self.actors), 'actor')}"
