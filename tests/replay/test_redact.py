"""A redacted journal verifies, has the same shutdowns and times, and no name."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, OpenedOrder, System, take_checkpoint
from ebbtide.cli.common.guard import DONE
from ebbtide.cli.journal_pack import pack_redacted as redact_to
from ebbtide.events import facts as f
from ebbtide.events.base import TYPES, Checkpoint, Fact, Order, Stamp
from ebbtide.events.codec import RawRecord
from ebbtide.events.pack import PackedSource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.recovery import Case, Finding
from ebbtide.events.segment import LOGICS, OUTAGE_LOGIC, SHUTDOWN_LOGIC, Identity
from ebbtide.events.values import Pod
from ebbtide.replay.redact import Diverged, NoBegin, Pseudonyms, redact
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.verify import verify
from tests.conftest import Sample
from tests.filled import filled
from tests.journals import Journal, Memory, changed, checkpoint, history
from tests.replay import shutdown

#: The program's own words: a "default" namespace or origin; the worlds' "node" with pseudonym "node~1".
OWN_WORDS = ("default", "node", "machine")

#: Sampled, one seed of so many.
ONE_OF = 5


def redacted(original: History, names: Pseudonyms | None = None) -> History:
    files: dict[str, bytes] = {}
    for name, data in redact(original, names or Pseudonyms()):
        files[name] = files.get(name, b"") + data
    return History([Memory(files)], logics=LOGICS)


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts(list(value))
        yield from texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts(each)


def words(found: History) -> set[str]:
    """Every text of the journal and its headers, whole and in parts."""
    whole: set[str] = set()
    for batch in found.batches():
        whole.update(batch.header.identity[:3])
        for raw in batch.records:
            whole.update((raw.actor, *texts(msgspec.msgpack.decode(raw.payload))))
    return whole | {part for text in whole for part in re.split(r"[^A-Za-z0-9_.\-]+", text)}


def envelope(raw: RawRecord) -> tuple[object, ...]:
    return raw.seq, raw.mono_ns, raw.wall_ns, raw.episode, raw.cause, raw.flags, raw.tag


def check(original: History, own_words: Iterable[str] = OWN_WORDS) -> Pseudonyms:
    names = Pseudonyms()
    made = redacted(original, names)
    assert verify(made).identical
    assert list(map(envelope, made.raw())) == list(map(envelope, original.raw()))
    told = [(each.outcome, each.pods, each.kind, each.ended_wall_ns) for each in episodes(original)]
    assert [(each.outcome, each.pods, each.kind, each.ended_wall_ns) for each in episodes(made)] == told
    fields = [field for cls in replaced_structs() for field in cls.__struct_fields__]  # type: ignore[attr-defined]
    leaked = words(made).intersection(names.originals()).difference(own_words, fields)
    assert not leaked, leaked
    return names


# --- the promises on any journal


def test_the_golden_story() -> None:
    """Two processes and the next boot, with both sets of actors."""
    check(History([Memory(shutdown.write().files)]))


def test_simulated_shutdowns(sample: Sample) -> None:
    for seed in sample(range(24), ONE_OF):
        run = simulate(SimulationRequest(synthetic=12), seed)
        check(History([run.machine.journal.source()]))


# --- who decides about a field


def structs(kind: Any, seen: dict[type, None]) -> None:
    """Every struct that a type is made of."""
    if isinstance(kind, inspect.StructType) and kind.cls not in seen:
        seen[kind.cls] = None
        for field in kind.fields:
            structs(field.type, seen)
    for name in ("type", "types", "item_types", "item_type", "key_type", "value_type"):
        part = getattr(kind, name, ())
        for each in part if isinstance(part, tuple) else (part,):
            structs(each, seen)


def replaced_structs() -> Iterable[type]:
    seen: dict[type, None] = {}
    tops = [cls for cls in TYPES.values() if issubclass(cls, Fact | Order)]
    for cls in (*tops, *(kind.state for kind in ACTOR_TYPE_BY_NAME.values())):
        structs(inspect.type_info(cls), seen)
    return seen


#: Similar to no name, word, number or path of ours.
CANARY = "Canary one"


def filled_of(cls: type) -> Any:
    """With a distinct canary in each text."""
    return filled(inspect.type_info(cls), lambda at: f"{CANARY} {at}/{at}/{at}/7")


@pytest.mark.parametrize("cls", list(replaced_structs()), ids=lambda cls: cls.__name__)
def test_no_text_of_a_fact_a_state_or_an_order_is_kept_because_of_its_place(cls: type) -> None:
    """A field may hold any text: only our own words, numbers and forms stay."""
    (made,) = told(filled_of(cls))
    assert type(made) is cls
    assert b"anary" not in msgspec.msgpack.encode(made)


def canaries(logic: str) -> Memory:
    """A possible foreign journal of either actor set that starts inside an episode: a canary in each text
    of facts, orders and states.
    """
    facts = [cls for cls in TYPES.values() if issubclass(cls, Fact)]
    orders = [filled_of(cls) for cls in TYPES.values() if issubclass(cls, Order)]
    system = System(logic=logic)
    for kind in system.actors.types:
        subject = "" if kind in system.actors.singletons else f"{CANARY} {kind.name}"
        slot = system.slots.get((kind.name, subject)) or system.register(kind, subject)
        slot.state = filled_of(kind.state)
    for number, order in enumerate(orders):
        opened = msgspec.structs.replace(order, key=f"{order.key}{number}")
        system.open_orders[opened.key] = OpenedOrder(1, opened)
    journal = Journal(Identity(*[CANARY] * 4, logic)).begin(Stamp(1, 1))
    mark = checkpoint(1, Stamp(1, 1), take_checkpoint(system))
    journal.add(msgspec.structs.replace(mark, actor=CANARY))
    system.next_seq = 2
    for at_ns, cls in enumerate(facts, 2):
        journal.add(*system.step(filled_of(cls), Stamp(at_ns, at_ns)))
    name, data = next(iter(journal.files.items()))
    damaged = Finding(Case(damage="record"), name, 99, 9, f"in the original, {CANARY}/here is no frame")
    return Stated({name: bytes(data)}, (damaged,))


class Stated(Memory):
    """A copy of a damaged journal from outside."""

    def __init__(self, data: dict[str, bytes], stated: tuple[Finding, ...]) -> None:
        super().__init__(data)
        self.stated = stated

    location = f"/home/{CANARY}/journal.zip"


@pytest.mark.parametrize("logic", [SHUTDOWN_LOGIC, OUTAGE_LOGIC], ids=["shutdown", "outage"])
def test_no_canary_comes_out_of_a_redacted_pack(tmp_path: Path, logic: str) -> None:
    """Events, orders, headers, and the manifest about damage and location."""
    file = tmp_path / "one.zip"
    original = History([canaries(logic)], logics=LOGICS)
    assert original.read().state == "torn"
    assert redact_to(original, file) == DONE
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert len(contents) == 2
    for name, content in contents.items():
        assert b"anary" not in name.encode() + content
    made = History([PackedSource(file)])
    assert made.read().state == "torn"
    assert [raw.tag for raw in made.raw() if not raw.cause][1:] == [
        cls.__name__ for cls in TYPES.values() if issubclass(cls, Fact)
    ]


# --- what becomes of names


def told(*values: msgspec.Struct) -> list[Any]:
    """The values under pseudonyms, after both passes."""
    names = Pseudonyms()
    for value in values:
        assert names.pseudonymized(value) == value
    names.replace()
    return [names.pseudonymized(value) for value in values]


@pytest.mark.parametrize(
    ("field", "kept", "replaced"), [("version", "1.4.0rc2", "1.4.0+acme.7"), ("mode", "auto", "acme")]
)
def test_what_a_field_mostly_has_is_kept(field: str, kept: str, replaced: str) -> None:
    """Only the field's own known words stay."""
    blank = {"version": "", "mode": "", "pid": 1, "node": "", "boot_id": "", "userspace_id": ""}
    one, two = told(*(f.DaemonStarted(**{**blank, field: text}) for text in (kept, replaced)))  # type: ignore[arg-type]
    assert (getattr(one, field), getattr(two, field)) == (kept, "message~1")


def test_a_uid_of_digits_is_no_waves_number() -> None:
    """A key's pod is replaced like the pod."""
    inventory, ended = told(
        f.InventoryTaken(
            key="EpisodeActor/inventory//0",
            as_of_ns=1,
            source="process",
            pods=(Pod(uid="77", namespace="n", name="p"),),
        ),
        f.OrderEnded(key="HookActor/kill:main/77/0", result="done"),
    )
    assert f"/{inventory.pods[0].uid}/" in ended.key


# --- where it comes from


def test_the_first_record_names_the_original() -> None:
    """The original's ID, its last record with hash, and each shutdown's trace."""
    original = History([Memory(shutdown.write().files)])
    first = next(redacted(original).records()).event
    assert isinstance(first, Checkpoint)
    assert first.redacted is not None
    *_, last = original.raw()
    assert (first.redacted.journal_id, first.redacted.head) == (original.journal_id.hex(), last.hash.hex())
    assert first.redacted.head_seq == last.seq
    assert first.redacted.trace_ids == {each.first_seq: each.trace_id for each in episodes(original)}


def test_what_diverges_is_not_redacted() -> None:
    """Decisions that do not follow from the facts cannot be remade."""
    records = shutdown.write().records
    with pytest.raises(Diverged):
        redact(history(changed(records, len(records), status_flush_ns=1)), Pseudonyms())


def test_a_begin_without_a_checkpoint_is_refused() -> None:
    """There is no state to begin with."""
    records = shutdown.write().records[1:]
    moved = [
        msgspec.structs.replace(record, seq=record.seq - 1, cause=max(0, record.cause - 1), episode=0)
        for record in records[:3]
    ]
    with pytest.raises(NoBegin):
        redact(history(moved), Pseudonyms())
