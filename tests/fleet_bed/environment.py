"""The cluster's parts: Java, Spark's packages, and the executors' archive.

python -m tests.fleet_bed.environment      # makes what the gate needs ahead of time, and prints its Python
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ebbtide.fleet.pool import java_missing
from tests.beds.inside import PROJECT
from tests.beds.locked import locked_python
from tests.beds.rootfs import Unavailable, alone, cache_folder, keep
from tests.waiting import WATCHDOG_SECONDS

LOCK = PROJECT / "requirements-spark.lock"
#: The wheel's sources.
SOURCES = ("pyproject.toml", "pyspark_ebbtide.py", "ebbtide", "events", "actors", "replay", "otel")


def spark_python() -> Path:
    """The Python of an environment with the whole lock and Spark. Raises Unavailable."""
    if missing := java_missing():
        raise Unavailable(f"a fleet on Spark needs Java 17, and {missing}")
    return locked_python(LOCK)


def spark_home(python: Path) -> Path:
    (found,) = (python.parents[1] / "lib").glob("python*/site-packages/pyspark")
    return found


def executors_archive() -> Path:
    """The archive of docs/fleet.md: an environment with the wheel and without Spark.

    Cached by content. Raises Unavailable.
    """
    python = spark_python()
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode())
    for name in SOURCES:
        for path in sorted((PROJECT / name).rglob("*")) or [PROJECT / name]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(PROJECT)).encode() + path.read_bytes())
    wanted = cache_folder() / f"executors-{digest.hexdigest()[:12]}.tar.gz"
    with alone(wanted):
        if not wanted.exists():
            for old in cache_folder().glob("executors-*.tar.gz"):
                old.unlink()
            _pack(_executors_environment(python), wanted)
    return wanted


def _executors_environment(python: Path) -> Path:
    """The other packages, cached by the lock: only the wheel changes with the tree."""
    wanted = python.parents[1].with_name(f"{python.parents[1].name}-executors")
    if not wanted.exists():
        lock = cache_folder() / "executors.lock"
        lock.write_text(without_spark(LOCK.read_text()))
        try:
            _run(sys.executable, "-m", "venv", "--copies", str(wanted))
            _run(*_pip(wanted), "--require-hashes", "-r", str(lock))
        except BaseException:
            shutil.rmtree(wanted, ignore_errors=True)
            raise
    return wanted


def _pack(environment: Path, wanted: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ebbtide-executors.", dir=cache_folder()) as folder:
        archive = Path(folder) / wanted.name
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
        (wheel,) = Path(folder).glob("*.whl")
        _run(*_pip(environment), "--no-deps", "--force-reinstall", str(wheel))
        _run("tar", "-czf", str(archive), "-C", str(environment), ".")
        keep(archive, wanted)


def _pip(environment: Path) -> tuple[str, ...]:
    return (str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check")


def without_spark(lock: str) -> str:
    """The lock without Spark, which the cluster gives its executors."""
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return "".join(each for each in entries if not each.startswith(("pyspark==", "py4j==")))


def _run(*argv: str) -> None:
    try:
        subprocess.run(
            argv, cwd=PROJECT, check=True, capture_output=True, text=True, timeout=WATCHDOG_SECONDS
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise Unavailable(f"the executors' archive: {said[-1] if said else 'failed'}") from error


if __name__ == "__main__":
    print(spark_python(), flush=True)
