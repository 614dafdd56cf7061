"""Refusals of `outage declare` and `outage run` before any request; a declared node that is tainted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ebbtide.actors.edges.kubernetes.api_calls import Answer, rfc3339_now
from ebbtide.actors.edges.kubernetes.node_view import ALIVE_ANNOTATION, NOTE_ANNOTATION, OUT_OF_SERVICE
from ebbtide.cli.outage import outage_declare as verb
from tests.cli.outage.test_requests import use
from tests.conftest import Run


class Server:
    """One Node with our taint. ``said``: its other annotations."""

    def __init__(self, **said: str) -> None:
        self.said = said

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        added = "2026-01-01T00:00:00Z"
        taint = {"key": OUT_OF_SERVICE, "effect": "NoExecute", "timeAdded": added}
        note = msgspec.json.encode({"effect": "NoExecute", "added": added}).decode()
        meta = {"name": "worker", "uid": "uid-worker", "annotations": {NOTE_ANNOTATION: note} | self.said}
        node = {"metadata": meta, "spec": {"taints": [taint]}, "status": {"nodeInfo": {"bootID": "boot-1"}}}
        return Answer(200, msgspec.json.encode(node))


def test_off_is_refused_while_somebody_says_alive(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contradiction would win, so no write happens."""
    said = {"uid": "uid-worker", "boot": "boot-1", "by": "db-2", "seconds": 600, "at": rfc3339_now()}
    use(Server(**{ALIVE_ANNOTATION: msgspec.json.encode(said).decode()}), verb, monkeypatch)
    ran = run("outage", "declare", "worker", "--off", "--by", "ann", "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        "ebbtide: db-2 has declared worker alive, so it cannot be declared off: ask them, then"
    )


def test_who_says_that_it_lives_hears_that_it_is_tainted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later proofs are refused; an existing one continues."""
    use(Server(), verb, monkeypatch)
    ran = run("outage", "declare", "worker", "--alive", "--by", "db-2")
    assert (ran.code, ran.out.split(":")[0]) == (0, "declared")
    assert ran.err.startswith("our taint is set already, and stays")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "config is not a file: name a kubeconfig with --kubeconfig PATH"),
        ("{", "config: no kubeconfig: "),
        ("- 1", "config: no kubeconfig: "),
        ("apiVersion: v1\nkind: Config\n", "config: "),
    ],
)
def test_what_is_no_kubeconfig(run: Run, tmp_path: Path, text: str | None, line: str) -> None:
    """A file of an impossible type is refused without retries."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    ran = run("outage", "run", "--kubeconfig", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert line in ran.err
