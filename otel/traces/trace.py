"""One shutdown while it is being read: its root span, and what its spans' stories must remember."""

from __future__ import annotations

from typing import NamedTuple

from events.decisions import PROJECTION_VERSION
from events.frames import RawRecord
from events.record import episode_id
from events.segment import Header
from otel import attributes as at
from otel.ids import trace_id
from otel.span import Attributes, Link
from otel.traces.spans import Open, Spans

NS_PER_MS = 1_000_000

ROOT = "shutdown"


class Carried(NamedTuple):
    """A hook or stop that goes on in the next shutdown. ``place``: its role and container."""

    place: tuple[str, str]
    key: str
    attributes: Attributes
    link: Link


class PodFacts(NamedTuple):
    """A pod as it was planned: what each of its spans says, and what only its own says.

    ``by_kubelet``: not we end it.
    """

    label: str
    names: Attributes
    plan: Attributes
    by_kubelet: bool = False


class Start:
    """A start of the daemon in the middle: ``cut_ns`` is where the record before it ends."""

    def __init__(self, raw: RawRecord, boot_id: str, cut_ns: int, *, moved: bool) -> None:
        self.raw = raw
        self.boot_id = boot_id
        self.cut_ns = cut_ns
        #: Another boot: whatever was still open went with the last one.
        self.moved = moved


class Trace(Spans):
    """Times are wall-clock nanoseconds: the first record's, plus the monotonic difference within its boot.

    ``fact`` is the one of the step that is being told. ``last_ns`` is the time of the record before.
    """

    def __init__(self, first: RawRecord, episode: int, header: Header) -> None:
        super().__init__(trace_id(first.hash), episode, first)
        self.boot_id = header.identity.boot_id
        self.version = PROJECTION_VERSION
        self.offset_ns = first.wall_ns - first.mono_ns
        self.fact = first
        self.last_ns = first.wall_ns
        self.start: Start | None = None
        self.over = False
        self.root = self.begin(ROOT, "", parent=b"")
        self.root.attributes[at.EPISODE] = episode_id(header.journal_id, episode)
        # Waves.
        self.waves: dict[int, bytes] = {}
        self.open_waves: dict[int, Open] = {}
        self.last_wave = -1
        # Pods and their containers.
        self.pods: dict[str, PodFacts] = {}
        self.open_pods: dict[str, Open] = {}
        self.outcomes: dict[str, str] = {}
        self.hook: Attributes = ()
        self.exit_codes: dict[str, int] = {}
        self.findings: dict[tuple[str, str], Attributes] = {}
        #: What the cancelled shutdown before left on its way, by UID.
        self.carried: dict[str, list[Carried]] = {}
        # Orders, and spans of which there is one at a time.
        self.orders: dict[str, Open] = {}
        self.named: dict[str, Open] = {}
        self.listed: dict[str, int] = {}
        #: By role, an order that will be given again: the next one of its kind is a retry.
        self.lost: dict[str, bytes] = {}
        self.unfinished = 0
        self.missed = False

    def note(self, name: str, attributes: Attributes = ()) -> None:
        """An event of the whole shutdown."""
        self.root.note(name, self.now_ns, attributes)

    # --- where it stands ----------------------------------------------------------------------

    @property
    def gone(self) -> bool:
        """Does the record say what a start found: that the boot, or userspace, of this shutdown is over?"""
        return self.start is not None and (self.start.moved or self.raw.cause == self.start.raw.seq)

    @property
    def cut_ns(self) -> int:
        """Where the record of what is over ends; now, where nothing is."""
        return self.start.cut_ns if self.start is not None and self.gone else self.now_ns

    @property
    def asked_to_stop(self) -> bool:
        """Did people end the waiting, in this very step? Then no deadline was missed."""
        return self.fact.tag == "ReleaseRequested"

    def left_behind(self, pods: int) -> None:
        """So many are not waited for any longer."""
        self.unfinished = pods
        self.missed = pods > 0 and not self.asked_to_stop

    def wave_id(self, wave: int) -> bytes:
        """The parent of what belongs to a wave; the shutdown itself where that wave has not begun."""
        return self.waves.get(wave, self.root.span_id)


def milliseconds(ns: int) -> int:
    return ns // NS_PER_MS


def seconds(ns: int) -> str:
    """For people: three decimals."""
    return f"{ns // 1_000_000_000}.{ns // NS_PER_MS % 1000:03d} s"


def counted(number: int, what: str) -> str:
    """For people: one pod, two pods, two statuses."""
    plural = "es" if what.endswith("s") else "s"
    return f"{number} {what}{'' if number == 1 else plural}"
