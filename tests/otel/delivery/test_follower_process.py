"""The exporter's exit: messages and restarts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from benchmarks.episodes import lay_out
from ebbtide import side_process
from ebbtide.otel.delivery.destination import Destination
from ebbtide.side_process import EXIT_KEPT, EXIT_WRONG, OtlpJob, encode_line
from ebbtide.tracing import TracingEdge
from tests.daemon.test_tracing import Journal, Outlet

ENDPOINT = "https://localhost:1/v1/traces"


ARGV = [sys.executable, "-P", "-m", "ebbtide.follower"]


def run(job: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(ARGV, input=job, capture_output=True, check=False)


JOBS = [
    (
        OtlpJob(destination=Destination(endpoint=ENDPOINT), locations=("/nowhere/at/all",)),
        EXIT_KEPT,
        "cannot be read",
    ),
    (
        OtlpJob(destination=Destination(endpoint=ENDPOINT, certificate="/nowhere.pem"), locations=("/tmp",)),
        EXIT_WRONG,
        "nowhere.pem",
    ),
]


@pytest.mark.parametrize("job, code, words", JOBS)
def test_what_is_in_the_way_is_a_line_and_a_code(job: OtlpJob, code: int, words: str) -> None:
    """No traceback, and not the code of one."""
    done = run(encode_line(job))
    assert (done.returncode, done.stderr) == (code, b"")
    assert words in done.stdout.decode()


@pytest.mark.parametrize(
    "code, starts", [(1, side_process.CRASHES_MAX + 1), (EXIT_KEPT, 1), (EXIT_WRONG, 1), (-9, 4)]
)
async def test_only_crashes_are_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, starts: int,
    autojump_clock: trio.testing.MockClock,
) -> None:  # fmt: skip
    """A traceback restarts soon, a few times; an exporter's own error waits."""
    lay_out(tmp_path, 1, 1)
    edge = TracingEdge(Destination(endpoint="http://localhost:1/"), [str(tmp_path)], Journal(tmp_path), print)
    lives = []

    async def live() -> int:
        lives.append(code)
        await trio.sleep(1)
        return code

    monkeypatch.setattr(edge, "_live", live)
    edge.want()
    with trio.move_on_after(side_process.AGAIN_SECONDS / 2):
        await edge.run(Outlet())
    assert len(lives) == starts
