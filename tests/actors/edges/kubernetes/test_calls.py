"""The writers' bounds in virtual time: durations, retries, concurrency, and each answer's meaning."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import api_calls, node_writes
from ebbtide.actors.edges.kubernetes.api_calls import (
    AT_ONCE_MAX,
    QUICK_MAX,
    QUICK_SECONDS,
    Answer,
    ListPart,
    Unanswered,
    for_each,
    list_in_parts,
)
from ebbtide.actors.edges.kubernetes.api_writes import OutageEventsEdge, event_name
from ebbtide.actors.edges.kubernetes.known_pods import API_ORDERS, PodObject
from ebbtide.actors.interfaces import Ending
from ebbtide.events import decisions as d
from ebbtide.events.base import Order
from ebbtide.events.outage_events import PostOutageEvent
from tests.actors.edges.kubernetes import write_rig
from tests.actors.edges.kubernetes.write_fake import Asked, Behaviour, Scripted, answers, status
from tests.actors.edges.kubernetes.write_rig import TRACE, known
from tests.actors.edges.process.test_hooks import CANARY

OK = Answer(200, b"{}")
RUNNING = b'{"metadata": {}, "items": [{"metadata": {"uid": "a"}, "status": {"phase": "Running"}}]}'


def seen(uid: str) -> Any:
    meta = {"uid": uid, "namespace": "default", "name": uid, "resourceVersion": "1"}
    return known({"metadata": meta, "status": {"phase": "Running"}})


def delete(uid: str = "a", **fields: Any) -> d.DeletePod:
    return d.DeletePod(
        **{"key": f"k/{uid}", "uid": uid, "namespace": "default", "name": uid, "grace_seconds": 9, **fields}
    )


class Hand(write_rig.Hand):
    def __init__(self, behaviour: Behaviour, *uids: str) -> None:
        self.server = Scripted(behaviour)
        super().__init__(self.server, map(seen, uids))


EACH: list[Order] = [
    d.AnnounceNode(key="k", ready=False, reason="r", message="m", cordon=True, conditions=("Drained",)),
    d.AwaitStatuses(key="k", uids=("a",), timeout_ns=3_000_000_000),
    delete(),
    d.DeliverStatuses(key="k", statuses=(("a", "Failed", "Terminated", "m"),), remove=True),
    d.PostEvent(key="k", kind="Node", name="node-1", reason="r", message="m"),
    d.PublishCertificate(key="k", safe=True),
    d.PublishLastBoot(key="k", boot_id="0" * 32, ending="abrupt"),
    d.WithdrawPods(key="k", uids=("a",)),
]
SECONDS_MAX = {
    d.AnnounceNode: 60.0,
    d.AwaitStatuses: 3.0,
    d.DeliverStatuses: 5.0,
    d.PostEvent: 10.0,
    # One more try, plus the pause.
    d.PublishLastBoot: 300.0 + 40.0,
    d.WithdrawPods: 1.0,
}
#: Invalid answers of an API server, and some valid ones.
STRANGE = [
    None,
    status(429, "later", 7.0),
    status(500, "oops"),
    status(403, "no"),
    status(409, "changed"),
    status(400, "what"),
    Answer(200, b"not json"),
    Answer(200, b"\xff\xfe"),
    # Answers for calls that expect text, and for calls that expect none.
    Answer(200, b'{"metadata": {"name": "\xff"}, "items": [{"metadata": {"name": "\xff"}}]}'),
    Answer(200, b'{"metadata": {"name": ' + b"[" * 5000),
    Answer(200, b'{"x": ' + b"[" * 5000),
    Answer(200, b'{"metadata": {"annotations": {"ebbtide.dev/changed": "%s"}}}' % (b"[" * 5000)),
    Answer(500, b'{"message": "\xff"}'),
    Answer(500, b'{"x": ' + b"[" * 5000),
    Answer(200, b'{"metadata": {}, "items": []}'),
    Answer(200, b'{"metadata": 3, "items": 3}'),
    Answer(302, b""),
]


def test_all_orders_are_there() -> None:
    """Every order type has a writer and a case here."""
    assert set(Hand(answers(OK)).writes.effects) == set(API_ORDERS) == {type(order) for order in EACH}


@pytest.mark.parametrize("order", EACH, ids=lambda order: type(order).__name__)
async def test_never_raises(order: Order, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """Whatever the server answers, an order ends with a reason and in time."""
    monkeypatch.setattr(node_writes, "LAST_BOOT_SECONDS_MAX", 300.0)
    for answer in STRANGE:
        hand = Hand(answers(answer), "a")
        with trio.fail_after(SECONDS_MAX.get(type(order), 2.0) + 0.01):
            ended = await hand.do(order)
        assert ended.result in ("done", "failed", "timed-out", "cancelled"), answer
        assert (ended.result == "done") == (not ended.reason), answer


MODIFIED = "the object has been modified"


def quoting(code: int) -> list[Answer]:
    """Answers that an API server, a webhook, a proxy or a stranger could send."""
    return [
        status(code, f'Pod "x" is invalid: status.message: Invalid value: "{CANARY}"'),
        status(code, f'admission webhook "{CANARY}" denied the request: {CANARY} {MODIFIED}'),
        Answer(code, f"<html>{CANARY}</html>".encode()),
        Answer(code, f'{{"{CANARY}"'.encode()),
        Answer(code, f'{{"metadata": "{CANARY}", "items": "{CANARY}", "message": 1}}'.encode()),
        Answer(code, f'{{"metadata": {{"uid": "{CANARY}"}}, "status": {{"phase": ["{CANARY}"]}}}}'.encode()),
        Answer(code, b'{"metadata": {"name": "\xff' + CANARY.encode() + b'"}}'),
    ]


@pytest.mark.parametrize("code", [200, 302, 403, 404, 409, 410, 422, 429, 500, 504])
@pytest.mark.parametrize("order", EACH, ids=lambda order: type(order).__name__)
async def test_no_ending_quotes_an_answer(
    order: Order, code: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """An answer may contain container output: record only its code and known words."""
    monkeypatch.setattr(node_writes, "LAST_BOOT_SECONDS_MAX", 60.0)
    for answer in quoting(code):
        hand = Hand(answers(answer), "a")
        ended = await hand.do(order)
        assert CANARY not in repr((ended, hand.told, hand.outbox.facts))
        if ended.result == "failed" and code in (403, 422) and b"webhook" in answer.body:
            assert f"{code} admission webhook, {MODIFIED}" in ended.reason


async def test_mark_first(autojump_clock: MockClock) -> None:
    """The mark precedes the delete, has half a second, and may fail. The delete names the UID."""
    hand = Hand(lambda asked: None if asked.method == "PATCH" else (0.1, OK), "a")
    assert await hand.do(delete(grace_seconds=0)) == Ending()
    mark, deleted = hand.server.asked
    assert (mark.method, mark.path) == ("PATCH", "/api/v1/namespaces/default/pods/a/status")
    assert deleted.at_seconds - mark.at_seconds == pytest.approx(0.5)
    assert deleted.body["gracePeriodSeconds"] == 1
    assert deleted.body["preconditions"] == {"uid": "a"}


GAVE_UP = status(500, "etcdserver: request timed out")
OTHER_UID = status(409, "the UID in the precondition (x) does not match")


@pytest.mark.parametrize(
    ("row", "deletes", "result"),
    [
        ([OK, status(503), status(500), OK], 3, "done"),
        ([OK, status(503, "not yet")], 6, "failed"),
        ([OK, status(429, "", 1.2), OK], 2, "done"),
        ([OK, status(429, "", 2.0), OK], 1, "failed"),
        # No try before the time that the server asks for: without an answer it would be in doubt.
        ([OK, status(429, "", 9.0), None], 1, "failed"),
        ([OK, status(403, "RBAC says no")], 1, "failed"),
        ([status(403, "RBAC says no"), OK], 1, "done"),
        ([status(404)], 0, "done"),
        ([OK, status(404)], 1, "done"),
        ([OK, OTHER_UID], 1, "done"),
        # A server that gave up may have written; one that refused has not.
        ([OK, None], 1, "timed-out"),
        ([OK, status(504, "Timeout: request did not complete")], 6, "timed-out"),
        ([OK, GAVE_UP], 6, "timed-out"),
        ([OK, GAVE_UP, status(429)], 6, "timed-out"),
        ([OK, GAVE_UP, OK], 2, "done"),
    ],
    ids=range(15),
)
async def test_delete_answers(
    row: list[Answer | None], deletes: int, result: str, autojump_clock: MockClock
) -> None:
    """429 waits as asked if there is time; 5xx retries, a refusal is final, gone is success."""
    hand = Hand(answers(*row), "a")
    assert (await hand.do(delete())).result == result
    assert hand.server.methods() == ["PATCH", *["DELETE"] * deletes]


async def at_once(hand: Hand, clock: MockClock, *uids: str) -> tuple[list[Ending], float]:
    """The outcomes and the duration of a wave's deletes."""
    ended: list[Ending] = []

    async def one(order: d.DeletePod) -> None:
        ended.append(await hand.do(order))

    began = clock.current_time()
    async with trio.open_nursery() as nursery:
        for uid in uids:
            nursery.start_soon(one, delete(uid))
    return ended, clock.current_time() - began


WAVE = [str(number) for number in range(105)]


async def test_what_was_never_sent_has_failed(autojump_clock: MockClock) -> None:
    """A slow server: all orders end in time, and only sent deletes count as possibly done."""
    hand = Hand(lambda asked: (1.2, OK))
    ended, seconds = await at_once(hand, autojump_clock, *WAVE)
    sent = hand.server.methods().count("DELETE")
    assert 0 < sent < 105
    assert Counter(each.result for each in ended) == {"timed-out": sent, "failed": 105 - sent}
    assert seconds == pytest.approx(1.5)


async def test_a_silent_server_costs_one_time(autojump_clock: MockClock) -> None:
    """A silent server costs a wave one delete's time, and few pods their hooks."""
    hand = Hand(answers(None))
    ended, seconds = await at_once(hand, autojump_clock, *WAVE)
    assert Counter(each.result for each in ended) == {"timed-out": 32, "failed": 73}
    assert seconds == pytest.approx(1.5)
    # The next order asks again: the server may be back.
    hand.server.behaviour = answers(OK)
    assert await hand.do(delete("next")) == Ending()


async def test_a_refused_connection_is_nothing_sent(autojump_clock: MockClock) -> None:
    """A refused connection sent nothing, so the order failed and the hooks still run."""

    def refuse(asked: Asked) -> None:
        raise Unanswered("connection refused", sent=False)

    assert await Hand(refuse).do(delete()) == Ending("failed", "not sent: connection refused")


async def test_time_that_has_passed_is_no_grace(autojump_clock: MockClock) -> None:
    """Time spent waiting is not added to the grace."""
    hand = Hand(lambda asked: (0.01, OK) if asked.method == "DELETE" else None, "a")
    assert await hand.do(delete(after_taint=True)) == Ending()
    assert hand.server.asked[-1].body["gracePeriodSeconds"] == 8


async def test_restore_never_gives_up_early(autojump_clock: MockClock) -> None:
    """A restore succeeds even after an hour; the wait is reported once."""
    node = b'{"metadata": {"resourceVersion": "1"}}'

    def behave(asked: Asked) -> tuple[float, Answer] | None:
        return None if asked.at_seconds < 3600 else (0.01, Answer(200, node))

    hand = Hand(behave)
    started = trio.current_time()
    assert await hand.do(d.AnnounceNode(key="k", ready=True)) == Ending()
    assert 0 < trio.current_time() - started < 3700
    assert len(hand.told) == 1


async def test_an_earlier_boots_status_waits_for_the_server(autojump_clock: MockClock) -> None:
    """A status of the earlier boot waits minutes for the API server."""
    pod = b'{"metadata": {"uid": "a", "resourceVersion": "1"}, "status": {"phase": "Running"}}'
    rows = (("a", "Failed", "Terminated", "m"),)
    hand = Hand(answers(Answer(200, pod)), "a")
    unknown = await hand.do(d.DeliverStatuses(key="k", statuses=rows, unchanged_only=True))
    assert "default/a is not known from when its status was due" in unknown.reason
    assert hand.server.methods() == ["GET"]
    hand.server.behaviour = answers(None)
    assert (await hand.do(d.DeliverStatuses(key="k", statuses=rows))).result == "failed"
    back = trio.current_time() + 300

    def behave(asked: Asked) -> tuple[float, Answer] | None:
        return None if asked.at_seconds < back else (0.01, Answer(200, pod))

    hand.server.behaviour = behave
    assert await hand.do(d.DeliverStatuses(key="k", statuses=rows, unchanged_only=True)) == Ending()
    assert hand.server.methods()[-2:] == ["GET", "PATCH"]
    began = trio.current_time()
    hand.server.behaviour = answers(None)
    assert (await hand.do(d.DeliverStatuses(key="k", statuses=rows))).result == "failed"
    assert trio.current_time() - began == pytest.approx(5)


# Concurrent calls for pods: few to a fast server, more to a slow one.


@pytest.mark.parametrize(
    ("seconds", "most"),
    [(QUICK_SECONDS / 10, QUICK_MAX), (QUICK_SECONDS * 100, AT_ONCE_MAX)],
    ids=["fast", "slow"],
)
async def test_how_many_at_once(autojump_clock: trio.testing.MockClock, seconds: float, most: int) -> None:
    """Results keep the order of the items."""
    out, peak = 0, 0

    async def work(item: int) -> int:
        nonlocal out, peak
        out += 1
        peak = max(peak, out)
        await trio.sleep(seconds * (1 + item % 2))
        out -= 1
        return item * 2

    assert await for_each(range(100), work) == [item * 2 for item in range(100)]
    assert peak == most


# --- Events


def test_names_of_events() -> None:
    """Names differ by node, shutdown and order, and are valid DNS names."""
    name, more = f"Node.{'x' * 194}.{'y' * 50}", {"reason": "r", "message": "m"}
    long = d.PostEvent(key="l", kind="Node", name=name, **more)
    other = d.PostEvent(key="o", kind="StatefulSet", name="web", namespace="default", **more)
    names = {
        event_name(order, node, trace)
        for order in (long, other)
        for node in ("node-1", "node-2")
        for trace in (TRACE, "", "0" * 32)
    }
    assert len(names) == 12
    for name in names:
        assert len(name) < 253
        assert name == name.lower()
        assert ".." not in name


async def test_parts_of_a_list_shrink_around_large_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """And grow again behind them: a list of one request an object would outlive its continue token."""
    monkeypatch.setattr(api_calls, "PART_BYTES_MAX", 40_000)
    sizes = [9_000 if 400 <= at < 406 else 10 for at in range(2000)]
    asked: list[int] = []

    async def ask(path: str) -> Answer:
        limit, _, at = path.partition(" ")
        asked.append(int(limit))
        first, end = int(at or 0), min(int(at or 0) + int(limit), 2000)
        items = [{"metadata": {"name": str(each) + sizes[each] * "x"}} for each in range(first, end)]
        meta = {"resourceVersion": "7", "continue": str(end) if end < 2000 else ""}
        return Answer(200, msgspec.json.encode({"metadata": meta, "items": items}))

    def path(**fields: object) -> str:
        return " ".join(map(str, fields.values()))

    decoder = msgspec.json.Decoder(ListPart[PodObject])
    names, version = await list_in_parts(ask, path, decoder, lambda pod: len(pod.metadata.name), 200)
    assert (len(names), version) == (2000, "7")
    assert sum(each > 9000 for each in names) == 6
    assert asked[:3] == [200, 200, 200]
    assert min(asked) == 3
    assert asked[-5:] == [200] * 5
    assert len(asked) < 30


async def test_an_outages_event_is_posted_once(autojump_clock: MockClock) -> None:
    """The next leader adopts the order of a dead one: it finds the Event, or posts it. What refuses Events is
    asked seldom.
    """
    about = {"kind": "Pod", "name": "db-0", "namespace": "shop", "uid": "u"}
    order = PostOutageEvent(key="k", reason="NodeOutage", message="Its node is down", **about)
    caller = Scripted(answers(status(500, "failed calling webhook"), Answer(201), status(409, "exists")))
    first, next_one = (OutageEventsEdge(caller, "node-1", name, lambda: "0" * 32) for name in ("one", "two"))
    effect: Any = first.effects[PostOutageEvent]
    assert await effect(order, None) == Ending()
    assert await next_one.adopt(order, None) == Ending()  # type: ignore[arg-type]  # it puts no fact
    bodies = [each.body for each in caller.asked]
    assert len({body["metadata"]["name"] for body in bodies}) == 1
    assert bodies[0]["involvedObject"]["uid"] == "u"
    assert bodies[0]["reportingComponent"] == "ebbtide-outage"
    refused = Scripted(answers(status(500, "failed calling webhook")))
    effect = OutageEventsEdge(refused, "node-1", "one", str).effects[PostOutageEvent]
    ended = await effect(order, None)
    assert (ended.result, ended.reason) == ("failed", "the API server answered 500 failed calling webhook")
    assert len(refused.asked) < 20
