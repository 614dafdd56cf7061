"""Closed segments reach a store once each, whatever the store does, and none is claimed that did not."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
import trio
import trio.testing

from ebbtide.events.catalog import PEEK_BYTES, DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.delivery.backoff import Backoff
from ebbtide.otel.delivery.destination import EXIT_DONE, EXIT_KEPT, encode_line
from ebbtide.otel.metrics import ShippingState
from ebbtide.replay.verify import verify
from ebbtide.shipping import shipper as shippers
from ebbtide.shipping.cursor import Shipped, backlog, closed_segments, load_shipped, save_shipped
from ebbtide.shipping.destination import (
    BadStore,
    Store,
    checked_cluster,
    checked_url,
    node_prefix,
    object_key,
)
from ebbtide.shipping.messages import ShipJob, ShipReport
from ebbtide.shipping.shipper import Shipper
from ebbtide.shipping.store import Again, Answer, ObjectStore, Present, Refused, Stored
from tests.beds.rootfs import Unavailable
from tests.store.gateway import BUCKET, READER, TAKEN, Gateway, faking, gateway, reply
from tests.store.gateway import NODE as NODE_USER
from tests.store.segments import JOURNAL_ID, NODE, lay_out_segments
from tests.store.signing import signed_put

STORE = Store(url=f"s3://{BUCKET}/pre", cluster="prod")
REDACTED = Store(url=STORE.url, cluster="prod", redact=True)
KEY = "v1/cluster=c/node=n/journal=00/x.ebj"


class Said:
    """A daemon that hears lines, and how far the shipping is."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.state = ShippingState()
        self.recorded: list[int] = []

    def send(self, report: ShipReport) -> None:
        self.state = report.state or self.state
        self.recorded += [report.recorded] if report.recorded else []
        self.lines += [report.text] if report.text else []


def shipper_of(folder: Path, putter: object, store: Store = STORE) -> tuple[Shipper, Said]:
    said = Said()
    made = Shipper(
        [DirectorySource(folder)],
        store,
        putter,  # type: ignore[arg-type]
        said,
        lambda shipped: save_shipped(folder, shipped),
        lambda: 1,
        Backoff(lambda: 1.0),
    )
    return made, said


class Script:
    """Answers in order, the last one for ever; ``keys`` are what was offered."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.keys = list(answers), list[str]()

    def put(self, key: str, data: bytes) -> Answer:
        self.keys.append(key)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


# --- names and places ------------------------------------------------------------------------------


def test_a_name_says_whose_bytes_they_are() -> None:
    """Cluster and node are encoded, so that no name of theirs leads elsewhere."""
    key = object_key("a/b", "n 1%", bytes(16), "0000000001-00000000.ebj", "ff" * 32, False)
    where = f"v1/cluster=a%2Fb/node=n%201%25/journal={'0' * 32}"
    assert key == f"{where}/0000000001-00000000-{'ff' * 32}.ebj"
    assert object_key("c", "n", bytes(16), "1.ebj", "f", True).endswith("1-f.redacted.ebj")


@pytest.mark.parametrize(
    "url, words",
    [
        ("s3://key:geheim@bucket/p", "credentials"),
        ("s3://bucket/p?token=geheim", "credentials"),
        ("http://bucket/geheim", "such as s3://"),
        ("s3:///geheim", "such as s3://"),
        ("file://host/geheim", "such as s3://"),
        ("s3://bucket/a/../geheim", "prefix"),
        ("s3://[geheim", "such as"),
        (f"s3://bucket/{'ü' * 50}", "256 bytes"),
    ],
)
def test_a_bad_url_is_refused_without_being_repeated(url: str, words: str) -> None:
    """It may hold a password."""
    with pytest.raises(BadStore) as error:
        checked_url(url)
    assert words in str(error.value)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "ü" * 34])
def test_a_cluster_fits_in_a_key(name: str) -> None:
    """And in a file's name: 255 bytes of it, percent-encoded and with what stands around it."""
    with pytest.raises(BadStore):
        checked_cluster(name)


def test_closed_is_what_a_later_segment_follows(tmp_path: Path) -> None:
    """The newest may still be written to; one whose header is in the making closes nothing."""
    names = lay_out_segments(tmp_path, 3)
    assert [each.name for each in closed_segments([DirectorySource(tmp_path)])] == names[:2]
    (tmp_path / f"0000000004-{JOURNAL_ID.hex()[:8]}.ebj").write_bytes(b"EBB")
    assert [each.name for each in closed_segments([DirectorySource(tmp_path)])] == names[:2]


# --- what an answer means --------------------------------------------------------------------------

ERROR = b"<Error><Code>%s</Code></Error>"
ANSWERS: list[tuple[bytes | None, type, str]] = [
    (TAKEN, Stored, ""),
    # For another object, or for nothing that was kept: with a right to write alone nobody can tell.
    (reply(200, ETag='"of another"'), Stored, ""),
    (reply(412), Present, ""),
    (reply(409, ERROR % b"ConditionalRequestConflict"), Again, "HTTP 409: ConditionalRequestConflict"),
    (reply(503, ERROR % b"SlowDown"), Again, "HTTP 503: SlowDown"),
    (reply(429), Again, "HTTP 429"),
    (reply(500), Again, "HTTP 500"),
    (reply(403, ERROR % b"AccessDenied"), Refused, "HTTP 403: AccessDenied"),
    (reply(404, ERROR % b"NoSuchBucket"), Refused, "HTTP 404: NoSuchBucket"),
    (reply(400, ERROR % b"BadDigest"), Refused, "HTTP 400: BadDigest"),
    (reply(413), Refused, "HTTP 413"),
    (reply(304), Refused, "HTTP 304"),
    (reply(301, Location="http://127.0.0.1:1/"), Refused, "HTTP 301"),
    (reply(200, b"<html>welcome</html>", Content_Type="text/html"), Again, "the answer is not an object"),
    (b"HTTP/1.1 200 OK\r\nETa", Again, "Generic S3 error: HTTP error"),
    (b"nonsense\r\n\r\n", Again, "Generic S3 error: HTTP error"),
    (b"", Again, "Generic S3 error: HTTP error"),
    (None, Again, "Generic S3 error: HTTP error"),
]


@pytest.mark.parametrize("answer, kind, reason", ANSWERS)
async def test_each_answer_means_what_it_says(answer: bytes | None, kind: type, reason: str) -> None:
    """Through the real client: only a whole answer of an object store is one, and nothing is tried twice."""
    async with faking(lambda request: answer) as fake:
        store = ObjectStore(STORE, put_seconds=0.5)
        found = await trio.to_thread.run_sync(store.put, KEY, b"data")
        assert isinstance(found, kind), found
        assert getattr(found, "reason", "").startswith(reason)
        assert len(fake.got) == 1
        alone = isinstance(found, Refused) and found.alone
        assert alone == any(word in reason for word in ("BadDigest", "413"))


async def test_a_request_is_conditional_and_has_its_checksum() -> None:
    """The store verifies it, and takes nothing where something is."""
    async with faking(lambda request: TAKEN) as fake:
        await trio.to_thread.run_sync(ObjectStore(STORE).put, KEY, b"data")
    (request,) = fake.got
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-checksum-sha256"] == "Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc="
    assert "nodesecret" not in str(request)


async def test_a_dead_store_is_no_answer() -> None:
    """Nothing listens there."""
    async with faking(lambda request: TAKEN) as fake:
        pass
    with patch.dict(os.environ, fake.environ()):
        found = await trio.to_thread.run_sync(ObjectStore(STORE).put, KEY, b"data")
    assert isinstance(found, Again)


# --- the shipper -----------------------------------------------------------------------------------


async def test_each_closed_segment_is_offered_once_oldest_first(tmp_path: Path) -> None:
    """And not again by the next process, which knows the cursor."""
    names = lay_out_segments(tmp_path, 4)
    script = Script(Stored())
    shipper, _ = shipper_of(tmp_path, script)
    assert await shipper.run(load_shipped(tmp_path, STORE)) == ""
    shas = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names[:3]]
    wanted = [object_key("prod", NODE, JOURNAL_ID, *pair, False) for pair in zip(names, shas, strict=False)]
    assert script.keys == wanted
    again, _ = shipper_of(tmp_path, script)
    assert await again.run(load_shipped(tmp_path, STORE)) == ""
    assert len(script.keys) == 3
    assert load_shipped(tmp_path, STORE).stored == 3


async def test_what_was_there_is_on_record_as_that(tmp_path: Path) -> None:
    """Nobody has read it, so nobody says that it is ours."""
    names = lay_out_segments(tmp_path, 2)
    shipper, said = shipper_of(tmp_path, Script(Present()))
    assert await shipper.run(Shipped(store=STORE.identity)) == ""
    found = load_shipped(tmp_path, STORE)
    assert (found.stored, found.present, found.segments[names[0]].outcome) == (0, 1, "present")
    assert "not verified" in said.lines[0]


async def test_a_lost_answer_ends_in_what_is_there_already(tmp_path: Path, autojump_clock: object) -> None:
    """Nobody says that it was stored, or that it was not."""
    names = lay_out_segments(tmp_path, 2)
    shipper, _ = shipper_of(tmp_path, Script(Again("connection closed"), Present()))
    assert await shipper.run(Shipped(store=STORE.identity)) == ""
    found = load_shipped(tmp_path, STORE)
    assert (found.stored, found.present, found.failed) == (0, 1, 1)
    assert found.segments[names[0]].outcome == "present"


async def test_what_is_not_answered_is_offered_again(tmp_path: Path, autojump_clock: object) -> None:
    """The same name each time; the reason is said once, and its end too."""
    lay_out_segments(tmp_path, 2)
    script = Script(Again("HTTP 503"), Again("HTTP 503"), Again("HTTP 409"), Stored())
    shipper, said = shipper_of(tmp_path, script)
    assert await shipper.run(Shipped(store=STORE.identity)) == ""
    assert len(set(script.keys)) == 1
    assert len(script.keys) == 4
    assert said.lines == ["shipping: HTTP 503", "shipping: HTTP 409", "shipping: segments arrive again"]
    assert load_shipped(tmp_path, STORE).failed == 3


async def test_a_store_that_never_answers_is_given_up_for_this_process(
    tmp_path: Path, autojump_clock: object
) -> None:
    """What is left is for the next one."""
    lay_out_segments(tmp_path, 2)
    shipper, _ = shipper_of(tmp_path, Script(Again("no answer")))
    assert await shipper.run(Shipped(store=STORE.identity)) == "no answer"
    assert trio.current_time() > 0
    assert load_shipped(tmp_path, STORE).segments == {}


@pytest.mark.parametrize("writes_failing, lost", [(0, 3), (1, 3), (9, 0)])
async def test_what_retention_removed_is_counted_once(tmp_path: Path, writes_failing: int, lost: int) -> None:
    """The daemon is told with the first cursor that has it; where none was written it hands it over again."""
    lay_out_segments(tmp_path, 3)
    shipper, said = shipper_of(tmp_path, Script(Stored()))
    failures = [OSError(errno.ENOSPC, "No space left on device")] * writes_failing

    def keep(shipped: Shipped) -> None:
        if failures:
            raise failures.pop()
        save_shipped(tmp_path, shipped)

    shipper._keep = keep
    assert await shipper.run(load_shipped(tmp_path, STORE), 3) == ""
    assert (load_shipped(tmp_path, STORE).lost, said.recorded) == (lost, [lost] if lost else [])


async def test_a_refusal_is_said_once_with_its_cure(tmp_path: Path) -> None:
    """Also over several processes: the cursor has it. What is left, and since when, is said with it."""
    names = lay_out_segments(tmp_path, 3)
    script = Script(Refused("HTTP 403", "allow s3:PutObject"))
    lines = []
    for _ in range(2):
        shipper, said = shipper_of(tmp_path, script)
        assert await shipper.run(load_shipped(tmp_path, STORE)) == "HTTP 403"
        lines += said.lines
    assert lines == ["shipping: HTTP 403: allow s3:PutObject"]
    found = load_shipped(tmp_path, STORE)
    assert (found.failed, said.state.pending) == (2, 2)
    assert said.state.reason == "HTTP 403: allow s3:PutObject"
    assert said.state.oldest_wall_ns == (tmp_path / names[0]).stat().st_mtime_ns
    assert len(script.keys) == 2


async def test_after_the_daemon_only_what_is_small_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large one waits for the next boot."""
    lay_out_segments(tmp_path, 2)
    script = Script(Stored())
    shipper, _ = shipper_of(tmp_path, script)
    shipper.leave()
    monkeypatch.setattr(shippers, "LAST_BYTES_MAX", 10)
    assert "large" in await shipper.run(Shipped(store=STORE.identity))
    assert script.keys == []
    monkeypatch.undo()
    assert await shipper.run(Shipped(store=STORE.identity)) == ""
    assert len(script.keys) == 1


# --- redaction -------------------------------------------------------------------------------------


async def test_a_redacted_segment_holds_no_name_and_verifies(tmp_path: Path) -> None:
    """Its name says that it is redacted, and has the hash of what is in it; again it is the same."""
    place = tmp_path / "journal"
    place.mkdir()
    lay_out_segments(place, 3)
    got: dict[str, bytes] = {}

    class Keeper(Script):
        def put(self, key: str, data: bytes) -> Answer:
            assert got.setdefault(key, data) == data
            return Stored()

    for _ in range(2):
        shipper, said = shipper_of(place, Keeper(Stored()), REDACTED)
        assert await shipper.run(Shipped(store=REDACTED.identity)) == ""
        assert said.lines == []
    assert len(got) == 2
    for key, data in got.items():
        name = key.rpartition("/")[2]
        assert name.endswith(f"-{hashlib.sha256(data).hexdigest()}.redacted.ebj")
        assert NODE.encode() not in data
        copy = tmp_path / name[:10]
        copy.mkdir()
        (copy / f"{name[:19]}.ebj").write_bytes(data)
        found = verify(History([DirectorySource(copy)]))
        assert found.divergence is None
        assert found.failure is None
        assert History([DirectorySource(copy)]).journal_id.hex() in key


async def test_what_cannot_be_redacted_is_never_sent(tmp_path: Path) -> None:
    """It stays on the node, on record with the reason, and does not hold the others up. Of a damaged one the
    copy would end at the damage, and pass for whole.
    """
    names = lay_out_segments(tmp_path, 4)
    data = bytearray((tmp_path / names[0]).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / names[0]).write_bytes(data)
    script = Script(Stored())
    shipper, said = shipper_of(tmp_path, script, REDACTED)
    assert await shipper.run(Shipped(store=REDACTED.identity)) == ""
    found = load_shipped(tmp_path, REDACTED)
    assert [found.segments[name].outcome for name in names[:3]] == ["unfit", "stored", "stored"]
    assert "corrupt" in found.segments[names[0]].reason
    assert len(script.keys) == 2
    assert names[0] in said.lines[0]


@pytest.mark.parametrize("error", [MemoryError("no memory"), KeyError("a bug")])
async def test_a_bug_in_redacting_keeps_no_other_segment_here(tmp_path: Path, error: Exception) -> None:
    """Nor does a lack of memory, of which the process has its own little."""
    names = lay_out_segments(tmp_path, 3)
    with patch("ebbtide.replay.redact.redact", side_effect=[error, error]):
        shipper, _ = shipper_of(tmp_path, Script(Stored()), REDACTED)
        assert await shipper.run(Shipped(store=REDACTED.identity)) == ""
    assert type(error).__name__ in load_shipped(tmp_path, REDACTED).segments[names[0]].reason


# --- the backlog, for retention --------------------------------------------------------------------


async def test_retention_is_told_of_the_first_segment_that_is_left(tmp_path: Path) -> None:
    """Another store has none of them, nor has a cursor that is damaged."""
    names, sources = lay_out_segments(tmp_path, 3), [DirectorySource(tmp_path)]
    firsts = {each.name: each.header.link.seq + 1 for each in closed_segments(sources) if each.header}

    def first_needed(store: Store = STORE) -> int:
        return backlog([str(tmp_path)], sources, JOURNAL_ID, store).keep_from_seq

    assert first_needed() == firsts[names[0]]
    shipper, _ = shipper_of(tmp_path, Script(Stored(), Refused("no", "")))
    await shipper.run(Shipped(store=STORE.identity))
    assert first_needed() == firsts[names[1]]
    await shipper_of(tmp_path, Script(Stored()))[0].run(load_shipped(tmp_path, STORE))
    assert first_needed() > firsts[names[1]]
    assert first_needed(Store(url="s3://other", cluster="prod")) == firsts[names[0]]
    (tmp_path / "shipped.json").write_text("{")
    assert first_needed() == firsts[names[0]]


async def test_what_one_segment_is_refused_for_holds_no_other_up(tmp_path: Path) -> None:
    """It is tried again by the next process; the others are there."""
    names = lay_out_segments(tmp_path, 4)
    script = Script(Refused("HTTP 413", "too large", alone=True), Stored())
    shipper, said = shipper_of(tmp_path, script)
    assert await shipper.run(Shipped(store=STORE.identity)) == f"{names[0]}: HTTP 413: too large"
    assert set(load_shipped(tmp_path, STORE).segments) == set(names[1:3])
    assert (said.state.pending, said.state.reason) == (1, f"{names[0]}: HTTP 413: too large")


async def test_what_cannot_be_read_holds_no_other_up(tmp_path: Path) -> None:
    """A bad sector in one segment is none in the next."""
    names = lay_out_segments(tmp_path, 4)

    class Failing(DirectorySource):
        def read(self, name: str, offset: int, size: int) -> bytes:
            if name == names[0] and size > PEEK_BYTES:
                raise OSError(errno.EIO, "Input/output error", name)
            return super().read(name, offset, size)

    shipper, said = shipper_of(tmp_path, Script(Stored()))
    shipper._sources = [Failing(tmp_path)]
    assert "Input/output error" in await shipper.run(Shipped(store=STORE.identity))
    assert set(load_shipped(tmp_path, STORE).segments) == set(names[1:3])
    assert said.state.pending == 1


async def test_what_is_too_large_is_never_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a part of it: half a segment under a segment's name would be a lie."""
    names = lay_out_segments(tmp_path, 3)
    large = (tmp_path / names[0]).stat().st_size
    (tmp_path / names[1]).write_bytes((tmp_path / names[1]).read_bytes() + bytes(large))
    monkeypatch.setattr(shippers, "SEGMENT_BYTES_MAX", large)
    script = Script(Stored())
    shipper, said = shipper_of(tmp_path, script)
    assert await shipper.run(Shipped(store=STORE.identity)) == ""
    assert len(script.keys) == 1
    assert load_shipped(tmp_path, STORE).segments[names[1]].outcome == "unfit"
    assert "more than" in said.lines[0]


# --- the real process against a real S3 server ------------------------------------------------------

PREFIX = f"pre/{node_prefix('prod', NODE)}"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> object:
    try:
        with gateway(tmp_path_factory.mktemp("s3"), PREFIX) as found:
            yield found
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def emptied(s3: Gateway) -> Gateway:
    for path in (s3.data / BUCKET).rglob("*.ebj"):
        path.unlink()
    return s3


def start(folder: Path, on: Gateway, store: Store = STORE) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ebbtide.shipping"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | on.environ(),
    )
    assert process.stdin is not None
    process.stdin.write(encode_line(ShipJob(store=store, locations=(str(folder),))))
    process.stdin.flush()
    return process


def end(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    assert process.stdout is not None
    assert process.stdin is not None
    said = process.stdout.read()
    code = process.wait(timeout=60)
    process.stdin.close()
    process.stdout.close()
    reports = [msgspec.json.decode(line, type=ShipReport) for line in said.splitlines()]
    return code, [report.text for report in reports if report.text]


def hold_all(folder: Path, names: list[str], on: Gateway) -> bool:
    """Whether the store has exactly the bytes of these segments."""
    return sorted(on.objects().values()) == sorted((folder / name).read_bytes() for name in names)


@pytest.mark.backend
def test_a_real_store_gets_each_segment_once(emptied: Gateway, tmp_path: Path) -> None:
    """With rights that only let this node write; a lost cursor ends in what is there already."""
    names = lay_out_segments(tmp_path, 4)
    assert end(start(tmp_path, emptied)) == (EXIT_DONE, [])
    assert hold_all(tmp_path, names[:3], emptied)
    (tmp_path / "shipped.json").unlink()
    code, said = end(start(tmp_path, emptied))
    assert (code, len(said)) == (EXIT_DONE, 3)
    assert all("not verified" in text for text in said)
    assert hold_all(tmp_path, names[:3], emptied)
    assert load_shipped(tmp_path, STORE).present == 3


@pytest.mark.backend
def test_two_processes_make_one_object_of_a_segment(emptied: Gateway, tmp_path: Path) -> None:
    """Of two copies of a journal, each with a cursor of its own."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        names = lay_out_segments(folder, 6)
    found = [end(each) for each in [start(folder, emptied) for folder in folders]]
    assert [code for code, _ in found] == [EXIT_DONE, EXIT_DONE]
    assert hold_all(folders[0], names[:5], emptied)
    both = [load_shipped(folder, STORE) for folder in folders]
    assert sum(each.stored for each in both) == 5
    assert sum(each.present for each in both) == 5


@pytest.mark.backend
def test_one_that_is_killed_goes_on_after_the_reboot(emptied: Gateway, tmp_path: Path) -> None:
    """Half a request is no object."""
    names = lay_out_segments(tmp_path, 8)
    process = start(tmp_path, emptied)
    while not emptied.objects() and process.poll() is None:
        pass
    process.send_signal(signal.SIGKILL)
    end(process)
    assert end(start(tmp_path, emptied))[0] == EXIT_DONE
    assert hold_all(tmp_path, names[:7], emptied)


@pytest.mark.backend
def test_another_nodes_prefix_is_refused_with_its_cure(emptied: Gateway, tmp_path: Path) -> None:
    """The rights of a node end at its own prefix."""
    lay_out_segments(tmp_path, 2)
    code, said = end(start(tmp_path, emptied, Store(url=STORE.url, cluster="other")))
    assert code == EXIT_KEPT
    assert "HTTP 403" in said[0]
    assert "s3:PutObject" in said[0]
    assert emptied.objects() == {}


@pytest.mark.backend
async def test_a_real_store_refuses_bytes_that_are_not_those_of_the_checksum(emptied: Gateway) -> None:
    """It is the store that verifies it: what is changed on the way is no object."""
    with patch.dict(os.environ, emptied.environ(READER)):
        found = await trio.to_thread.run_sync(ObjectStore(STORE).put, f"{PREFIX}/x.ebj", b"data")
    assert isinstance(found, Refused)
    target, wrong = f"/{BUCKET}/{PREFIX.replace('=', '%3D')}/x.ebj", {"x-amz-checksum-sha256": "A" * 43 + "="}
    assert signed_put(emptied.endpoint, target, b"data", "node", "nodesecret", wrong) == 400
    assert emptied.objects() == {}


@pytest.mark.backend
def test_without_the_condition_in_its_policy_a_store_takes_an_overwrite(
    emptied: Gateway, tmp_path: Path
) -> None:
    """What stolen credentials can do where a store does not know ``s3:if-none-match``: the docs say so."""
    lay_out_segments(tmp_path, 2)
    assert end(start(tmp_path, emptied))[0] == EXIT_DONE
    (key,) = emptied.objects()
    target = f"/{BUCKET}/{key.replace('=', '%3D')}"
    assert signed_put(emptied.endpoint, target, b"other", *NODE_USER) == 200
    assert emptied.objects() == {key: b"other"}
    conditional = {"if-none-match": "*"}
    assert signed_put(emptied.endpoint, target, b"more", *NODE_USER, conditional) == 412
    assert emptied.objects() == {key: b"other"}
