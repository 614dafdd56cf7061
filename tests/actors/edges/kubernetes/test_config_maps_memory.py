"""The journal in ConfigMaps on a server in memory: fencing, losses and retention."""

from __future__ import annotations

import os
import threading
import tracemalloc
from base64 import b64decode, b64encode
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import config_maps
from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.config_maps import (
    BLOCKED_SECONDS,
    PREFIX,
    ConfigMapSource,
    ConfigMapStorage,
    Fenced,
    Piece,
    TooLarge,
    list_journals,
    read_journal,
    read_journals,
)
from ebbtide.events.base import Checkpoint, Record
from ebbtide.events.disk import Limits, trim
from ebbtide.events.reader import History
from ebbtide.events.segment import segment_file_name
from ebbtide.events.writer import Writer
from ebbtide.outage.outage_follower import recover_outages
from ebbtide.recover import beside
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.config_map_fake import CREATED, ConfigMaps, leading, read
from tests.actors.edges.kubernetes.write_fake import status
from tests.events.making import OTHER_ID, WALL_NS, Told, running, stamp, step, write_steps
from tests.journals import JOURNAL_ID
from tests.waiting import until

UID = "11111111-2222-3333-4444-555555555555"
#: More of them on demand, by ``EBBTIDE_SEEDS=5000``.
SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "12"))
LIVES, STEPS = 4, 12


def storage(server: ConfigMaps, writer: str = "one") -> ConfigMapStorage:
    return ConfigMapStorage(server, "ebbtide", UID, writer)


def name(number: int, uid: str = UID) -> str:
    return f"{PREFIX}-{uid}-{number:010d}"


async def write(server: ConfigMaps, writer: str = "one", **fields: str) -> int:
    """A leader's three steps; its last number."""
    place = ConfigMapStorage(server, "ebbtide", fields.pop("uid", UID), writer, **fields)
    async with leading(place) as (made, _):
        await write_steps(made, 3, synced=True)
        return made.last_seq


async def assert_intact(server: ConfigMaps, seq: int) -> None:
    raws, verdict = await read(storage(server))
    assert (verdict.state, len(raws)) == ("intact", seq)


async def next_segment(writer: Writer, steps: int) -> None:
    await write_steps(writer, steps, synced=True)
    writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))


@pytest.mark.parametrize("number", [1, 3])
async def test_a_number_that_retention_has_freed_fences_as_well(
    number: int, autojump_clock: MockClock
) -> None:
    """A writer paused for so long appends below the retained range: its sync reports that."""
    server = ConfigMaps(Draws(1))
    place = storage(server)
    await place.acquire("one")
    file = await place.create(segment_file_name(1, JOURNAL_ID))
    for _ in range(number - 1):
        await file.write(b"before")
    if number > 1:
        await file.sync()
    # Another writer reached number 50 and removed all below 40.
    other = storage(server, "two")
    await other.acquire("two")
    theirs = await other.create(segment_file_name(2, JOURNAL_ID))
    for each in range(number, 50):
        other._first = 40 if each > 40 else 1
        await theirs.write(b"theirs")
    for each in range(1, 40):
        del server.objects[name(each)]
    await file.write(b"late")
    with pytest.raises(Fenced, match="has removed its oldest part"):
        await file.sync()


async def test_what_goes_is_no_part_of_the_journal_before(autojump_clock: MockClock) -> None:
    """A partial removal, and a create on a freed number, are not read."""
    server, limits = ConfigMaps(Draws(1)), Limits(total_bytes=0)
    async with leading(storage(server, "one")) as (writer, place):
        for _ in range(3):
            await next_segment(writer, 3)
        await writer.wait_synced(writer.last_seq)
        before = dict(server.objects)
        segments = [segment_file_name(number, OTHER_ID) for number in (1, 2, 3)]
        assert await trim([place], 0, None, limits) == segments
        # A new reader still reads everything: no record shows a removal.
        assert server.objects == before
        await next_segment(writer, 1)
        await writer.wait_synced(writer.last_seq)
        assert await trim([place], 0, None, limits) == [segment_file_name(4, OTHER_ID)]
        left = dict(server.objects)
        assert min(left) > min(before)
        for late in ([name(2)], [name(1), name(3), name(4)]):
            server.objects = left | {each: before[each] for each in late}
            raws, verdict = await read(storage(server))
            assert (verdict.state, raws[0].seq) == ("intact", 31)


@pytest.mark.parametrize(
    ("number", "state"), [(2, "corrupt"), (5, "corrupt"), (8, "torn")], ids=["first", "middle", "last"]
)
async def test_a_piece_that_is_missing(number: int, state: str, autojump_clock: MockClock) -> None:
    """A later piece proves that the missing one was durable. The last piece may never have existed."""
    server = ConfigMaps(Draws(1))
    async with leading(storage(server, "one")) as (writer, _):
        for _ in range(6):
            records = step(writer.last_seq + 1)
            for part in (records[:1], records[1:]):
                writer.append(part)
                await writer.wait_synced(writer.last_seq)
    for each in sorted(server.objects)[number:] if state == "torn" else [name(number)]:
        server.objects.pop(each)
    raws, verdict = await read(storage(server))
    assert verdict.state == state
    assert len(raws) < 19


async def test_a_journal_is_read_by_its_nodes_name_or_uid(autojump_clock: MockClock) -> None:
    """With two Nodes of one name it needs the UID. No write happens, and the error lists both."""
    server, other = ConfigMaps(Draws(1)), f"{UID[:-1]}6"
    for uid, node in ((UID, "node-1"), (other, "node-1"), (f"{UID[:-1]}7", "node-2")):
        await write(server, uid=uid, node=node)
    creates = server.creates
    for asked in (UID, "node-2"):
        source = await read_journal(server, "ebbtide", asked)
        assert History([source]).read().state == "intact"
    with pytest.raises(LookupError, match=f"several journals are of Node 'node-1'.*{UID}.*{other}"):
        await read_journal(server, "ebbtide", "node-1")
    with pytest.raises(LookupError, match=r"no journal is of Node 'node-3'.*node-2"):
        await read_journal(server, "ebbtide", "node-3")
    assert server.creates == creates


async def test_all_journals_in_one_list(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """Each equals its own list, wherever a part ends, and whatever others have put in between."""
    monkeypatch.setattr(config_maps, "PART_OF_ALL", 3)
    server, uids = ConfigMaps(Draws(1)), [f"{UID[:-1]}{number}" for number in range(4)]
    for uid in uids:
        async with leading(ConfigMapStorage(server, "ebbtide", uid, "one")) as (writer, place):
            for _ in range(3):
                await next_segment(writer, 2)
            await writer.wait_synced(writer.last_seq)
            if uid == uids[2]:
                assert len(await trim([place], 0, None, Limits(total_bytes=0))) > 1
                await write_steps(writer, 1, synced=True)
    by_itself = {uid: await contents(server, uid) for uid in uids}
    assert len(by_itself[uids[2]]) < len(by_itself[uids[1]])
    assert sum(uids[2] in each for each in server.objects) > sum(uids[1] in each for each in server.objects)
    assert await all_contents(server) == list(by_itself.items())
    nested = f"{uids[3]}-0000000001"
    for between, uid in ((f"{PREFIX}-{uids[3]}-0000000001-x", "strange"), (name(5, nested), nested)):
        server.objects[between] = forged(between, uid=uid)
    assert await all_contents(server) == list(by_itself.items())
    assert {each.node_uid for each in await list_journals(server, "ebbtide")} == {*uids, nested}


# --- objects of others under a journal's names


def forged(
    called: str, data: bytes = b"x", uid: str = UID, created: str = CREATED, **annotations: str
) -> Any:
    said = {"offset": "0", "first": "1", "writer": "evil", "segment": segment_file_name(9, JOURNAL_ID)}
    said |= annotations
    return {
        "metadata": {
            "name": called,
            "uid": f"evil-{called}",
            "creationTimestamp": created,
            "labels": {"ebbtide.dev/node-uid": uid, "ebbtide.dev/at-rest": "true"},
            "annotations": {f"ebbtide.dev/{word}": text for word, text in said.items()},
        },
        "binaryData": {said["segment"]: b64encode(data).decode()},
    }


def copied(last: Any, number: int, data: bytes) -> Any:
    """By a client that may read: all words of a piece, under another number."""
    made = deepcopy(last)
    made["metadata"] |= {"name": name(number), "uid": f"evil-{number}"}
    made["metadata"]["labels"]["ebbtide.dev/at-rest"] = "true"
    made["binaryData"] = dict.fromkeys(made["binaryData"], b64encode(data).decode())
    return made


@pytest.mark.parametrize("how", ["garbage", "first", "copied", "copied whole", "far ahead", "before"])
async def test_forged_numbers_fence_no_leader(how: str, autojump_clock: MockClock) -> None:
    """And no reader reads them; the next leader goes on, and an open journal is not taken for one at rest."""
    server = ConfigMaps(Draws(1))
    if how == "before":
        server.objects[name(1)] = forged(name(1), data=b"x" * 1000, after="", hash="")
    async with leading(storage(server, "one")) as (writer, _):
        for _ in range(3):
            await write_steps(writer, 3, synced=True)
            last = max(server.objects)
            number = int(last.rpartition("-")[2])
            for ahead in (1, 2, 3):
                at = number + ahead + (10**6 if how == "far ahead" else 0)
                match how:
                    case "garbage" | "far ahead":
                        made = forged(name(at))
                    case "first":
                        made = forged(name(at), first=str(at), hash="0" * 64)
                    case "copied":
                        made = copied(server.objects[last], at, b"x")
                    case _:
                        data = b64decode(next(iter(server.objects[last]["binaryData"].values())))
                        made = copied(server.objects[last], at, data)
                if how != "before":
                    server.objects[name(at)] = made
        await write_steps(writer, 3, synced=True)
        assert not writer.lost
        seq = writer.last_seq
    await assert_intact(server, seq)
    assert [each.at_rest for each in await list_journals(server, "ebbtide")] == [False]
    next_seq = await write(server, "two")
    assert next_seq > seq
    await assert_intact(server, next_seq)


def whole(number: int, first: int, segment: str = "", offset: int = 0, **words: str) -> Any:
    """A piece with its right hash, by a client that may only create."""
    segment = segment or segment_file_name(1, JOURNAL_ID)
    made = Piece(number, first, "", segment, offset, b"x", "evil", 0).hashed()
    words |= {"first": str(first), "segment": segment, "offset": str(offset), "after": "", "hash": made.hash}
    return forged(name(number), created="2026-01-01T00:00:01Z", **words)


@pytest.mark.parametrize("first", [1, 9 * 10**9])
async def test_blind_pieces_hide_no_journal(first: int, autojump_clock: MockClock) -> None:
    """They begin no older chain, and say at rest in vain."""
    server, number = ConfigMaps(Draws(1)), 9 * 10**9
    seq = await write(server, node="n")
    server.objects[name(number)] = whole(number, first, node="victim")
    await assert_intact(server, seq)
    assert await list_journals(server, "ebbtide") == [(UID, "n", False)]


async def test_a_whole_piece_behind_a_gap_is_no_record(autojump_clock: MockClock) -> None:
    """Pieces behind a missing one show that it was deleted: it had bytes, so they begin behind a hole."""
    server = ConfigMaps(Draws(1))
    seq = await write(server)
    number, one = len(server.objects) + 2, server.objects[name(len(server.objects))]
    ((segment, data),) = one["binaryData"].items()
    end = int(one["metadata"]["annotations"]["ebbtide.dev/offset"]) + len(b64decode(data))
    server.objects[name(number)] = whole(number, 1, segment, end)
    await assert_intact(server, seq)


async def test_a_forged_number_leaves_room(autojump_clock: MockClock) -> None:
    """Whole, under the last number there is, and older than the journal. Behind it no leader could write."""
    server, number = ConfigMaps(Draws(1)), 10**10 - 1
    server.objects[name(number)] = whole(number, number)
    server.objects[name(number)]["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    assert await list_journals(server, "ebbtide") == []
    await write(server, "one")
    await assert_intact(server, await write(server, "two"))


async def test_a_real_leader_fences_among_forged_numbers(autojump_clock: MockClock) -> None:
    server = ConfigMaps(Draws(1))
    async with leading(storage(server, "one")) as (first, _):
        await write_steps(first, 3, synced=True)
        number = len(server.objects)
        server.objects[name(number + 1)] = forged(name(number + 1))
        async with leading(storage(server, "two")) as (second, _):
            await write_steps(second, 3, synced=True)
            first.append(step(first.last_seq + 1, synced=True))
            assert not await first.wait_synced(first.last_seq)
            await write_steps(second, 1, synced=True)
    await assert_intact(server, second.last_seq)


@pytest.mark.parametrize("how", ["holes", "large", "own holes", "own large"])
async def test_a_journal_has_a_total_bound(how: str, autojump_clock: MockClock) -> None:
    """Holes are lengths: 60 objects of a byte, 16 MiB apart, are 60 bytes. A journal of 48 MiB is refused by
    name, and the next leader begins it anew.
    """
    server, jump = ConfigMaps(Draws(1)), 16 * 1024 * 1024
    async with leading(storage(server, "one")) as (writer, place):
        await write_steps(writer, 3, synced=True)
        seq, number = writer.last_seq, len(server.objects)
        segment = next(iter(server.objects[name(number)]["binaryData"]))
        for each in range(60):
            data = bytes(1024 * 800) if how.endswith("large") else b"x"
            if how.startswith("own"):
                await place.append(segment, jump * (each + 1), data)
            else:
                at = name(number + 2 + each)
                server.objects[at] = forged(at, data, offset=str(jump * each), segment=segment)
    tracemalloc.start()
    try:
        if how == "own large":
            with pytest.raises(TooLarge, match="more than 16 MiB"):
                await read(storage(server))
        else:
            raws, _ = await read(storage(server))
            assert len(raws) == seq
        sizes: list[int] = []
        await read_journals(server, "ebbtide", {UID}, lambda uid, source: sizes.append(0))
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()
    if how == "own large":
        place = storage(server, "two")
        await place.acquire("two")
        place.begin_anew()
        start = beside(recover_outages((), UID, OTHER_ID).verdict, WALL_NS).start(OTHER_ID)
        async with running([place], start) as writer:
            await write_steps(writer, 3, synced=True)
        await assert_intact(server, writer.last_seq)


Contents = list[tuple[str, bytes]]


def contents_of(source: ConfigMapSource) -> Contents:
    return [(each.name, source.read(each.name, 0, each.size)) for each in source.files()]


async def contents(server: ConfigMaps, uid: str) -> Contents:
    place = ConfigMapStorage(server, "ebbtide", uid, "")
    return await place.call(contents_of, place.source)


async def all_contents(server: ConfigMaps) -> list[tuple[str, Contents]]:
    found: list[tuple[str, Contents]] = []
    uids = {each.node_uid for each in await list_journals(server, "ebbtide")}
    await read_journals(server, "ebbtide", uids, lambda uid, source: found.append((uid, contents_of(source))))
    return found


async def test_what_was_not_read_is_not_empty(autojump_clock: MockClock) -> None:
    """A writer would begin the journal anew."""
    place = storage(ConfigMaps(Draws(1)))
    with pytest.raises(OSError, match="has not been read"):
        place.source.files()


DEAD_WEBHOOK = 'Internal error occurred: failed calling webhook "a.example.test": connection refused'


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (status(500, DEAD_WEBHOOK), "500 failed calling webhook"),
        (status(403, "exceeded quota: few, requested: count/configmaps=1"), "403 exceeded quota"),
        (status(403, 'User "x" cannot create resource "configmaps"'), "403 cannot create resource"),
        (status(422, "ValidatingAdmissionPolicy 'p' denied request"), "422 ValidatingAdmissionPolicy"),
        (status(409, "denied by a webhook with this code"), "409"),
        (status(404, "namespaces not found"), "404 not found"),
        (status(503, "later"), "503"),
        (None, "no answer in time"),
    ],
)
async def test_a_blocked_journal_says_so_and_goes_on(
    refused: Answer | None, why: str, autojump_clock: MockClock
) -> None:
    """Whatever blocks it: no record is lost, and the writer lives on."""
    server = ConfigMaps(Draws(1))
    async with leading(storage(server, "one")) as (writer, place):
        await write_steps(writer, 2, synced=True)
        server.refuses = [refused]
        writer.append(step(writer.last_seq + 1, synced=True))
        await trio.sleep(BLOCKED_SECONDS + 1)
        assert place.blocked.startswith(why)
        await trio.sleep(600)
        assert not writer.lost
        server.refuses.clear()
        await writer.wait_synced(writer.last_seq)
        assert place.blocked == ""
    assert (await read(storage(server)))[1].state == "intact"


async def test_a_lost_right_to_delete_blocks_no_record(autojump_clock: MockClock) -> None:
    """Old segments stay, and the error says why."""
    server, limits = ConfigMaps(Draws(1)), Limits(total_bytes=0)
    async with leading(storage(server, "one")) as (writer, place):
        for _ in range(2):
            for _ in range(2):
                await next_segment(writer, 1)
            await writer.wait_synced(writer.last_seq)
            server.keeps = status(403, 'User "x" cannot delete resource "configmaps"')
            with suppress(OSError):
                await trim([place], 0, None, limits)
        with pytest.raises(OSError, match="403 cannot delete resource"):
            await trim([place], 0, None, limits)
        await write_steps(writer, 2, synced=True)
        assert place.blocked == ""


async def test_a_webhook_that_changes_the_record(autojump_clock: MockClock) -> None:
    """No other leader: the journal ends, without an object a moment."""
    server, told = ConfigMaps(Draws(1)), Told()
    async with leading(storage(server, "one"), told) as (writer, _):
        await write_steps(writer, 1, synced=True)
        before = server.creates
        server.mutate = lambda body: body["metadata"]["annotations"].clear()
        writer.append(step(writer.last_seq + 1, synced=True))
        await trio.sleep(60)
        assert server.creates - before == 1
        assert "a mutating webhook changes the journal's objects" in told.lost[0]


async def test_a_webhook_that_takes_nine_seconds(autojump_clock: MockClock) -> None:
    """A try that ends sooner ends the webhook's call too, and would never succeed."""
    server = ConfigMaps(Draws(1))
    async with leading(storage(server, "one")) as (writer, place):
        await write_steps(writer, 1, synced=True)
        server.webhook_seconds = 9.0
        began = trio.current_time()
        for _ in range(3):
            await write_steps(writer, 1, synced=True)
        assert trio.current_time() - began < 5 + 3 * (9 + 3)
        server.webhook_seconds = 0.0
        await write_steps(writer, 1, synced=True)
        assert place.blocked == ""


# --- lives, drawn


class Promises:
    """The durable records of all leaders: per number, a hash of the record and its predecessors."""

    def __init__(self) -> None:
        self.synced: dict[int, bytes] = {}
        self.given: dict[tuple[str, int], bytes] = {}

    def note(self, who: str, records: list[Record], hashes: list[bytes]) -> None:
        self.given |= {(who, each.seq): made for each, made in zip(records, hashes, strict=True)}

    def synced_up_to(self, who: str, seq: int) -> None:
        for (owner, number), made in self.given.items():
            if owner == who and number <= seq:
                assert self.synced.setdefault(number, made) == made, "two leaders were told that it is theirs"


async def lead(server: ConfigMaps, who: str, draws: Draws, promises: Promises, clock: MockClock) -> None:
    """One process: reads, continues, pauses, and dies by draw or is fenced."""
    with trio.CancelScope(deadline=clock.current_time() + draws.between(1, 3000) / 100):
        async with leading(storage(server, who)) as (writer, place):
            for _ in range(STEPS):
                if draws.chance(1, 6):
                    writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
                if draws.chance(1, 10):
                    with suppress(OSError):
                        await trim([place], 0, None, Limits(total_bytes=0))
                records = step(writer.last_seq + 1, synced=draws.chance(1, 2))
                promises.note(who, records, writer.append(records))
                with trio.CancelScope(deadline=clock.current_time() + draws.below(2000) / 1000):
                    await writer.wait_synced(writer.last_seq)
                if writer.lost:
                    return
                promises.synced_up_to(who, writer.synced_seq)
                await trio.sleep(draws.pick([0, 0, 0.01, 3.0]))


async def forge(server: ConfigMaps, draws: Draws) -> None:
    """Until cancelled."""
    while True:
        await trio.sleep(draws.below(4000) / 1000)
        pieces = sorted(server.objects)
        at = int(pieces[-1].rpartition("-")[2]) + 1 + draws.below(2) if pieces else 1
        one = server.objects[draws.pick(pieces)] if pieces else None
        if one is None or "evil" in one["metadata"]["uid"] or draws.chance(1, 2):
            made = forged(name(at), first=str(draws.below(2 * at)))
        else:
            made = copied(one, at, b64decode(next(iter(one["binaryData"].values()))))
        server.objects.setdefault(name(at), made)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_promised_is_lost_over_many_leaders(seed: int, autojump_clock: MockClock) -> None:
    """Two at a time, on a server that loses answers: each durable record is read back. In every second world
    another client creates objects under the next numbers, copies of pieces among them.
    """
    draws, promises = Draws(seed), Promises()
    async with trio.open_nursery() as late:
        server = ConfigMaps(draws.fork("server"), late, trouble=draws.pick([0, 10, 40]))
        for life in range(LIVES):
            async with trio.open_nursery() as forging:
                if seed % 2:
                    forging.start_soon(forge, server, draws.fork(f"evil-{life}"))
                async with trio.open_nursery() as nursery:
                    for at in range(2):
                        who = f"{life}-{at}"
                        nursery.start_soon(lead, server, who, draws.fork(who), promises, autojump_clock)
                forging.cancel_scope.cancel()
            await trio.sleep(5)  # what was still under way
            raws, verdict = await read(storage(server))
            assert verdict.state in ("intact", "torn"), verdict.banner
            first = raws[0].seq if raws else 1
            assert [raw.seq for raw in raws] == list(range(first, first + len(raws)))
            stands = {raw.seq: raw.hash for raw in raws}
            # A reader had read what retention removed.
            kept = {seq: made for seq, made in promises.synced.items() if seq >= first}
            assert {seq: stands.get(seq) for seq in kept} == kept


async def test_a_journal_is_read_while_all_other_threads_hang() -> None:
    """Like a name server that hangs for a hundred management controllers."""
    answers, limiter = threading.Event(), trio.to_thread.current_default_thread_limiter()

    async def look_up() -> None:
        await trio.to_thread.run_sync(answers.wait, abandon_on_cancel=True)

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(int(limiter.total_tokens)):
                nursery.start_soon(look_up)
            await until(lambda: limiter.borrowed_tokens == limiter.total_tokens, "all threads hang")
            place = storage(ConfigMaps(Draws(1)))
            await place.acquire("")
            assert (await read(place))[0] == []
            nursery.cancel_scope.cancel()
    finally:
        answers.set()
