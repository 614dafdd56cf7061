"""The portable core: journals by object name in any order, false and unreadable objects."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from ebbtide.events.base import Stamp
from ebbtide.fleet import fleet_journals
from ebbtide.fleet.fleet_journals import (
    BadUrl,
    StoreFailed,
    bins,
    cure_text,
    journals,
    plan,
    store,
    store_url,
)
from ebbtide.fleet.fleet_rows import Options, parts
from ebbtide.fleet.fleet_verbs import VERIFY, ask_journals
from tests.fleet.conftest import ALIKE
from tests.fleet.nodes import a_node, damage, every_row, failing_rows, rows, shipped, shipped_redacted, tear
from tests.journals import IDENTITY, SHUTDOWN, Journal, records_of, write_files


def test_both_layouts_give_the_same_rows(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        shipped(a_node(tmp_path / "folders", seed), tmp_path / "store")
    folders, store = (every_row(journals(str(tmp_path / each))) for each in ("folders", "store"))
    for table in ("shutdowns", "pods"):
        assert folders[table] == store[table] != []
    assert {(row["state"], row["cluster"]) for row in store["journals"]} == {("intact", "c")}


def test_the_order_of_a_listing_is_nothing(tmp_path: Path) -> None:
    """The plan depends only on the content; a part of it is small and can be sent."""
    for seed in (1, 2, 3):
        a_node(tmp_path, seed)
    url = store_url(str(tmp_path))
    listed = [info for chunk in obstore.list(store(url)) for info in chunk]
    refs = journals(str(tmp_path))
    assert plan(url, listed) == plan(url, listed[::-1]) == refs
    assert pickle.loads(pickle.dumps(refs)) == refs


def test_copies_count_once(tmp_path: Path) -> None:
    """In plain folders; a node's prefix is an identity of its own, whatever it holds."""
    node = a_node(tmp_path, 1)
    shutil.copytree(node, tmp_path / "copy")
    assert len(journals(str(tmp_path))) == len(rows(tmp_path, "shutdowns")) == 1
    shipped(node, tmp_path, "one")
    shipped(node, tmp_path, "two")
    assert len(journals(str(tmp_path))) == len(rows(tmp_path, "shutdowns")) == 3
    assert [row["state"] for row in rows(tmp_path, "journals")] == ["intact"] * 3


@pytest.mark.parametrize("lie", ["bytes", "node", "not-redacted", "redacted-bytes", "redacted-journal"])
def test_a_name_that_lies_is_a_verdict(tmp_path: Path, lie: str) -> None:
    """The object is not used, and counts with the node from its path; other journals are read."""
    node, other = (a_node(tmp_path / "nodes", seed) for seed in (1, 2))
    store, ship = tmp_path / "store", shipped_redacted if lie.startswith("redacted") else shipped
    for path in shipped(node, store, name="other") if lie == "node" else ship(node, store):
        if lie.endswith("bytes"):
            path.write_bytes(path.read_bytes()[:-1] + b"!")
        elif lie.endswith("journal"):
            path.parent.rename(path.parent.with_name(f"journal={path.name[11:19]:0<32}"))
        elif lie == "not-redacted":
            path.rename(path.with_suffix(".redacted.ebj"))
    sizes = [path.stat().st_size for path in store.rglob("*.ebj")]
    ship(other, store)
    found = every_row(journals(str(store)))
    assert {(row["node"], row["state"]) for row in found["journals"]} == {
        ("other" if lie == "node" else "node-1", "corrupt"),
        ("node-2", "intact"),
    }
    assert {row["node"] for row in found["shutdowns"]} == {"node-2"}
    corrupt = [row for row in found["journals"] if row["state"] == "corrupt"]
    assert sum(row["segments"] for row in corrupt) == len(sizes)
    assert (sum(row["bytes"] for row in corrupt), corrupt[0]["cluster"]) == (sum(sizes), "c")
    said = " ".join(each.error for each in ask_journals(VERIFY, journals(str(store))))
    assert ("its bytes do not match the hash in its name" in said) == lie.endswith("bytes")


def test_an_empty_object_is_none_of_its_name(tmp_path: Path) -> None:
    """Its bytes do not match its name; in a folder, an unstarted segment is ignored."""
    made = shipped(a_node(tmp_path / "nodes", 1), tmp_path / "store")
    for path in (made[-1], made[0]):
        path.write_bytes(b"")
        (row,) = rows(tmp_path / "store", "journals")
        assert (row["node"], row["state"], row["segments"]) == ("node-1", "corrupt", len(made))
    node = a_node(tmp_path / "plain", 2)
    (node / f"0000000009-{min(node.iterdir()).name[11:19]}.ebj").write_bytes(b"")
    (row,) = rows(tmp_path / "plain", "journals")
    assert row["state"] == "intact"


def test_one_that_cannot_be_read_is_not_blamed_on_another(tmp_path: Path) -> None:
    """With a common ID prefix, the paths decide: one is read, the other named."""
    made = {seed: shipped(a_node(tmp_path / "nodes", seed), tmp_path / "store") for seed in ALIKE}
    refs = journals(str(tmp_path / "store"))
    assert len(refs) == 2
    lost, whole = ALIKE
    for path in made[lost]:
        path.unlink()
    found = {row["node"]: row["state"] for row in every_row(refs)["journals"]}
    assert found == {f"node-{lost}": "unread", f"node-{whole}": "intact"}


def test_a_redacted_segment_in_a_folder_has_its_pseudonym(tmp_path: Path) -> None:
    """No other source has the node."""
    first, _ = shipped_redacted(a_node(tmp_path / "nodes", 1), tmp_path / "store")
    (tmp_path / "folder").mkdir()
    first.rename(tmp_path / "folder" / first.name)
    assert [row["node"] for row in rows(tmp_path / "folder", "shutdowns")] == ["node~1"]
    assert [row["node"] for row in rows(tmp_path / "folder", "journals")] == ["node~1"]


def test_one_pass_reads_each_object_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte is fetched twice, and an unreadable journal has a row too."""
    torn, corrupt, gone, _ = (a_node(tmp_path, seed) for seed in (1, 2, 3, 4))
    tear(torn)
    damage(corrupt)
    refs = journals(str(tmp_path))
    shutil.rmtree(gone)
    fetched = []
    get_range = obstore.get_range

    def counting(store: Any, path: str, **at: Any) -> Any:
        fetched.append(path)
        return get_range(store, path, **at)

    monkeypatch.setattr(obstore, "get_range", counting)
    found = every_row(refs)["journals"]
    assert [(row["state"], row["exit_code"]) for row in found] == [
        *(("torn", 4), ("corrupt", 5), ("unread", 2), ("intact", 0))
    ]
    assert {*fetched} | {file.path for file in refs[2].files} == {
        file.path for ref in refs for file in ref.files
    }
    assert len(fetched) == len(set(fetched))


def test_rows_that_cannot_be_made_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an unforeseen error the other rows exist, and ``journals`` names the missing ones."""
    for seed in (1, 2):
        a_node(tmp_path, seed)
    failing_rows(monkeypatch, "waves")
    found = every_row(journals(str(tmp_path)))
    assert {row["node"] for row in found["waves"]} == {"node-2"}
    assert {row["node"] for row in found["pods"]} == {"node-1", "node-2"}
    told = {row["node"]: (row["state"], row["exit_code"], row["error"]) for row in found["journals"]}
    assert told == {
        "node-1": ("intact", 1, "waves: ZeroDivisionError: a new kind of row"),
        "node-2": ("intact", 0, ""),
    }


def test_a_store_that_stops_answering_is_no_short_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a partial read the journal is unread, not torn or intact."""
    a_node(tmp_path, 1)
    refs = journals(str(tmp_path))
    monkeypatch.setattr("ebbtide.fleet.fleet_journals.RANGE_BYTES", 5000)
    get_range = obstore.get_range

    def failing(store: Any, path: str, *, start: int, end: int) -> Any:
        if start > 5000:
            raise obstore.exceptions.GenericError("503 slow down")
        return get_range(store, path, start=start, end=end)

    monkeypatch.setattr(obstore, "get_range", failing)
    (told,) = every_row(refs)["journals"]
    assert (told["state"], told["exit_code"]) == ("unread", 2)
    assert "503 slow down" in told["error"]


# --- stores, and what lies in them


def test_a_reader_without_a_client_says_nothing_of_journals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables and verbs raise: an engine retries elsewhere, and no journal counts as unread."""
    a_node(tmp_path, 1)
    refs = journals(str(tmp_path))
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ImportError):
        every_row(refs)
    with pytest.raises(ImportError):
        ask_journals(VERIFY, refs)


def test_ranges_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_node(tmp_path, 1)
    whole = every_row(journals(str(tmp_path)))
    for length in (4097, 70_001):
        monkeypatch.setattr("ebbtide.fleet.fleet_journals.RANGE_BYTES", length)
        assert every_row(journals(str(tmp_path))) == whole


def test_a_store_without_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in (1, 2):
        shipped(a_node(tmp_path / "nodes", seed), tmp_path / "store")
    memory = MemoryStore()
    for path in (tmp_path / "store").rglob("*.ebj"):
        obstore.put(memory, str(path.relative_to(tmp_path / "store")), path.read_bytes())
    monkeypatch.setattr("ebbtide.fleet.fleet_journals.store", lambda url: memory)
    there = every_row(journals("s3://bucket"))
    monkeypatch.undo()
    here = every_row(journals(str(tmp_path / "store")))
    for row in (*there["journals"], *here["journals"]):
        del row["location"]
    assert there == here


def test_a_node_that_was_renamed(tmp_path: Path) -> None:
    """In its folder it has one journal. Shipped it is two nodes, and the rest is named as a rest."""
    records = records_of(SHUTDOWN)
    half = next(at for at, record in enumerate(records) if at > len(records) // 2 and record.last) + 1
    begins = [Stamp(records[at].mono_ns, records[at].wall_ns) for at in (0, half)]
    made = Journal().begin(begins[0]).add(*records[:half])
    made.restart(IDENTITY._replace(node="new-name")).begin(begins[1]).add(*records[half:])
    node = write_files(tmp_path / "node", made.files)
    shipped(node, tmp_path / "store")
    found = {row["node"]: row["state"] for row in rows(tmp_path / "store", "journals")}
    assert found == {"node-1": "intact", "new-name": "corrupt"}
    assert [row["state"] for row in rows(node, "journals")] == ["intact"]
    assert len(rows(tmp_path / "store", "shutdowns")) == len(rows(node, "shutdowns")) == 1


def test_names_with_signs_that_urls_quote(tmp_path: Path) -> None:
    place = tmp_path / "50% of #1 ?"
    shipped(a_node(tmp_path / "nodes", 1), place, cluster="a%2Fb c")
    (told,) = rows(place, "journals")
    assert (told["state"], told["cluster"]) == ("intact", "a%2Fb c")
    assert Path(told["location"]).is_dir()
    assert Path(told["location"]).is_relative_to(place)


@pytest.mark.parametrize(
    "url, said",
    [
        ("nowhere", "nowhere is no folder: name one"),
        ("file:///no/such/folder", "/no/such/folder is no folder: name one"),
        ("", "the name is empty"),
        ("file://nowhere", "file://nowhere is no folder"),
        ("http://localhost/x", "write s3://BUCKET/PREFIX, and the server's address into AWS_ENDPOINT_URL"),
        ("gopher://bucket/x", "name a folder, or a URL such as s3://BUCKET/PREFIX"),
        ("s3://", "name a folder, or a URL such as s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "holds credentials: leave them out"),
        ("s3://b/x?X-Amz-Signature=secret", "holds credentials: leave them out"),
        ("az://b?sig=secret", "holds credentials: leave them out"),
    ],
)
def test_what_is_no_store_is_refused(url: str, said: str) -> None:
    with pytest.raises(BadUrl, match=said) as refused:
        journals(url)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_store_that_cannot_be_listed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(store: Any, **more: Any) -> AsyncIterator[Any]:
        raise obstore.exceptions.PermissionDeniedError("403 Forbidden\n\nDebug source:\nS3 { retries: 10 }")
        yield

    monkeypatch.setattr(obstore, "list", failing)
    monkeypatch.setattr(fleet_journals, "store", lambda url: None)
    with pytest.raises(StoreFailed) as failed:
        journals("s3://bucket/v1")
    assert str(failed.value) == f"s3://bucket/v1 cannot be listed{cure_text('s3://')}: 403 Forbidden"


def test_links_and_pipes_end_no_listing(tmp_path: Path) -> None:
    """A link to itself is named; links to links are followed once, not two to the power of thirty times."""
    whole = a_node(tmp_path, 1)
    (tmp_path / "self.ebj").symlink_to("self.ebj")
    os.mkfifo(tmp_path / min(whole.iterdir()).name)
    for number in range(30):
        (tmp_path / f"step-{number}").mkdir()
        for name in ("a", "b") if number < 29 else ():
            (tmp_path / f"step-{number}" / name).symlink_to(f"../step-{number + 1}")
    refs = journals(str(tmp_path))
    assert [(ref.folder, ref.error) for ref in refs if ref.error] == [
        ("self.ebj", "it cannot be read: Too many levels of symbolic links")
    ]
    assert [len(ref.files) for ref in refs if ref.files] == [len(list(whole.iterdir()))]


def test_a_folder_that_cannot_be_listed_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of links, and a folder without the right to read. The others are read, by the same names."""
    for seed, name in enumerate(("a", "z")):
        a_node(tmp_path / name, seed)
    whole = journals(str(tmp_path))
    for path, to in (("a/loop", ".."), ("m/nowhere", "gone"), ("a/also", "../z")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).symlink_to(to)
    (tmp_path / "shut").mkdir()
    listed = os.scandir

    def refusing(path: str) -> Any:
        if path == str(tmp_path / "shut"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refusing)
    refs = journals(str(tmp_path))
    assert [(ref.folder, ref.error) for ref in refs if ref.error] == [
        ("a/loop", "it is a symbolic link to a folder around it"),
        ("shut", "it cannot be read: Permission denied"),
    ]
    assert {file.path for ref in whole for file in ref.files} <= {
        file.path for ref in refs for file in ref.files
    }
    found = ask_journals(VERIFY, refs)
    assert [each.state for each in found] == ["intact", "unread", "intact", "unread"]
    assert found[1].location == str(tmp_path / "a/loop")
    assert [row["state"] for row in every_row(refs)["journals"]] == ["intact", "unread", "intact", "unread"]
    assert len(parts(Options(str(tmp_path)), {"another"}, 1 << 62)) == 1


def test_bins_are_parts_in_order(tmp_path: Path) -> None:
    """Small journals together; one larger than a bin gets its own."""
    for seed in range(6):
        a_node(tmp_path, seed)
    refs = journals(str(tmp_path))
    for bytes_max, count_max in ((1, 500), (1 << 30, 4), (refs[0].bytes * 2, 500)):
        made = bins(refs, bytes_max, count_max)
        assert [ref for each in made for ref in each] == refs
        assert all(len(each) == 1 or sum(ref.bytes for ref in each) <= bytes_max for each in made)
        assert max(map(len, made)) <= count_max
