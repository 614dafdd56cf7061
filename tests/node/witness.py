"""Pods that record their start, hook, stop signal and end on the node's clock.

The notes outlive them, so they check the component that ends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.pods import container, pod

#: ``/proc/uptime`` has hundredths of seconds of Python's monotonic clock.
NOTE = "cut -d ' ' -f 1 /proc/uptime >> /notes/{name}.{what}"
TICK_NS = 10_000_000
NS = 1_000_000_000


class Witness:
    """``folder`` is on the node, outside every pod."""

    def __init__(self, bed: Bed) -> None:
        # One per test: a force-deleted pod of an earlier test may still note its signal under the same name.
        self.folder = Path(mkdtemp(prefix="notes-", dir=bed.folder))
        self.folder.chmod(0o755)

    def container(
        self,
        name: str,
        *,
        slow: bool = False,
        ends_after: float = 0,
        waits: bool = False,
        hook: bool = False,
        **fields: Any,
    ) -> Object:
        """``slow``: only SIGKILL ends it. ``ends_after``: seconds from signal to end.

        ``waits``: it ends on `lets_end`, on any machine.
        """
        until = (
            f"while [ ! -e /notes/{name}.may-end ]; do sleep 0.05; done" if waits else f"sleep {ends_after}"
        )
        # Note a second signal without restarting the shell's handler.
        end = f"trap told TERM; told; {until}; {_note(name, 'ended')}; exit 0"
        told = f"told() {{ {_note(name, 'signal')}; }}; stop() {{ {'told' if slow else end}; }}"
        # A waiting shell gets its signal at once and uses no processor.
        idle = "while :; do sleep 3600 & wait $!; done"
        script = f"{told}; trap stop TERM; {_note(name, 'began')}; {idle}"
        if hook:
            command = ["/bin/sh", "-c", _note(name, "hook")]
            fields = {"lifecycle": {"preStop": {"exec": {"command": command}}}} | fields
        return container(script, volumeMounts=[{"name": "notes", "mountPath": "/notes"}], **fields)

    def pod(self, name: str, **how: Any) -> Object:
        """One `container`; unknown options go to the pod."""
        mine = {key: how.pop(key) for key in ("slow", "ends_after", "waits", "hook") if key in how}
        return self.holding(name, [self.container(name, **mine)], **how)

    def holding(self, name: str, containers: list[Object], node: str = "node-1", **spec: Any) -> Object:
        """A pod of these containers with the notes folder."""
        notes = {"name": "notes", "hostPath": {"path": str(self.folder)}}
        return pod(name, node, containers=containers, volumes=[notes], **spec)

    def lets_end(self, name: str) -> None:
        """End a signalled pod with ``waits``."""
        Path(self.folder, f"{name}.may-end").touch()

    def times(self, name: str, what: str) -> list[int]:
        """Monotonic nanoseconds, to a hundredth of a second."""
        file = Path(self.folder, f"{name}.{what}")
        return [round(float(line) * NS) for line in file.read_text().split()] if file.exists() else []

    def forget(self) -> None:
        for old in self.folder.iterdir():
            old.unlink()


def signalled(witness: Witness, names: Iterable[str], before_ns: int) -> dict[str, int]:
    """Pods signalled by then, with the first time."""
    found = {name: witness.times(name, "signal") for name in names}
    return {name: times[0] for name, times in found.items() if times and times[0] <= before_ns + TICK_NS}


def _note(name: str, what: str) -> str:
    return NOTE.format(name=name, what=what)
