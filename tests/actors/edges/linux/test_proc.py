"""The ``/proc`` parsers, the record of a straggler, and the bounded output that it quotes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import FIRST_PROCESS_TEXT, signal_name, signal_number, verdict_of
from ebbtide.actors.edges.local_status import FILE_NAME, LocalStatusEdge
from ebbtide.actors.edges.pod_spec import ExecAction
from ebbtide.actors.edges.process.process_pods import OUTPUT_BYTES_MAX, OutputFiles
from ebbtide.actors.interfaces import Ending
from ebbtide.events.codec import decode_event, encode_event
from ebbtide.events.decisions import AnnounceNode, DeliverStatuses
from ebbtide.events.facts import AutopsyTaken
from tests.actors.edges.process.process_bed import bed_of, pod_of, python, shell
from tests.waiting import until

NUMBERS = st.integers(min_value=0, max_value=2**31)
COMMANDS = st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=15)


@given(NUMBERS, COMMANDS, st.sampled_from("RSDTtZXI"), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_stat_line_comes_back(
    pid: int, command: str, state: str, parent: int, group: int, session: int, start: int
) -> None:
    """Program names with brackets and spaces keep the fields in place."""
    rest = " ".join("0" for _ in range(15))
    text = f"{pid} ({command}) {state} {parent} {group} {session} {rest} {start} 0 0\n"
    assert proc.parse_stat(text) == proc.ProcessStat(pid, command, state, parent, group, session, start)


@given(st.integers(min_value=1, max_value=64).filter(lambda n: n not in (32, 33)))
def test_every_signal_s_name_is_its_number(number: int) -> None:
    """Signals 32 and 33 belong to the C library and have no name."""
    assert signal_number(signal_name(number)) == number
    assert signal_number(str(number)) == number


def status_of(
    blocked: int = 0, ignored: int = 0, caught: int = 0, pids: tuple[int, ...] = (7,)
) -> proc.ProcessStatus:
    return proc.ProcessStatus("S (sleeping)", blocked, ignored, caught, pids)


TERM = 1 << (signal.SIGTERM - 1)


@pytest.mark.parametrize(
    "status, name, verdict",
    [
        (status_of(), "SIGTERM", "ends"),
        (status_of(ignored=TERM), "SIGTERM", "ignores"),
        (status_of(caught=TERM), "SIGTERM", "handles"),
        (status_of(caught=TERM, blocked=TERM), "SIGTERM", "handles"),
        (status_of(blocked=TERM), "SIGTERM", "unclear"),
        (status_of(ignored=TERM), "SIGINT", "ends"),
        (status_of(pids=(7, 1)), "SIGTERM", "ignores"),
        (status_of(pids=(7, 1), caught=TERM), "SIGTERM", "handles"),
        (status_of(pids=(7, 2)), "SIGTERM", "ends"),
        (status_of(), "SIGWINCH", "ignores"),
        (status_of(pids=(7, 1), ignored=TERM), "SIGKILL", "ends"),
    ],
)
def test_a_forecast_follows_from_the_masks(status: proc.ProcessStatus, name: str, verdict: str) -> None:
    """Ignored, caught, blocked, or PID 1 of a namespace: each has its consequence and fix."""
    assert verdict_of(status, name)[0] == verdict
    if status == status_of(pids=(7, 1)):
        assert verdict_of(status, name)[1] == FIRST_PROCESS_TEXT


STRAGGLER = """
import signal, socket, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, lambda *_: None)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
other, _ = server.accept()
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
for number in range(5):
    print("line", number, flush=True)
open("{folder}/ready", "w").write("x\\n")
time.sleep(1000)
"""


async def test_an_autopsy_tells_why_it_does_not_end(tmp_path: Path) -> None:
    """Process tree, states, signals caught and ignored, open connections, last lines."""
    pod = pod_of("p", python(STRAGGLER.format(folder=tmp_path)))
    async with bed_of(tmp_path, pod, capture_lines=2) as bed:
        await bed.shows("ready")
        await until(lambda: [item.state for item in bed.processes()] == ["S", "S"], "both do not sleep")
        assert await bed.autopsy("p") == Ending()
        (fact,) = bed.outbox.of(AutopsyTaken)
        first, child = fact.processes
        assert first.command.startswith("python")
        assert child.parent_pid == first.pid
        assert child.command == "sleep"
        assert first.state == child.state == "sleeping"
        assert "sleep" in child.wait_channel
        assert "SIGTERM" in first.signals_ignored
        assert "SIGHUP" in first.signals_caught
        assert first.connections == 2
        assert fact.last_lines == ("line 3", "line 4")
        assert decode_event("AutopsyTaken", encode_event(fact)) == fact
        await bed.kill("p")


def test_an_autopsy_stops_at_its_deadline() -> None:
    """Late processes are left out, except the first; so are the ones that ended."""
    stat = proc.read_stat(os.getpid())
    assert stat is not None
    assert len(proc.examine_processes([stat] * 200, 5, lambda: 4)) == proc.PROCESSES_MAX
    assert len(proc.examine_processes([stat, stat], 5, lambda: 5)) == 1
    assert len(proc.examine_processes([stat, stat], 5, lambda: 4)) == 2
    gone = stat._replace(pid=2**22 + 1)
    assert proc.examine_processes([gone, stat._replace(start_ticks=stat.start_ticks + 1)], 5, lambda: 4) == ()


def test_the_newest_lines_of_a_bounded_file(tmp_path: Path) -> None:
    """An oversized file is emptied while its writer continues."""
    output = OutputFiles(tmp_path)
    fd = output.open("x")
    os.write(fd, b"before\n" * (OUTPUT_BYTES_MAX // 7))
    output.trim()
    assert output.tail("x", 1) == ("before",)
    os.write(fd, b"before\n")
    output.trim()
    os.write(fd, b"first\nsecond\n")
    assert output.tail("x", 3) == ("first", "second")
    os.close(fd)


async def test_output_that_nobody_reads_is_not_kept(tmp_path: Path) -> None:
    """Endless output of a pod or its hook fills no disk and blocks neither."""
    hook = ExecAction(argv=("sh", "-c", "yes 0123456789 | head -c 1000000"))
    async with bed_of(tmp_path, pod_of("p", shell("exec yes 0123456789", pre_stop=hook))) as bed:
        assert await bed.order(bed.hook("p")) == Ending(exit_code=0)
        (pid,) = {item.pid for item in bed.processes()}
        assert os.readlink(f"/proc/{pid}/fd/1") == "/dev/null"
        assert not list((bed.state_dir / "output").iterdir())
        await bed.kill("p")


IMPORTS = """
import resource, sys, trio
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.actors.edges.process.process_bed import Ending, PodAppeared, running, hook_pod, nothing_left
from ebbtide.actors.edges.pod_spec import ExecAction, HttpGetAction

async def main(uid, action):
    async with running(Path({folder!r}) / uid, [hook_pod(uid, action)]) as bed:
        await bed.start(uid)
        bed.edge.prewarm()
        before = set(sys.modules)
        print("h11" in before)
        await bed.order(bed.hook(uid))
        await bed.autopsy(uid)
        await bed.inventory()
        await bed.signal(uid)
        await bed.kill(uid)
        await nothing_left(bed)
        print(sorted(set(sys.modules) - before))

trio.run(main, "a", ExecAction(argv=("true",)))
trio.run(main, "b", HttpGetAction(port=1, host="localhost", scheme="HTTPS"))
"""


def test_a_shutdown_imports_nothing(tmp_path: Path) -> None:
    """After prewarming no module is read from a failing disk; h11 only for hooks that need it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    text = IMPORTS.format(root=str(Path(__file__).parents[4]), folder=str(tmp_path))
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["False", "[]", "True", "[]"]


async def test_statuses_are_in_a_file_that_survives(tmp_path: Path) -> None:
    """The node's condition and the pods' statuses are written atomically and read back."""
    edge, outbox = LocalStatusEdge(tmp_path), None
    down = AnnounceNode(key="a", ready=False, reason="KubeletNotReady", message="node is shutting down")
    statuses = DeliverStatuses(
        key="d", statuses=(("u", "Failed", "Terminated", "why"), ("v", "Succeeded", "", ""))
    )
    assert await edge.effects[AnnounceNode](down, outbox) == Ending()  # type: ignore[arg-type,misc]
    assert await edge.adopt(statuses, outbox) == Ending()  # type: ignore[arg-type]
    node = msgspec.json.decode((tmp_path / FILE_NAME).read_bytes())
    assert node["conditions"] == [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "node is shutting down"}
    ]
    assert node["pods"]["u"] == {"uid": "u", "phase": "Failed", "reason": "Terminated", "message": "why"}
    again = LocalStatusEdge(tmp_path)
    assert await again.adopt(AnnounceNode(key="b", ready=True), outbox) == Ending()  # type: ignore[arg-type]
    node = msgspec.json.decode((tmp_path / FILE_NAME).read_bytes())
    assert node["conditions"][0]["status"] == "True"
    assert set(node["pods"]) == {"u", "v"}
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
