"""Pods that note what happens to them, on the node's own clock: begin, hook, stop signal, end.

What they wrote outlives them, so who ended them cannot have the last word on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.pods import container, pod

#: ``/proc/uptime`` counts hundredths of a second of the clock that Python calls monotonic.
NOTE = "cut -d ' ' -f 1 /proc/uptime >> /notes/{name}.{what}"
TICK_NS = 10_000_000
NS = 1_000_000_000


class Witness:
    """``folder`` is on the node, outside of every pod."""

    def __init__(self, bed: Bed) -> None:
        # Each its own: a pod of the test before, deleted by force, may still note its stop signal, under a
        # name that this test uses too.
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
        """``slow``: only SIGKILL ends it. ``ends_after``: seconds from the signal to its end.

        ``waits``: it ends when the test says so (`lets_end`), however long a busy machine takes until then.
        """
        until = (
            f"while [ ! -e /notes/{name}.may-end ]; do sleep 0.05; done" if waits else f"sleep {ends_after}"
        )
        # A second signal is noted and changes nothing: to a shell it would begin its handler anew.
        end = f"trap told TERM; told; {until}; {_note(name, 'ended')}; exit 0"
        told = f"told() {{ {_note(name, 'signal')}; }}; stop() {{ {'told' if slow else end}; }}"
        # A shell that waits hears its signal at once, and takes no processor's time until then.
        idle = "while :; do sleep 3600 & wait $!; done"
        script = f"{told}; trap stop TERM; {_note(name, 'began')}; {idle}"
        if hook:
            command = ["/bin/sh", "-c", _note(name, "hook")]
            fields = {"lifecycle": {"preStop": {"exec": {"command": command}}}} | fields
        return container(script, volumeMounts=[{"name": "notes", "mountPath": "/notes"}], **fields)

    def pod(self, name: str, **how: Any) -> Object:
        """One container, as `container` makes it; what that does not know goes to the pod."""
        mine = {key: how.pop(key) for key in ("slow", "ends_after", "waits", "hook") if key in how}
        return self.holding(name, [self.container(name, **mine)], **how)

    def holding(self, name: str, containers: list[Object], node: str = "node-1", **spec: Any) -> Object:
        """A pod of these containers, with the folder to write to."""
        notes = {"name": "notes", "hostPath": {"path": str(self.folder)}}
        return pod(name, node, containers=containers, volumes=[notes], **spec)

    def lets_end(self, name: str) -> None:
        """One that was made with ``waits``, and has got its signal."""
        Path(self.folder, f"{name}.may-end").touch()

    def times(self, name: str, what: str) -> list[int]:
        """Monotonic nanoseconds at which it happened, to a hundredth of a second."""
        file = Path(self.folder, f"{name}.{what}")
        return [round(float(line) * NS) for line in file.read_text().split()] if file.exists() else []

    def forget(self) -> None:
        for old in self.folder.iterdir():
            old.unlink()


def signalled(witness: Witness, names: Iterable[str], before_ns: int) -> dict[str, int]:
    """Those that got the stop signal by then, and when first."""
    found = {name: witness.times(name, "signal") for name in names}
    return {name: times[0] for name, times in found.items() if times and times[0] <= before_ns + TICK_NS}


def _note(name: str, what: str) -> str:
    return NOTE.format(name=name, what=what)
