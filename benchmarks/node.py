"""A node to measure: the real daemon under the real logind of the test bed, with pods that are processes.

Needs root and what `tests.beds.logind` needs. Everything lives in one folder that goes afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import trio
from jeepney import new_method_call
from jeepney.wrappers import unwrap_msg

from tests.beds.logind import LOGIN1, LogindBed, logind_bed, missing

ROOT = Path(__file__).parents[1]
WAIT_SECONDS_MAX = 60.0
POLL_SECONDS = 0.002
MEMORY = Path("/dev/shm")
WAVE_SECONDS = 10

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  priority: {priority}
  terminationGracePeriodSeconds: {grace}
  containers:
  - name: main
    image: none
    command: {command}
"""

CONFIG = """\
apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriodByPodPriority:
{periods}
journalFallbacks: []
"""


class Node:
    """Folders of one daemon, and its process while it runs."""

    def __init__(self, folder: Path, runtime: Path, bed: LogindBed, waves: int = 3) -> None:
        self.folder = folder
        self.bed = bed
        self.pods = folder / "pods"
        self.pods.mkdir()
        self.log = folder / "log"
        self.config = folder / "config.yaml"
        periods = "\n".join(
            f"- {{priority: {wave * 1000}, shutdownGracePeriodSeconds: {WAVE_SECONDS}}}"
            for wave in range(waves)
        )
        self.config.write_text(CONFIG.format(periods=periods))
        self.runtime = runtime
        self.process: subprocess.Popen[bytes] | None = None
        self.program: Sequence[str] = (str(Path(sys.executable).with_name("ebbtide")),)

    @property
    def socket(self) -> Path:
        return self.runtime / "ebbtide.sock"

    @property
    def pid(self) -> int:
        """``nsenter`` and the launcher replace themselves: it is the daemon."""
        assert self.process is not None
        return self.process.pid

    def pod(
        self, name: str, command: Sequence[str], priority: int = 0, grace_seconds: int = WAVE_SECONDS
    ) -> None:
        """A manifest; a daemon that runs starts it."""
        text = POD.format(
            name=name, priority=priority, grace=grace_seconds, command=json.dumps(list(command))
        )
        hidden = self.pods / f".{name}"
        hidden.write_text(text)
        hidden.rename(self.pods / f"{name}.yaml")

    def start(self) -> None:
        """Exec the daemon inside the bed's namespace."""
        environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": self.bed.address}
        environ.pop("NOTIFY_SOCKET", None)
        environ["PYTHONPATH"] = str(ROOT)
        options = ("--mode", "process", "--pods", self.pods, "--config", self.config)
        places = ("--journal", self.folder / "journal", "--runtime", self.runtime)
        argv = [*self.bed.enter, *self.program, "run", *map(str, (*options, *places))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def said(self) -> str:
        return self.log.read_text()

    async def until_said(self, word: str, times: int = 1) -> None:
        """Wait for the log to say it so often."""
        with trio.fail_after(WAIT_SECONDS_MAX):
            while self.said().count(word) < times:
                if self.process is None or self.process.poll() is not None:
                    raise RuntimeError(f"the daemon ended: {self.said()}")
                await trio.sleep(POLL_SECONDS)

    async def until_armed(self) -> float:
        """Wait until logind lists the lock; the time of the answer that showed it (perf_counter)."""
        async with self.bed.client() as router:
            with trio.fail_after(WAIT_SECONDS_MAX):
                while True:
                    reply = await router.send_and_get_reply(new_method_call(LOGIN1, "ListInhibitors"))
                    (rows,) = unwrap_msg(reply)
                    if any(row[1] == "ebbtide" for row in rows):
                        return time.perf_counter()
                    await trio.sleep(POLL_SECONDS)

    async def until_running(self, count: int) -> None:
        """Wait until the daemon has so many children."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with trio.fail_after(WAIT_SECONDS_MAX):
            while len(children.read_text().split()) != count:
                await trio.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """A plain stop: the pods go on."""
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def node(waves: int = 3) -> AsyncIterator[Node]:
    """A bed and a node in it. Exits with a message where the bed cannot be had. Leaves nothing behind, also
    when it is told to end (SIGTERM).
    """
    if reason := missing():
        sys.exit(f"the logind bed {reason}")
    folder = Path(tempfile.mkdtemp(prefix="ebbtide-bench."))
    # As /run, where it belongs: in memory, gone with the boot.
    runtime = Path(tempfile.mkdtemp(prefix="ebbtide-bench.", dir=MEMORY if MEMORY.is_dir() else None))
    async with logind_bed() as bed:
        await bed.config("/run/systemd/logind.conf.d/10-bench.conf", "10min")
        await bed.hang_up()
        made = Node(folder, runtime, bed, waves)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_end_on_request)
                yield made
                nursery.cancel_scope.cancel()
        finally:
            made.stop()
            end_all(runtime)
            for place in (folder, runtime):
                shutil.rmtree(place, ignore_errors=True)


async def _end_on_request() -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            raise KeyboardInterrupt


def end_all(runtime: Path) -> None:
    """What pods of ours still run: by the marks in their environment, never by name."""
    mark = os.fsencode(str(runtime))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
