"""A redacted journal verifies, tells the same shutdowns at the same times, and names nobody."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from ebbtide.actors.checkpoint import take_checkpoint
from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, OpenedOrder, System
from ebbtide.cli.common.guard import DONE
from ebbtide.cli.journal_pack import _redact as redact_to
from ebbtide.events import facts as f
from ebbtide.events.base import TYPES, Checkpoint, Fact, Order, Stamp
from ebbtide.events.codec import RawRecord
from ebbtide.events.decisions import PostEvent, PublishCertificate
from ebbtide.events.model import Pod, ProcessReport, Settings
from ebbtide.events.pack import PackedSource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.recovery import Case, Finding
from ebbtide.events.segment import LOGICS, OUTAGE_LOGIC, SHUTDOWN_LOGIC, Identity
from ebbtide.replay.redact import Diverged, NoBegin, Pseudonyms, has_text, redact, text_kind
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.verify import verify
from tests.conftest import Sample
from tests.journals import Journal, Memory, changed, checkpoint, history
from tests.replay import shutdown
from tests.world.worlds import Name, try_out

#: Words of the program's own: a namespace may be called "default", and so is a setting's origin; the
#: worlds' one node is called "node", and its pseudonym "node~1".
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
    """Every text in the journal, whole and in parts, and what stands in its headers."""
    whole: set[str] = set()
    for batch in found.batches():
        whole.update(batch.header.identity[:3])
        for raw in batch.records:
            whole.update((raw.actor, *texts(msgspec.msgpack.decode(raw.payload))))
    return whole | {part for text in whole for part in re.split(r"[^A-Za-z0-9_.\-]+", text)}


def envelope(raw: RawRecord) -> tuple[object, ...]:
    return raw.seq, raw.mono_ns, raw.wall_ns, raw.episode, raw.cause, raw.flags, raw.tag


def check(original: History, own_words: Iterable[str] = OWN_WORDS) -> Pseudonyms:
    """The three promises, on any journal."""
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


# --- the promises on any journal ---------------------------------------------------------------


def test_the_golden_story() -> None:
    """Two processes and the next boot, under either logic."""
    check(History([Memory(shutdown.write().files)]))


def test_simulated_shutdowns(sample: Sample) -> None:
    """Whatever the seed draws: hooks, crashes, cancels, power cuts."""
    for seed in sample(range(24), ONE_OF):
        run = simulate(SimulationRequest(synthetic=12), seed)
        check(History([run.machine.journal.source()]))


def test_worlds(sample: Sample) -> None:
    """The real daemon and the real writer, on disks that fail."""
    for seed in sample(range(24), ONE_OF):
        original = History([place.source for place in try_out(Name(seed)).world.disks.places])
        if verify(original).identical and original.verdict.first_seq:
            check(original)


# --- who decides about a field -----------------------------------------------------------------


def structs(kind: Any, seen: dict[type, None]) -> None:
    """Every struct that a type is made of."""
    if isinstance(kind, inspect.StructType) and kind.cls not in seen:
        seen[kind.cls] = None
        for field in kind.fields:
            structs(field.type, seen)
    for name in ("types", "item_types", "item_type", "key_type", "value_type"):
        part = getattr(kind, name, ())
        for each in part if isinstance(part, tuple) else (part,):
            structs(each, seen)


def replaced_structs() -> Iterable[type]:
    seen: dict[type, None] = {}
    tops = [cls for cls in TYPES.values() if issubclass(cls, Fact | Order)]
    for cls in (*tops, *(kind.state for kind in ACTOR_TYPE_BY_NAME.values())):
        structs(inspect.type_info(cls), seen)
    return seen


def test_every_field_with_text_is_decided_about() -> None:
    """Facts, states and orders: whoever adds a text says what it names, or that it names nobody."""
    open_ = [
        f"{cls.__name__}.{field.name}"
        for cls in replaced_structs()
        for field in inspect.type_info(cls).fields  # type: ignore[attr-defined]
        if has_text(field.type) and text_kind(cls, field.name) is None
    ]
    assert not open_, f"say in replay/redact.py what these name: {', '.join(open_)}"


#: No name, word, number or path of ours looks like this, whole or in parts.
CANARY = "Canary one"


def filled(kind: Any, at: str = "") -> Any:
    """A value of this type with a canary in each text that it may hold; each has its place in it."""
    text = f"{CANARY} {at}/{at}/{at}/7"
    match kind:
        case inspect.StrType():
            return text
        case inspect.LiteralType(values):
            return values[-1]
        case inspect.StructType(cls, fields=fields):
            return cls(**{each.name: filled(each.type, f"{cls.__name__}.{each.name}") for each in fields})
        case inspect.VarTupleType(item):
            return (filled(item, at), filled(item, f"{at}2"))
        case inspect.TupleType(items):
            return tuple(filled(item, f"{at}{number}") for number, item in enumerate(items))
        case inspect.DictType(key, value):
            return {filled(key, at): filled(value, at)}
        case inspect.UnionType(types):
            return filled(types[0] if types[0] != inspect.NoneType() else types[1], at)
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.BytesType():
            return b"bytes of ours"
        case inspect.NoneType():
            return None
    raise NotImplementedError(f"say how to fill a {kind}")


def filled_of(cls: type) -> Any:
    return filled(inspect.type_info(cls))


@pytest.mark.parametrize("cls", list(replaced_structs()), ids=lambda cls: cls.__name__)
def test_no_text_of_a_fact_a_state_or_an_order_is_kept_because_of_its_place(cls: type) -> None:
    """What a field may hold is not what it always holds: only words, numbers and forms of ours stay."""
    (made,) = told(filled_of(cls))
    assert type(made) is cls
    assert b"anary" not in msgspec.msgpack.encode(made)


def canaries(logic: str) -> Memory:
    """A journal that a stranger may have made, of either set of actors, and that begins in mid-episode: a
    canary in every text of every fact, every order and every actor's state.
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
    """As a copy of a damaged journal that somebody sent."""

    def __init__(self, data: dict[str, bytes], stated: tuple[Finding, ...]) -> None:
        super().__init__(data)
        self.stated = stated

    location = f"/home/{CANARY}/journal.zip"


@pytest.mark.parametrize("logic", [SHUTDOWN_LOGIC, OUTAGE_LOGIC], ids=["shutdown", "outage"])
def test_no_canary_comes_out_of_a_redacted_pack(tmp_path: Path, logic: str) -> None:
    """Events, orders, headers, and what the manifest says of the original's damage and of its place."""
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


# --- what becomes of names ---------------------------------------------------------------------


def told(*values: msgspec.Struct) -> list[Any]:
    """The values under pseudonyms, after both passes."""
    names = Pseudonyms()
    for value in values:
        assert names.pseudonymized(value) == value
    names.replace()
    return [names.pseudonymized(value) for value in values]


POD = Pod(uid="0b1c", namespace="shop", name="web-0")


def test_equal_names_get_equal_pseudonyms() -> None:
    """A pod is the same pod in an inventory, a key and a person's words."""
    inventory, started, ended, by_uid, by_label, by_name = told(
        f.InventoryTaken(key="EpisodeActor/inventory//0", as_of_ns=1, source="process", pods=(POD,)),
        f.ContainerStarted(uid="0b1c", container="main"),
        f.OrderEnded(key="HookActor/stop:main/0b1c/0", result="done"),
        f.HurryRequested(pod="0b1c", asked_by=1000),
        f.HurryRequested(pod="shop/web-0", asked_by=0),
        f.HurryRequested(pod="web-0", asked_by=1000),
    )
    pod = inventory.pods[0]
    assert started.uid == pod.uid != "0b1c"
    assert inventory.key == "EpisodeActor/inventory//0"
    assert ended.key == f"HookActor/stop:{started.container}/{pod.uid}/0"
    assert [by_uid.pod, by_label.pod, by_name.pod] == [pod.uid, pod.label, pod.name]
    assert (by_uid.asked_by, by_label.asked_by) == (60_001, 0)


@pytest.mark.parametrize(
    ("field", "kept", "replaced"),
    [
        ("version", "1.4.0rc2", "1.4.0+acme.7"),
        ("mode", "auto", "acme"),
    ],
)
def test_what_a_field_mostly_has_is_kept(field: str, kept: str, replaced: str) -> None:
    """And nothing else in its place."""
    blank = {"version": "", "mode": "", "pid": 1, "node": "", "boot_id": "", "userspace_id": ""}
    one, two = told(*(f.DaemonStarted(**{**blank, field: text}) for text in (kept, replaced)))  # type: ignore[arg-type]
    assert (getattr(one, field), getattr(two, field)) == (kept, "message~1")


def test_an_operators_kind_and_a_distributions_unit_get_pseudonyms() -> None:
    """The usual ones say nothing of whose the cluster is."""
    owners = ("StatefulSet/web", "AcmeDatabase/web", "AcmeDatabase/other")
    pods = tuple(Pod(uid=str(at), namespace="n", name="p", owner=owner) for at, owner in enumerate(owners))
    made = told(
        f.InventoryTaken(key="EpisodeActor/inventory//0", as_of_ns=1, source="api", pods=pods),
        f.KubeletRead(unit="kubelet.service", active=True),
        f.KubeletRead(unit="acme-kubelet.service", active=True),
    )
    assert [pod.owner for pod in made[0].pods] == ["StatefulSet/owner~1", "Kind~1/owner~1", "Kind~1/owner~2"]
    assert [each.unit for each in made[1:]] == ["kubelet.service", "unit~1.service"]


def test_a_uid_of_digits_is_no_waves_number() -> None:
    """A key's subject that is a pod is replaced as the pod is."""
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


def test_outputs_are_dropped_and_messages_replaced() -> None:
    """What a process wrote is not there at all; a message is another message; a command another command."""
    autopsy, schedule, release = told(
        f.AutopsyTaken(
            uid="u",
            container="c",
            processes=(ProcessReport(pid=1, parent_pid=0, command="psql", state="sleeping"),),
            last_lines=("password: hunter2",),
        ),
        f.ScheduleRead(uid=1000, tty="pts/3", wall_message="Bob reboots"),
        f.ReleaseRequested(asked_by=1001),
    )
    assert autopsy.last_lines == ()
    assert (autopsy.processes[0].command, autopsy.processes[0].state) == ("command~1", "sleeping")
    assert (schedule.uid, schedule.tty, schedule.wall_message) == (60_001, "tty~1", "message~1")
    assert release.asked_by == 60_002


def test_what_says_nothing_of_anybody_stays() -> None:
    """An exit code, a gate, the origin of a default; of a file only the line."""
    ended, other, loaded = told(
        f.OrderEnded(key="HookActor/hook:c/u/0", result="failed", reason="exit code 3"),
        f.OrderEnded(key="HookActor/hook:c/u/0", result="failed", reason="http://10.0.0.7/drain: refused"),
        f.SettingsLoaded(
            settings=Settings(gates={"GracefulNodeShutdown": True}),
            sources={"reserve": "default", "budget": "/etc/acme/node.yaml:7"},
        ),
    )
    assert ended.reason == "exit code 3"
    assert other.reason == "message~1"
    assert loaded.settings.gates == {"GracefulNodeShutdown": True}
    assert loaded.sources == {"reserve": "default", "budget": "/path~1:7"}


def test_a_nodes_volumes_and_owners_get_names_of_their_own() -> None:
    """A volume belongs to its pod, a driver's path to nobody; of an owner the kind stays."""
    taken, mounts, node, event, certificate, of_node = told(
        f.InventoryTaken(
            key="EpisodeActor/inventory//0",
            as_of_ns=1,
            source="api",
            pods=(Pod(uid="0b1c", namespace="shop", name="web-0", owner="StatefulSet/web"),),
        ),
        f.MountsRead(key="NodeStatusActor/mounts//0", mounted=(("0b1c", "data"), ("", "/var/lib/kubelet/x"))),
        f.DaemonStarted(
            version="1", pid=1, mode="api", node="node-7", boot_id="b", userspace_id="b", preparing=False
        ),
        PostEvent(key="k", kind="StatefulSet", namespace="shop", name="web", reason="R", message="for 10 s"),
        PublishCertificate(key="k", safe=False, running=("0b1c",), mounted=(("0b1c", "data"),)),
        PostEvent(key="k", kind="Node", name="node-7", reason="R", message=""),
    )
    pod = taken.pods[0]
    assert pod.owner == f"StatefulSet/{event.name}" == "StatefulSet/owner~1"
    assert mounts.mounted == ((pod.uid, "volume~1"), ("", "/path~1"))
    assert certificate.running == (pod.uid,)
    assert certificate.mounted == ((pod.uid, "volume~1"),)
    assert of_node.name == node.node != "node-7"


# --- where it comes from -----------------------------------------------------------------------


def test_the_first_record_names_the_original() -> None:
    """Its id, its last record with its hash, and the trace of each shutdown."""
    original = History([Memory(shutdown.write().files)])
    first = next(redacted(original).records()).event
    assert isinstance(first, Checkpoint)
    assert first.redacted is not None
    *_, last = original.raw()
    assert (first.redacted.journal_id, first.redacted.head) == (original.journal_id.hex(), last.hash.hex())
    assert first.redacted.head_seq == last.seq
    assert first.redacted.trace_ids == {each.first_seq: each.trace_id for each in episodes(original)}


def test_the_same_journal_makes_the_same_bytes() -> None:
    """Nothing of the moment or of chance is in it, its id included."""
    original = History([Memory(shutdown.write().files)])
    assert list(redact(original, Pseudonyms())) == list(redact(original, Pseudonyms()))


def test_what_diverges_is_not_redacted() -> None:
    """Decisions that do not follow from the facts cannot be made again from others."""
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
