"""``status``, ``hurry`` and ``release``: requests to a daemon, and the answer without one."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import StreamRequestHandler, UnixStreamServer
from types import SimpleNamespace
from typing import Any

import pytest

from ebbtide.cli.status import LOCK_TEXTS
from ebbtide.control import ControlError, Request, control_verbs
from ebbtide.daemon_status import DaemonStatus, node_json
from ebbtide.events.base import Event
from ebbtide.events.decisions import DetachCertified, HandedOver, LeftUndone, MeansChosen, PodPlanned
from ebbtide.events.facts import HurryRequested
from ebbtide.events.record.shutdown_record import PodRecord
from ebbtide.events.segment import Identity
from ebbtide.events.values import Pod
from tests.cli.bed import whole_shutdown
from tests.commands import Run
from tests.journals import began, steps

GOLDEN = Path(__file__).parent / "golden"

STATUS: dict[str, Any] = {
    "kind": "Status",
    "version": 1,
    "enabled": True,
    "armed": True,
    "whyNot": "",
    "grantSeconds": 35.0,
    "neededSeconds": 35.0,
    "sufficient": True,
    "scheduledTime": None,
    "armedSince": None,
    "lastBoot": None,
    "mode": "process",
    "unheard": "",
    "endedPods": [],
    "shipping": None,
    "node": None,
    "phase": "idle",
    "lastOutcome": "",
    "journal": {"id": "00", "location": "/j", "writtenSeq": 12, "syncedSeq": 12, "head": ""},
    "shutdown": None,
}
RUNNING = {
    **STATUS,
    "armed": False,
    "whyNot": "a shutdown runs",
    "phase": "running",
    "shutdown": {
        "id": "00-1",
        "leftSeconds": 7.25,
        "waves": [
            {"wave": 0, "priority": 0, "pods": 1, "phase": "complete"},
            {"wave": 1, "priority": 1000, "pods": 1, "phase": "running"},
            {"wave": 2, "priority": 2000, "pods": 0, "phase": "waiting"},
        ],
        "pods": [
            {"pod": "shop/web-0", "wave": 0, "phase": "killed", "reason": "its grace of 20 s was over"},
            {"pod": "shop/db-0", "wave": 1, "phase": "SIGTERM", "reason": ""},
        ],
    },
}


class Daemon:
    """A daemon's socket with scripted answers; keeps the requests."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"ok": True, "data": STATUS}
        #: By verb; a missing verb is unknown to the daemon, if it has any.
        self.answers: dict[str, Any] = {}
        reply = self._reply

        class Handler(StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(json.dumps(reply(json.loads(self.rfile.readline()))).encode() + b"\n")

        self._server = UnixStreamServer(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        if not self.answers:
            return self.answer
        data = self.answers.get(request["verb"])
        return {"ok": False, "error": "not a request"} if data is None else {"ok": True, "data": data}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "ebbtide.sock")
    yield made
    made.close()


def test_status_without_a_daemon(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 with the fix; the journal still shows the last shutdown."""
    whole_shutdown(tmp_path / "journal")
    other = run("status", "--runtime", tmp_path, "--journal", tmp_path / "journal")
    assert other.code == 1
    assert "is another machine's" in other.out
    identity = Identity(node="", machine_id="machine-1", boot_id="b", code_version="0")
    monkeypatch.setattr("ebbtide.host.journal_identity", lambda node: identity)
    probe = run("status", "--ready", "--runtime", tmp_path)
    assert (probe.code, probe.out, probe.err.count("\n")) == (1, "", 1)
    ran = run("status", "--runtime", tmp_path, "--journal", tmp_path / "journal")
    assert (ran.code, ran.err) == (1, "")
    assert "start it with 'ebbtide run'" in ran.out
    assert "poweroff" in ran.out
    assert "complete" in ran.out
    assert re.search(r"trace [0-9a-f]{32}", ran.out)


def test_another_machines_journal_does_not_show_the_daemon_here(
    run: Run, daemon: Daemon, tmp_path: Path
) -> None:
    """Its last shutdown, and no word of this machine's lock."""
    whole_shutdown(tmp_path / "other")
    daemon.answer = {"ok": True, "data": STATUS}
    ran = run("status", "--runtime", tmp_path, "--journal", tmp_path / "other")
    assert ran.code == 0
    assert "writes another journal" in ran.out
    assert "armed" not in ran.out
    assert "poweroff" in ran.out


def test_a_named_place_without_a_journal(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """2, as of every verb, also while the daemon answers."""
    for place in (tmp_path / "nonexistent", Path(__file__)):
        ran = run("status", "--runtime", tmp_path, "--journal", place)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert str(place) in ran.err


@pytest.mark.parametrize("changed, ended", [
    ({}, (0, "")),
    ({"armed": False, "phase": "running"}, (0, "")),
    ({"armed": False, "enabled": False}, (0, "")),
    ({"armed": False, "whyNot": "the bus is gone"}, (1, "ebbtide: not armed: the bus is gone\n")),
    ({"unheard": "the API server"}, (1, "ebbtide: armed, but no answer yet: the API server\n")),
], ids=["armed", "going-down", "switched-off", "not-armed", "unheard"])  # fmt: skip
def test_a_probe_asks_the_daemon_alone(
    run: Run, daemon: Daemon, tmp_path: Path, changed: dict[str, Any], ended: tuple[int, str]
) -> None:
    """Disabled by configuration is ready; no journal is read."""
    daemon.answer = {"ok": True, "data": STATUS | changed}
    ran = run("status", "--ready", "--runtime", tmp_path, "--journal", "/dev/null")
    assert (ran.code, ran.err, ran.out) == (*ended, "")


def test_status_in_mid_shutdown_shows_the_pods(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """Progress, remaining time and each pod's phase; a lost lock comes first, in capitals."""
    daemon.answer = {"ok": True, "data": RUNNING}
    ran = run("status", "--runtime", tmp_path, "--journal", tmp_path)
    assert (ran.code, ran.out) == (0, (GOLDEN / "status-running.txt").read_text())
    for lock, text in LOCK_TEXTS.items():
        shutdown = {**RUNNING["shutdown"], "lock": lock}
        daemon.answer = {"ok": True, "data": {**RUNNING, "shutdown": shutdown}}
        first, _, rest = run("status", "--runtime", tmp_path, "--journal", tmp_path).out.partition("\n")
        assert first == f"lock           {text}"
        assert rest == ran.out
        daemon.answer = {"ok": True, "data": {**RUNNING, "armed": True, "shutdown": shutdown}}
        assert "is held" not in run("status", "--runtime", tmp_path, "--journal", tmp_path).out
    assert LOCK_TEXTS["lost"].startswith("LOCK LOST: ")


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        (600, "not known: the journal is corrupt"),
        (-600, "or a later one that cannot be read: the journal is"),
    ],
)
def test_a_damaged_journal_is_not_called_empty(run: Run, tmp_path: Path, offset: int, first: str) -> None:
    """The usual exit code for damage; the last earlier shutdown is marked so."""
    whole_shutdown(tmp_path / "journal")
    (segment,) = (tmp_path / "journal").glob("*.ebj")
    damaged = bytearray(segment.read_bytes())
    damaged[offset] ^= 0xFF
    segment.write_bytes(damaged)
    ran = run("status", "--runtime", tmp_path, "--journal", tmp_path / "journal")
    assert (ran.code, ran.err.count("the journal is corrupt")) == (5, 1)
    assert first in ran.out
    assert "none in the journal" not in ran.out
    said = json.loads(
        run("status", "--runtime", tmp_path, "--journal", tmp_path / "journal", "-o", "json").out
    )
    assert (said["journalDamage"], said["lastShutdown"] is None) == ("corrupt", offset > 0)


def test_hurry_and_release_ask_the_daemon(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """The socket gets the verb with the pod; a refusal is quoted."""
    daemon.answer = {"ok": True, "data": {}}
    assert run("hurry", "shop/web-0", "--runtime", tmp_path).code == 0
    assert run("release", "--runtime", daemon.path.parent).code == 0
    assert daemon.asked == [{"verb": "hurry", "pod": "shop/web-0"}, {"verb": "release"}]
    daemon.answer = {"ok": False, "error": "no shutdown is running: there is nothing to release"}
    ran = run("release", "--runtime", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "ebbtide: no shutdown is running: there is nothing to release\n"


class Heard(list[Event]):
    async def put(self, *facts: Event) -> None:
        self.extend(facts)


async def test_a_name_in_two_namespaces_is_nobodys() -> None:
    """Both are listed and can be chosen; an ended pod is not hurried."""
    pods = {
        uid: PodRecord(uid=uid, namespace=namespace, name=name, outcome="killed" if uid == "c" else None)
        for uid, namespace, name in (
            ("a", "shop", "web"),
            ("b", "blog", "web"),
            ("c", "shop", "db"),
            ("d", "blog", "db"),
        )
    }
    heard = Heard()
    shutdown: Any = SimpleNamespace(phase="running", pods=pods)
    hurry = control_verbs(shutdown, heard, dict, dict, dict)["hurry"]  # type: ignore[arg-type]
    with pytest.raises(ControlError, match="'web' names 2 pods: name one of blog/web, shop/web"):
        await hurry(Request("hurry", "web"), 0)
    assert heard == []
    with pytest.raises(ControlError, match=r"pod 'shop/db' has ended already \(killed\)"):
        await hurry(Request("hurry", "shop/db"), 0)
    assert heard == []
    await hurry(Request("hurry", "blog/web"), 0)
    await hurry(Request("hurry", "db"), 0)
    assert heard == [HurryRequested(pod=name, asked_by=0) for name in ("blog/web", "db")]


# --- on a Kubernetes node


def test_a_shutdown_on_a_node(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    """Means, the reason for a hand-over, obstacles to detaching, pods by name."""
    standing = DaemonStatus(kubelet=True, runtime=True, api=True)
    standing.fold(
        steps(
            began(),
            MeansChosen(means="api", reason="mode api"),
            PodPlanned(wave=0, grace_seconds=1, pod=Pod(uid="u-1", namespace="shop", name="db-0")),
            HandedOver(reason="the API server refused"),
            DetachCertified(safe=False, ended=3, running=("u-1",), mounted=(("u-1", "pv"),)),
            LeftUndone(running=("u-1",)),
        )
    )
    answer = {**STATUS, "mode": "auto", "node": json.loads(json.dumps(node_json(standing)))}
    daemon.answer = {"ok": True, "data": answer}
    out = run("status", "--runtime", tmp_path, "--journal", tmp_path).out
    rows = {line[:15].strip(): line[15:] for line in out.splitlines()}
    assert rows["pods ended by"] == "api (mode api)"
    assert rows["handed over"] == "the API server refused"
    assert rows["left undone"] == "shop/db-0"
    assert rows["volumes"] == "not safe to detach: 1 pods running, 1 volumes mounted"
