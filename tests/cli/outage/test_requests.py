"""`outage pause` and `outage close`: a person's requests on the controller's Lease."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

import msgspec
import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.lease_requests import (
    REQUESTS_ANNOTATION,
    Request,
    Requests,
    read_requests,
)
from ebbtide.cli.outage import outage_common
from ebbtide.cli.outage import outage_requests as verb
from ebbtide.cli.outage.outage_common import Cluster
from tests.conftest import Run

GONE = Answer(404, b"{}")


class Server:
    """A Lease that its leader renews at the first ``conflicts`` tries, and the Node ``worker``."""

    def __init__(self, conflicts: int = 0, ready: str = "Unknown") -> None:
        self.lease: Any = {"metadata": {"name": "ebbtide-outage", "resourceVersion": "1"}, "spec": {}}
        self.conflicts, self.ready = conflicts, ready

    async def call(self, method: str, path: str, body: Any = None, **fields: Any) -> Answer:
        if "/leases/" not in path:
            conditions = [{"type": "Ready", "status": self.ready}]
            node = {
                "metadata": {"name": "worker", "uid": "u"},
                "spec": {},
                "status": {"conditions": conditions},
            }
            return Answer(200, msgspec.json.encode(node)) if path.endswith("/worker") else GONE
        if self.lease is None:
            return GONE
        if method == "PATCH":
            assert body["metadata"]["resourceVersion"] == self.lease["metadata"]["resourceVersion"]
            if self.conflicts:
                self.conflicts -= 1
                return Answer(409, b"{}")
            self.lease["metadata"]["annotations"] = body["metadata"]["annotations"]
        return Answer(200, msgspec.json.encode(self.lease))

    @property
    def requests(self) -> Requests:
        return read_requests(self.lease)


def use(server: object, verb: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb asks this server, in place of a cluster's."""

    def ask(access: object, work: Callable[[Cluster], Awaitable[Any]]) -> Any:
        return trio.run(work, Cluster(server))  # type: ignore[arg-type]  # what it calls

    monkeypatch.setattr(outage_common, "chosen_kubeconfig", lambda given: None)
    monkeypatch.setattr(verb, "ask_cluster", ask)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    use(made, verb, monkeypatch)
    return made


def test_pause_one_and_all(run: Run, server: Server) -> None:
    """Each pause is withdrawn by itself; the leader's own writes in between cost a try."""
    server.conflicts = 2
    ran = run("outage", "pause", "worker", "--by", "ann", "--why", "its firmware")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "paused: no taint and no power-off of worker, by ann\n"
    assert (
        run("outage", "pause", "--by", "bob").out
        == "paused: no taint and no power-off of every node, by bob\n"
    )
    assert server.requests.pause["worker"].why == "its firmware"
    assert server.requests.paused("other") == "bob"
    ran = run("outage", "pause", "--withdraw")
    assert ran.out == "withdrawn; still paused: worker\n"
    assert run("outage", "pause", "worker", "--withdraw").out == "withdrawn: worker is not paused\n"
    assert server.lease["metadata"]["annotations"] == {REQUESTS_ANNOTATION: None}


def test_close(run: Run, server: Server) -> None:
    """Requests of yesterday are forgotten, pauses are kept."""
    kept = Requests({"": Request("bob", "noon")}, {"old": Request("ann", "2020-01-01T00:00:00Z", "old")})
    server.lease["metadata"]["annotations"] = {REQUESTS_ANNOTATION: msgspec.json.encode(kept).decode()}
    ran = run("outage", "close", "worker", "--by", "ann", "--why", "db was scaled down")
    assert ran.code == 0
    assert "worker is Unknown: its outage ends when it is back, or when its Node is deleted" in ran.err
    assert [*server.requests.close] == ["worker"]
    assert server.requests.close["worker"].why == "db was scaled down"
    assert server.requests.pause == kept.pause
    ran = run("outage", "close", "gone", "--by", "ann", "--why", "it is gone")
    assert "there is no Node gone: an outage of that name ends now" in ran.err


def test_what_is_refused(run: Run, server: Server) -> None:
    for arguments, line in (
        (("close", "worker"), "missing option '--why'"),
        (("close", "worker", "--by", "ann", "--why", "x" * 201), "--why has 201 characters: 200 at most"),
        (("close", "worker", "--by", "ann", "--why", ""), "--why is empty"),
        (("pause", "--by", "a\nb"), "--by"),
    ):
        ran = run("outage", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert line in ran.err
    server.conflicts = 9
    assert "changed by others at each of 5 tries" in run("outage", "pause", "--by", "ann").err
    server.lease = None
    assert "no controller has ever led in ebbtide" in run("outage", "pause", "--by", "ann").err


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ('{"pause":{"":{"by":"ann","at":"x"}}}', "ann"),
        ('{"pause":{"":{"by":"ann","at":"x"}},"close":{"w1":{"by":1}}}', "unreadable"),
        ('{"pause":{"":{"by":"Ann Lee","at":"x"}}}', "unreadable"),
        ('{"pause":{"n1":{"by":"ann","at":"x","why":"' + "y" * 201 + '"}}}', "unreadable"),
        ('{"pause":{"n2":{"by":"Ann Lee","at":"x"}}}', ""),
        ('{"pause":{},}', "unreadable"),
        ("x" * 2**17, "unreadable"),
        ("", ""),
    ],
)
def test_a_pause_that_cannot_be_read_pauses(text: str, by: str, run: Run, server: Server) -> None:
    """And `--withdraw` ends it."""
    server.lease["metadata"]["annotations"] = {REQUESTS_ANNOTATION: text}
    assert server.requests.paused("n1") == by
    assert run("outage", "pause", "--withdraw").code == 0
    assert run("outage", "pause", "n1", "--withdraw").code == 0
    assert server.requests.paused("n1") == ""


def test_a_pause_of_an_unknown_node_is_remarked(run: Run, server: Server) -> None:
    ran = run("outage", "pause", "w2-typo", "--by", "ann")
    assert (ran.code, "there is no Node w2-typo" in ran.err) == (0, True)
    assert server.requests.pauses_text("worker") == ""
    assert server.requests.pauses_text() == "w2-typo by ann"
