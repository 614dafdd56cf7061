"""A node's stolen credentials: whatever they put below its prefix, another node's nights stay as they are."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import obstore
import pytest
import trio
from obstore.store import MemoryStore, S3Store

from ebbtide.cli.common.guard import CORRUPT, DONE, TORN, WRONG
from ebbtide.events.base import Stamp
from ebbtide.events.codec import encode_boundary
from ebbtide.events.segment import Header, Identity, Link, WriterStart, encode_header
from ebbtide.fleet import fleet_journals
from ebbtide.fleet.fleet_journals import journals, plan, store
from ebbtide.fleet.fleet_rows import table_batches
from ebbtide.fleet.fleet_verbs import VERIFY, ask_journals, evidence_of
from ebbtide.fleet.lake import Lake
from tests.beds.rootfs import Unavailable
from tests.commands import Run
from tests.fleet.conftest import Nodes
from tests.fleet.nodes import every_row, shipped
from tests.fleet.test_lake import ordered, there
from tests.journals import IDENTITY, SHUTDOWN, Journal, records_of
from tests.store.gateway import BUCKET, NODE, ROOT, Request, faking, gateway, reply

VICTIM, EVIL, CLUSTER = "node-1", "evil", "c"
#: All that the stolen credentials may write to.
PREFIX = f"v1/cluster={CLUSTER}/node={EVIL}"
#: The server has no TLS.
PLAIN: Any = {"allow_http": True}


def named(journal: str, data: bytes, ending: str = ".ebj", number: int = 9) -> str:
    """As a shipped object's."""
    return f"{number:010d}-{journal[:8]}-{sha256(data).hexdigest()}{ending}"


def segment(journal: str, *, node: str = EVIL, inner: str = "") -> bytes:
    """With a shutdown, and no link to an earlier segment. ``inner``: the node of a header inside of it."""
    identity = IDENTITY._replace(node=node)
    made = Journal(identity, WriterStart(bytes.fromhex(journal), Link(), 9)).begin(Stamp(0, 0))
    end = made.chain.end
    if inner:
        header = encode_header(
            Header(made.chain.journal_id, 9, 0, 0, False, end, Identity(inner, *identity[1:]))
        )
        boundary = encode_boundary(0, header)
        made.data(9).extend(boundary)
        made.chain.end = Link(9, end.offset + len(boundary), 0, header[-32:])
    return bytes(made.add(*records_of(SHUTDOWN)).data(9))


Forged = dict[str, bytes]


def shipped_as(journal: str, data: bytes, *, folder: str = "", ending: str = ".ebj") -> Forged:
    return {f"journal={folder or journal}/{named(journal, data, ending)}": data}


def nested(journal: str) -> Forged:
    (made,) = shipped_as(journal, segment(journal, node=VICTIM)).items()
    return {f"v1/cluster={CLUSTER}/node={VICTIM}/{made[0]}": made[1]}


#: The verbs' worst exit code, and the objects: 0 for another node's journal without a claim on the victim.
ATTACKS: dict[str, tuple[int, Callable[[str], Forged]]] = {
    "nested": (WRONG, nested),
    "plain": (WRONG, lambda it: {f"old/{9:010d}-{it[:8]}.ebj": segment(it, node=VICTIM)}),
    "unhashed": (WRONG, lambda it: {f"journal={it}/{9:010d}-{it[:8]}.ebj": segment(it)}),
    "deeper": (WRONG, lambda it: shipped_as(it, segment(it), folder=f"{it}/more")),
    "other-digits": (WRONG, lambda it: shipped_as(it, segment(it), folder="0" * 32)),
    "anything": (WRONG, lambda it: {f"journal={it}/{9:010d}.txt": b"a note"}),
    "others-header": (CORRUPT, lambda it: shipped_as(it, segment(it, node=VICTIM))),
    "no-header": (TORN, lambda it: shipped_as(it, bytes(200) + segment(it)[200:])),
    "same-id": (DONE, lambda it: shipped_as(it, segment(it))),
    "same-id-redacted": (DONE, lambda it: shipped_as(it, segment(it, node="node~1"), ending=".redacted.ebj")),
    "inner-header": (DONE, lambda it: shipped_as(it, segment(it, inner=VICTIM))),
}
attacks = pytest.mark.parametrize("attack", ATTACKS)


def of_victim(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Its rows; ``journals`` only of its cluster."""
    told = ordered(found)
    return {
        name: [row for row in rows if row["node"] == VICTIM and row.get("cluster", CLUSTER) == CLUSTER]
        for name, rows in told.items()
    }


@pytest.fixture
def attacked(nodes: Nodes, tmp_path: Path) -> tuple[Path, str]:
    """A store with the victim's objects alone, and the id of its journal."""
    (first, *_) = shipped(nodes.folder / VICTIM, tmp_path / "store", CLUSTER)
    return tmp_path / "store", first.parent.name.partition("=")[2]


def put(root: Path, forged: Forged, prefix: str = PREFIX) -> None:
    for name, data in forged.items():
        path = root / prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@attacks
def test_no_object_speaks_for_another_node(
    attack: str, attacked: tuple[Path, str], run: Run, tmp_path: Path
) -> None:
    """The victim has its rows, verdict and evidence, and no others; a refused object is named."""
    root, journal = attacked
    url = str(root)
    before = of_victim(every_row(journals(url)))
    evidence = pickle.dumps(evidence_of(journals(url), by_node=True)[0][VICTIM])
    assert before["shutdowns"]
    code, forge = ATTACKS[attack]
    forged = forge(journal)
    put(root, forged)
    assert of_victim(every_row(journals(url))) == before
    assert pickle.dumps(evidence_of(journals(url), by_node=True)[0][VICTIM]) == evidence
    told = [each for each in ask_journals(VERIFY, journals(url)) if each.node == VICTIM]
    assert [(each.state, each.cluster) for each in told] == [("intact", CLUSTER)]
    for verb in ("verify", "tables"):
        to = ("--to", tmp_path / "tables") if verb == "tables" else ()
        ran = run("fleet", verb, "--journals", url, "--jobs", "1", *to)
        assert ran.code == code
        said = " ".join((ran.out + ran.err).split())
        assert ran.code != WRONG or all(name.rpartition("/")[2] in said.replace(" ", "") for name in forged)


@attacks
@pytest.mark.parametrize("first", [True, False])
def test_no_row_of_a_lake_hides_another_nodes(
    attack: str, attacked: tuple[Path, str], tmp_path: Path, first: bool
) -> None:
    """Whichever came first. Another cluster's node of that name ships the same id too."""
    root, journal = attacked
    before = of_victim(every_row(journals(str(root)), settled=True))
    lake = Lake(str(tmp_path / "lake"))
    lots = [root, tmp_path / "forged"]
    put(lots[1], ATTACKS[attack][1](journal))
    if attack == "nested":
        put(lots[1], ATTACKS["same-id"][1](journal), f"v1/cluster=other/node={VICTIM}")
    for lot in lots[::-1] if first else lots:
        refs = lake.new_of(journals(str(lot)))
        list(lake.add([table_batches(refs, settled=True)]))
    assert of_victim(there(tmp_path / "lake")) == before
    assert lake.new_of(journals(str(root))) == []


@pytest.mark.parametrize("ending", ["/x", "../node=node-1/x", "a\nb", "\x1b[2J"])
async def test_a_name_that_ends_the_clients_list(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its own node is refused."""
    good = f"v1/cluster=c/node={VICTIM}/journal={'0' * 32}/{9:010d}-{'0' * 8}-{'0' * 64}.ebj"
    keys = [f"{PREFIX}/{ending}", good]

    def answer(request: Request) -> bytes:
        query = parse_qs(urlsplit(request.target).query)
        prefix, folders, made = query.get("prefix", [""])[0], set[str](), ""
        for key in (each for each in keys if each.startswith(prefix)):
            folder, slash, _ = key.removeprefix(prefix).partition("/")
            if slash and "delimiter" in query:
                folders.add(f"{prefix}{folder}/")
                continue
            words = {
                "Key": escape(key),
                "LastModified": "2026-01-01T00:00:00.000Z",
                "Size": "9",
                "ETag": '"0"',
            }
            made += f"<Contents>{''.join(f'<{at}>{word}</{at}>' for at, word in words.items())}</Contents>"
        made += "".join(f"<CommonPrefixes><Prefix>{each}</Prefix></CommonPrefixes>" for each in folders)
        return reply(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{made}</ListBucketResult>".encode()
        )

    async with faking(answer) as fake:
        for name, value in fake.environ().items():
            monkeypatch.setenv(name, value)
        refs = await trio.to_thread.run_sync(journals, f"s3://forged-{fake.port}")
    assert [(each.folder, each.error[:7], each.key and each.key.node) for each in refs] == [
        (PREFIX, "refused", None),
        (good.rpartition("/")[0], "", VICTIM),
    ]


def test_a_path_is_parsed_from_the_root() -> None:
    """Of the URL if it is a part of a store; dots, doubled slashes and other spellings are no way out."""
    name = f"{9:010d}-{'0' * 8}-{'0' * 64}.ebj"
    good = f"cluster=c/node=evil/journal={'0' * 32}/{name}"

    def nodes(url: str, path: str) -> list[str]:
        listed = {"path": path, "size": 1, "last_modified": fleet_journals.utc(0)}
        return [ref.key.node if ref.key else ref.error[:7] for ref in plan(url, [listed])]

    victims = f"cluster=c/node={VICTIM}/journal={'0' * 32}/{name}"
    assert nodes("s3://b/pre", f"v1/{good}") == nodes("s3://b", f"pre/v1/{good}") == [EVIL]
    assert nodes("s3://b/pre/v1", good) == nodes("s3://b/v1/cluster=c/", good[10:]) == [EVIL]
    for more in ("v1/", "../", "./", "/", "x/v1/"):
        assert nodes("s3://b", f"v1/cluster=c/node=evil/{more}{victims}") == ["refused"]
        assert nodes(f"s3://b/{PREFIX}", f"{more}{victims}") == ["refused"]
    for spelled in ("node=%65vil", "node=", "node=e/vil", "node=evil/node=node-1", "Node=evil"):
        assert nodes("s3://b", f"v1/{good.replace('node=evil', spelled)}") == ["refused"]
    # A plain folder.
    assert nodes("s3://b/v1x", f"a/v1.d/{name}") == [""]


def test_one_node_cannot_fill_the_plan(nodes: Nodes, tmp_path: Path) -> None:
    """Too many objects, or one that is too large, cost its node alone."""
    root = tmp_path / "store"
    shipped(nodes.folder / VICTIM, root, CLUSTER)
    made = shipped(nodes.folder / "node-2", root, CLUSTER)
    with patch.object(fleet_journals, "NODE_OBJECTS_MAX", len(made) - 1):
        told = {each.node or each.error[:7]: each.state for each in ask_journals(VERIFY, journals(str(root)))}
    assert told[VICTIM] == "intact"
    assert told["refused"] == "unread"
    with (
        patch.object(fleet_journals, "OBJECT_BYTES_MAX", 1),
        patch.object(fleet_journals, "REFUSED_SHOWN_MAX", 1),
    ):
        assert [ref.files for ref in journals(str(root))] == [(), ()]


def test_one_node_cannot_fill_the_list() -> None:
    """Millions of objects would take each verb hours."""
    memory = MemoryStore()
    for node, count in (("a", 30), ("a-1", 1), ("a0", 1), ("b%2F", 30), ("c", 1)):
        for number in range(count):
            obstore.put(memory, f"pre/v1/cluster=c/node={node}/journal=j/{number}", b"x")
    found = Counter[str]()
    with (
        patch.object(fleet_journals, "store", lambda url: memory),
        patch.object(fleet_journals, "NODE_OBJECTS_MAX", 10),
    ):
        found.update(each["path"].split("/")[3] for each in fleet_journals.listed("s3://b"))
    assert found == {"node=a-1": 1, "node=a": 11, "node=a0": 1, "node=b%2F": 11, "node=c": 1}


@pytest.mark.backend
def test_on_a_real_store(nodes: Nodes, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the right to put below its own prefix alone: the server takes every object, the verbs none."""
    made = shipped(nodes.folder / VICTIM, tmp_path / "store", CLUSTER)
    journal = made[0].parent.name.partition("=")[2]
    with ExitStack() as stack:
        try:
            s3 = stack.enter_context(gateway(tmp_path / "s3", f"journals/{PREFIX}"))
        except Unavailable as error:
            pytest.skip(str(error))
        monkeypatch.setenv("HOME", "/nonexistent")

        def puts(who: tuple[str, str], name: str, data: bytes) -> None:
            to = S3Store(BUCKET, prefix="journals", config=s3.environ(who), client_options=PLAIN)
            obstore.put(to, name, data)

        for path in made:
            puts(ROOT, str(path.relative_to(tmp_path / "store")), path.read_bytes())
        for name, value in s3.environ(ROOT).items():
            monkeypatch.setenv(name, value)
        stack.callback(store.cache_clear)
        url = f"s3://{BUCKET}/journals"
        before = of_victim(every_row(journals(url)))
        with pytest.raises(obstore.exceptions.BaseError):
            puts(NODE, f"v1/cluster={CLUSTER}/node={VICTIM}/x", b"x")
        refused = 0
        for code, forge in ATTACKS.values():
            for name, data in forge(journal).items():
                puts(NODE, f"{PREFIX}/{name}", data)
                refused += code == WRONG
        found = every_row(journals(url))
        assert of_victim(found) == before
        assert sum("refused" in row["error"] for row in found["journals"]) == refused
        ran = run(
            "fleet", "ingest", "--journals", url, "--lake", tmp_path / "lake", "--jobs", "1", "-o", "json"
        )
        assert ran.code == CORRUPT
        assert json.loads(ran.out)["journals"] == len(journals(url))
        assert of_victim(there(tmp_path / "lake"))["shutdowns"]
