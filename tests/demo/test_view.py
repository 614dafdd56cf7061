"""The live view: single frames, and a real run on a terminal."""

from __future__ import annotations

import importlib
import re
import sys
import xml.etree.ElementTree as Xml
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from ebbtide.cli.common.guard import guarded
from ebbtide.daemon_status import DaemonStatus
from ebbtide.demo.demo_run import NEXT_COMMANDS, live_frame
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.shutdown_record import ContainerRecord, PodRecord, WaveRecord
from tests.demo.test_run import COMMAND
from tests.journals import DEMO

TOOLS = Path(__file__).parents[2] / "docs" / "tools"


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    """The program that makes the README's picture; its terminal is readable."""
    sys.path.insert(0, str(TOOLS))
    return importlib.import_module("record_demo")


# --- frames


def pod(name: str, wave: int, outcome: PodOutcome | None = None, reason: str = "", **more: Any) -> PodRecord:
    return PodRecord(
        uid=name,
        namespace="shop",
        name=name,
        wave=wave,
        grace_seconds=5,
        outcome=outcome,
        reason=reason,
        began_ns=None if wave else 0,
        **more,
    )


def standing() -> Any:
    """One second into a shutdown of two waves."""
    times = {"began_ns": NS_PER_SECOND, "deadline_ns": 11 * NS_PER_SECOND, "released_ns": 0}
    made = SimpleNamespace(kind="reboot", **times)
    first = {"outcome": "open", "began_ns": 0, "deadline_ns": 6 * NS_PER_SECOND}
    waves = [
        WaveRecord(index=0, priority=0, planned_ns=6 * NS_PER_SECOND, **first),
        WaveRecord(index=1, priority=1000, planned_ns=4 * NS_PER_SECOND),
    ]
    made.shutdown = SimpleNamespace(waves=waves, decided_ns={"web-0": NS_PER_SECOND})
    stopped = ContainerRecord(name="web", signalled_ns=0)
    made.pods = {
        "a": pod("web-0", 0, "graceful", "exit code 0"),
        "b": pod("web-1", 0, containers=(stopped,)),
        "c": pod("db-0", 1),
    }
    return made


def drawn(of: DaemonStatus, now_ns: int, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(live_frame(of, now_ns))
        return console.export_text()


def test_a_frame_tells_waves_pods_and_the_time_left() -> None:
    lines = [line.rstrip() for line in drawn(standing(), 3 * NS_PER_SECOND, 90).splitlines()]
    assert re.fullmatch(r"reboot  1 of 3 pods in 2 waves +8 s of 10 s left", lines[0])
    text = "\n".join(lines)
    assert re.search(r"wave 0 +priority 0 +1/2 .* 2 s of 6 s", text)
    assert re.search(r"✓ shop/web-0 +graceful +1 s exit code 0", text)
    assert re.search(r"● shop/web-1 +SIGTERM +2 s grace 5 s", text)
    assert re.search(r"wave 1 +priority 1000 +0/1 4 s, waiting", text)
    assert "shop/db-0" not in text


def test_time_does_not_run_below_zero() -> None:
    text = drawn(standing(), 100 * NS_PER_SECOND)
    assert "0 s of 10 s left" in text
    assert "6 s of 6 s" in text


# --- a real run


@pytest.mark.proof
def test_on_a_terminal_it_is_live_and_ends_with_the_page(
    recorder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view changes in place and vanishes; the last page stays. Its picture is a small file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    taken = recorder.frames(recorder.run(COMMAND))
    texts = ["\n".join("".join(cell.character for cell in row) for row in each.screen) for each in taken]
    live = [text for text in texts if "left" in text and "wave 3" in text]
    assert len(live) > 10
    assert all(text.count("wave 3 ") == 1 for text in live), "a view was drawn below another"
    left = [float(found) for text in live for found in re.findall(r"([\d.]+) s of 12 s left", text)]
    assert left == sorted(left, reverse=True)
    assert any("preStop sleep" in text for text in live)
    assert any("SIGQUIT" in text for text in live)
    assert "wave 0  " not in texts[-1]
    assert "Look further:" in texts[-1]
    picture = recorder.Picture(taken).svg()
    assert len(picture) < 300_000
    assert Xml.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_readmes_picture_is_a_recording() -> None:
    text = (TOOLS.parent / "demo.svg").read_text()
    assert Xml.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text) < 300_000
    assert "<script" not in text
    assert "kube-system/logs-0" in text


# --- where a reader is sent next


def test_each_of_them_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _, command in NEXT_COMMANDS:
        assert guarded([*command.split(), "--journal", str(DEMO)]) == 0, command
