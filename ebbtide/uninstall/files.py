"""What Ebbtide wrote on this machine: logind's drop-in, the state of this boot, and, if asked, its journal.

Only names that it gives itself are removed, whatever folder somebody names: a folder goes when it is empty.
"""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import trio

from actors.edges.bus import Bus, BusError
from actors.edges.logind.dropins import FILE_NAME, FOLDERS, DropIns
from actors.edges.logind.limit import PAUSES_SECONDS, SIGHUP
from actors.edges.logind.names import SYSTEMD, UNIT
from actors.edges.logind.reader import grant
from ebbtide.doctor.running import running_pods
from ebbtide.uninstall.steps import Step
from ebbtide.uninstall.unit import ask

#: In the runtime folder; a journal that had to move there is a journal.
OF_THE_BOOT = ("daemon.lock", "ebbtide.sock", "metrics.sock", "cri", "process")
#: In a journal's folder (events.storage, otel.metrics.kept, otel.delivery.cursor).
OF_A_JOURNAL = ("*.ebj", "lock", "reserve", "metrics", "traces.json", "logs.json", "traces.lock")
#: Beside it, for the next boot.
LASTING = ("pods.json",)


async def lower_limit(dry_run: bool, root: Path = Path("/")) -> list[Step]:
    """Take the drop-in away, wherever a configuration had it, and have logind read its files again."""
    ours = [path for folder in FOLDERS if (path := root / folder.lstrip("/") / FILE_NAME).is_file()]
    if not ours:
        return [Step("drop-in", str(root / FOLDERS[1].lstrip("/") / FILE_NAME), "nothing", "it is not there")]
    if dry_run:
        return [
            Step("drop-in", str(path), "would", "remove it; logind reads its files again") for path in ours
        ]
    steps = [_removed("drop-in", path) for path in ours]
    if all(step.result == "done" for step in steps):
        steps.append(await _reread(DropIns(root)))
    return steps


async def _reread(files: DropIns) -> Step:
    async def work(bus: Bus) -> bool:
        await bus.method(SYSTEMD, "KillUnit", "ssi", UNIT, "all", SIGHUP)
        for pause_seconds in PAUSES_SECONDS:
            if await grant(bus) == files.effective_ns():
                return True
            await trio.sleep(pause_seconds)
        return await grant(bus) == files.effective_ns()

    try:
        if await ask(work):
            return Step("logind's limit", UNIT, "done", "as its other files say")
        return Step("logind's limit", UNIT, "failed", f"it kept the old one: systemctl restart {UNIT}")
    except BusError as error:
        return Step(
            "logind's limit", UNIT, "failed", f"{error}; the old one is kept until it reads its files"
        )


def clear_boot(runtime: Path, dry_run: bool) -> Step:
    """The state of this boot. Local pods that still run are known from there alone."""
    if running_pods(runtime):
        return Step(
            "state of this boot", str(runtime), "kept", "pods of mode process run: they are left alone"
        )
    return _cleared("state of this boot", runtime, OF_THE_BOOT, dry_run)


def purge(journals: Sequence[Path], lasting: Path, dry_run: bool) -> list[Step]:
    """The account itself: it cannot be had again."""
    steps = [_cleared("journal", path, OF_A_JOURNAL, dry_run) for path in journals]
    return [*steps, _cleared("what was known of pods", lasting, LASTING, dry_run)]


def _cleared(what: str, folder: Path, names: Sequence[str], dry_run: bool) -> Step:
    try:
        ours = [path for path in sorted(folder.iterdir()) if _matches(path.name, names)]
    except (FileNotFoundError, NotADirectoryError):
        return Step(what, str(folder), "nothing", "it is not there")
    if dry_run:
        return Step(
            what, str(folder), "would" if ours else "nothing", f"remove {len(ours)} files and folders"
        )
    failed = [step for step in (_removed(what, path) for path in ours) if step.result == "failed"]
    with suppress(OSError):
        folder.rmdir()
    return failed[0] if failed else Step(what, str(folder), "done" if ours else "nothing")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _removed(what: str, path: Path) -> Step:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        return Step(what, str(path), "failed", error.strerror or str(error))
    return Step(what, str(path), "done")
