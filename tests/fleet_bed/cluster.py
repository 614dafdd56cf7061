"""A Spark standalone cluster on loopback: a master and one-core workers.

    with cluster(folder, workers=2) as spark:
        command(spark, folder, "fleet", "verify", "--journals", url, "--engine", "spark")

They are the pip package's own programs. Each ends with its process group.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.beds.inside import PROJECT
from tests.commands import Ran
from tests.fleet_bed.environment import executors_archive, spark_home, spark_python
from tests.waiting import WATCHDOG_SECONDS, until_sync

LOOPBACK = "127.0.0.1"
#: Spark's timeouts, raised for busy machines.
PATIENT = f"{WATCHDOG_SECONDS:.0f}"
#: A worker's memory for its one executor: the heap and the JVM's overhead.
WORKER_MEMORY, HEAP = "1g", "512m"
#: Fewer collector and compiler threads for two processors.
JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Cluster(NamedTuple):
    """``url``: the master's, ``ui``: its page; ``home``: Spark's."""

    url: str
    ui: str
    home: Path
    workers: int
    environment: dict[str, str]
    worker_pids: tuple[int, ...] = ()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in held]


@contextlib.contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """Raises tests.beds.rootfs.Unavailable."""
    home = spark_home(spark_python())
    port, ui, *uis = free_ports(2 + workers)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "SPARK_HOME": str(home),
        "SPARK_NO_DAEMONIZE": "1",
        # As in spark-submit: the archive has no Spark.
        "PYTHONPATH": ":".join(map(str, sorted((home / "python" / "lib").glob("*.zip")))),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "192m",
        "SPARK_DAEMON_JAVA_OPTS": f"{JVM_OPTIONS} -Dspark.worker.timeout={PATIENT}",
    }
    found = Cluster(f"spark://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{ui}", home, workers, environment)
    at = ("--host", LOOPBACK, "--webui-port")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_daemon(found, folder, "master.Master", *at, str(ui), "--port", str(port)))
        pids = []
        for number, own in enumerate(uis):
            limits = ("--cores", "1", "--memory", WORKER_MEMORY, "-d", str(folder / f"worker-{number}"))
            started = _daemon(
                found, folder, "worker.Worker", *at, str(own), *limits, found.url, number=number
            )
            pids.append(stack.enter_context(started).pid)
        _wait_for_workers(found, folder)
        yield found._replace(worker_pids=tuple(pids))


@contextlib.contextmanager
def _daemon(
    found: Cluster, folder: Path, name: str, *arguments: str, number: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    argv = [str(found.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with open(folder / f"{name}-{number}.log", "wb") as log:
        process = subprocess.Popen(
            argv, cwd=folder, env=found.environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait_for_workers(found: Cluster, folder: Path) -> None:
    def alive() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{found.ui}/json/") as page:
            return bool(json.load(page)["aliveworkers"] == found.workers)
        return False

    def logs() -> str:
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log"))

    until_sync(alive, logs)


def application(found: Cluster) -> dict[str, str]:
    return {
        "spark.master": found.url,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.executor.memory": HEAP,
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.cores.max": str(found.workers),
        # Python's start can exceed the default 15 s on a busy machine.
        "spark.python.authenticate.socketTimeout": f"{PATIENT}s",
        "spark.network.timeout": f"{PATIENT}s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
    }


def driver_home(folder: Path) -> Path:
    """A driver's folder with the archive unpacked as ``environment``, like executors.

    Executors run a source's reader by the driver's path: it must exist on both sides.
    """
    home = folder / "driver"
    if not home.exists():
        (home / "environment").mkdir(parents=True)
        subprocess.run(["tar", "-xzf", executors_archive(), "-C", home / "environment"], check=True)
    return home


EBBTIDE = "from ebbtide.cli import main; main()"


def command(
    found: Cluster, folder: Path, *words: str | Path, code: str = EBBTIDE, packed: bool = True, **environ: str
) -> Ran:
    """Run ``ebbtide`` (or other ``code``) as a separate application. Its executors use the driver's
    Python, with the archive, or with this checkout if not ``packed``.
    """
    settings = application(found)
    settings |= {f"spark.executorEnv.{name}": environ[name] for name in environ if name.startswith("AWS_")}
    path = found.environment["PYTHONPATH"]
    if packed:
        python = driver_home(folder) / "environment/bin/python"
    else:
        python, path = spark_python(), f"{path}:{PROJECT}"
        settings["spark.executorEnv.PYTHONPATH"] = path
    options = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    environment = found.environment | {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"]),
        **environ,
    }
    done = subprocess.run(
        [python, "-c", code, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
