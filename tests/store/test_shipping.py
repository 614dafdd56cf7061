"""Closed segments reach a store once each, and only real uploads count."""

from __future__ import annotations

import errno
import hashlib
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from ebbtide.events.catalog import PEEK_BYTES, DirectorySource
from ebbtide.events.reader import History
from ebbtide.follower import follow
from ebbtide.otel.metric_table import ShippingState
from ebbtide.otel.sending import Again, Refused, Rejected
from ebbtide.replay.verify import verify
from ebbtide.shipping import store_sink as sinks
from ebbtide.shipping.shipping_destination import (
    BadStore,
    Store,
    backlog,
    checked_cluster,
    checked_url,
    closed_segments,
    load_shipped,
    object_key,
    save_shipped,
)
from ebbtide.shipping.store_sink import Answer, ObjectStore, Present, Stored, StoreSink
from tests.store.gateway import BUCKET, TAKEN, faking, reply
from tests.store.segments import JOURNAL_ID, NODE, lay_out_segments
from tests.waiting import WATCHDOG_SECONDS

STORE = Store(url=f"s3://{BUCKET}/pre", cluster="prod")
REDACTED = Store(url=STORE.url, cluster="prod", redact=True)
KEY = "v1/cluster=c/node=n/journal=00/x.ebj"


class Said:
    """A fake daemon with the log lines and the shipping's progress."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.state = ShippingState()

    def log(self, level: int, text: str) -> None:
        self.lines.append(text)

    def shipping(self, state: ShippingState) -> None:
        self.state = state


def sink_of(folder: Path, putter: object, store: Store = STORE) -> tuple[StoreSink, Said]:
    said = Said()
    made = StoreSink(
        [DirectorySource(folder)],
        store,
        putter,  # type: ignore[arg-type]
        said,
        lambda shipped: save_shipped(folder, shipped),
        load_shipped(folder, store),
    )
    made.sending.draw = lambda: 1.0
    return made, said


async def ship(folder: Path, putter: object, store: Store = STORE) -> tuple[str, Said]:
    """As one process does; why something is left."""
    sink, said = sink_of(folder, putter, store)
    return await follow(sink, said.log), said


class Script:
    """Answers in order, the last one repeats; ``keys``: the offered ones."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.keys = list(answers), list[str]()

    def put(self, key: str, data: bytes) -> Answer:
        self.keys.append(key)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


# --- names and places


def test_a_name_says_whose_bytes_they_are() -> None:
    """Cluster and node are encoded, so that they cannot change the path."""
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
    """Also in a file name: 255 bytes, percent-encoded with its affixes."""
    with pytest.raises(BadStore):
        checked_cluster(name)


# --- what an answer means

ERROR = b"<Error><Code>%s</Code></Error>"
ANSWERS: list[tuple[bytes | None, type, str]] = [
    (TAKEN, Stored, ""),
    # Another object, or no stored bytes: without a read right this is indistinguishable.
    (reply(200, ETag='"of another"'), Stored, ""),
    (reply(412), Present, ""),
    (reply(409, ERROR % b"ConditionalRequestConflict"), Again, "HTTP 409: ConditionalRequestConflict"),
    (reply(503, ERROR % b"SlowDown"), Again, "HTTP 503: SlowDown"),
    (reply(429), Again, "HTTP 429"),
    (reply(500), Again, "HTTP 500"),
    (reply(403, ERROR % b"AccessDenied"), Refused, "HTTP 403: AccessDenied"),
    (reply(404, ERROR % b"NoSuchBucket"), Refused, "HTTP 404: NoSuchBucket"),
    (reply(400, ERROR % b"BadDigest"), Rejected, "HTTP 400: BadDigest"),
    (reply(413), Rejected, "HTTP 413"),
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
    """With the real client: only a store's complete answer counts, and no call is repeated."""
    async with faking(lambda request: answer) as fake:
        store = ObjectStore(STORE, put_seconds=0.2 if answer is None else WATCHDOG_SECONDS)
        found = await trio.to_thread.run_sync(store.put, KEY, b"data")
        assert isinstance(found, kind), found
        assert getattr(found, "reason", "").startswith(reason)
        assert len(fake.got) == 1 or answer is None


def test_without_the_client_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(BadStore, match=r"obstore.*\[ship\]"):
        ObjectStore(STORE)


async def test_a_request_is_conditional_and_has_its_checksum() -> None:
    """The store verifies it and never overwrites."""
    async with faking(lambda request: TAKEN) as fake:
        await trio.to_thread.run_sync(ObjectStore(STORE).put, KEY, b"data")
    (request,) = fake.got
    assert request.headers["if-none-match"] == "*"
    assert request.headers["x-amz-checksum-sha256"] == "Om6weQ85rIfJTzhWst0sXREOaBFgImGpqSPTuyOtyLc="
    assert "nodesecret" not in str(request)


# --- the shipper


async def test_each_closed_segment_is_offered_once_oldest_first(tmp_path: Path) -> None:
    names = lay_out_segments(tmp_path, 4)
    script = Script(Stored())
    assert (await ship(tmp_path, script))[0] == ""
    shas = [hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names[:3]]
    wanted = [object_key("prod", NODE, JOURNAL_ID, *pair, False) for pair in zip(names, shas, strict=False)]
    assert script.keys == wanted
    assert (await ship(tmp_path, script))[0] == ""
    assert len(script.keys) == 3
    assert load_shipped(tmp_path, STORE).stored == 3


async def test_what_was_there_is_on_record_as_that(tmp_path: Path) -> None:
    """It was not read, so it does not count as ours."""
    names = lay_out_segments(tmp_path, 2)
    reason, said = await ship(tmp_path, Script(Present()))
    assert reason == ""
    found = load_shipped(tmp_path, STORE)
    assert (found.stored, found.present, found.segments[names[0]].outcome) == (0, 1, "present")
    assert "not verified" in said.lines[0]


async def test_what_is_not_answered_is_offered_again(tmp_path: Path, autojump_clock: object) -> None:
    """Under the same name; the reason and its end are logged once."""
    lay_out_segments(tmp_path, 2)
    script = Script(Again("HTTP 503"), Again("HTTP 503"), Again("HTTP 409"), Stored())
    reason, said = await ship(tmp_path, script)
    assert reason == ""
    assert len(set(script.keys)) == 1
    assert len(script.keys) == 4
    assert said.lines == ["shipping: HTTP 503", "shipping: HTTP 409", "shipping: segments arrive again"]
    assert load_shipped(tmp_path, STORE).failed == 3


async def test_a_store_that_never_answers_is_given_up_for_this_process(
    tmp_path: Path, autojump_clock: object
) -> None:
    lay_out_segments(tmp_path, 2)
    assert (await ship(tmp_path, Script(Again("no answer"))))[0] == "no answer"
    assert trio.current_time() > 0
    assert load_shipped(tmp_path, STORE).segments == {}


async def test_a_refusal_is_said_once_with_its_cure(tmp_path: Path) -> None:
    """Also over several processes, by the cursor; with the backlog and its age."""
    names = lay_out_segments(tmp_path, 3)
    script = Script(Refused("HTTP 403", "allow s3:PutObject"))
    lines = []
    for _ in range(2):
        reason, said = await ship(tmp_path, script)
        assert reason == "HTTP 403: allow s3:PutObject"
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
    for largest, offered in ((10, 0), (sinks.LAST_BYTES_MAX, 1)):
        monkeypatch.setattr(sinks, "LAST_BYTES_MAX", largest)
        sink, said = sink_of(tmp_path, script)
        sink.leave()
        assert ("large" in await follow(sink, said.log)) == (not offered)
        assert len(script.keys) == offered


# --- redaction


async def test_a_redacted_segment_holds_no_name_and_verifies(tmp_path: Path) -> None:
    """Its name marks it as redacted and has its hash; a repeat gives the same bytes."""
    place = tmp_path / "journal"
    place.mkdir()
    lay_out_segments(place, 3)
    got: dict[str, bytes] = {}

    class Keeper(Script):
        def put(self, key: str, data: bytes) -> Answer:
            assert got.setdefault(key, data) == data
            return Stored()

    for _ in range(2):
        reason, said = await ship(place, Keeper(Stored()), REDACTED)
        assert (reason, said.lines) == ("", [])
        (place / "shipped.json").unlink()
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


# --- the backlog, for retention


async def test_retention_is_told_of_the_first_segment_that_is_left(tmp_path: Path) -> None:
    """Another store has none, and a damaged cursor counts as none."""
    names, sources = lay_out_segments(tmp_path, 3), [DirectorySource(tmp_path)]
    firsts = {each.name: each.header.link.seq + 1 for each in closed_segments(sources) if each.header}

    def first_needed(store: Store = STORE) -> int:
        return backlog([str(tmp_path)], sources, JOURNAL_ID, store).keep_from_seq

    assert first_needed() == firsts[names[0]]
    await ship(tmp_path, Script(Stored(), Refused("no")))
    assert first_needed() == firsts[names[1]]
    await ship(tmp_path, Script(Stored()))
    assert first_needed() > firsts[names[1]]
    assert first_needed(Store(url="s3://other", cluster="prod")) == firsts[names[0]]
    (tmp_path / "shipped.json").write_text("{")
    assert first_needed() == firsts[names[0]]


# --- one bad segment holds no other up


class Unreadable(DirectorySource):
    """A bad sector in the first segment."""

    def read(self, name: str, offset: int, size: int) -> bytes:
        if name.startswith("0000000001-") and size > PEEK_BYTES:
            raise OSError(errno.EIO, "Input/output error", name)
        return super().read(name, offset, size)


@pytest.mark.parametrize(
    "bad, words",
    [
        ("rejected", "HTTP 413"),
        ("unreadable", "Input/output error"),
        ("large", "more than"),
        ("damaged", "corrupt"),
    ],
)
async def test_one_bad_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str, words: str) -> None:
    """The next process retries it. One that can never be sent stays on the node, with the reason."""
    names = lay_out_segments(tmp_path, 4)
    first, store = tmp_path / names[0], REDACTED if bad == "damaged" else STORE
    sink, said = sink_of(
        tmp_path, Script(*[Rejected("HTTP 413: too large")] * (bad == "rejected"), Stored()), store
    )
    data = bytearray(first.read_bytes())
    if bad == "unreadable":
        sink.sources = [Unreadable(tmp_path)]
    elif bad == "large":
        largest = max((tmp_path / name).stat().st_size for name in names)
        monkeypatch.setattr(sinks, "SEGMENT_BYTES_MAX", largest)
        first.write_bytes(data + bytes(largest))
    elif bad == "damaged":
        data[len(data) // 2] ^= 1
        first.write_bytes(data)
    left = await follow(sink, said.log)
    found = load_shipped(tmp_path, store).segments
    unfit = {names[0]: "unfit"} if bad in ("large", "damaged") else {}
    assert {name: each.outcome for name, each in found.items()} == unfit | dict.fromkeys(names[1:3], "stored")
    if unfit:
        assert (left, words in found[names[0]].reason, names[0] in said.lines[0]) == ("", True, True)
    else:
        assert left.startswith(f"{names[0]}: ")
        assert words in left
        assert (said.state.pending, said.state.reason) == (1, left)
