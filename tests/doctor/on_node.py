"""Run the inspecting verbs as commands in a real node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import trio

from tests.node.bed import Bed
from tests.node.ebbtide import PROGRAM, parts_of
from tests.node.identities import Client
from tests.node.parts import API, Member

COMMAND_SECONDS_MAX = 60
PERIODS = [
    {"priority": 0, "shutdownGracePeriodSeconds": 10},
    {"priority": 2_000_000_000, "shutdownGracePeriodSeconds": 10},
]


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def configured(bed: Bed, member: Member, client: Client | None, folder: Path, **node: Any) -> Path:
    """A configuration with that node's parts; ``client`` None: without an API server."""
    parts = parts_of(member)
    if client is not None:
        name = f"doctor-{client.user.replace(':', '-')}"
        parts["kubeconfig"] = str(bed.secrets.kubeconfig(client, API, name))
    path = folder / "config.yaml"
    kind = {"apiVersion": "ebbtide/v1alpha1", "kind": "EbbtideConfiguration"}
    fields = {"shutdownGracePeriodByPodPriority": PERIODS, "node": parts | node}
    path.write_text(json.dumps(kind | fields))
    return path


async def ebbtide(bed: Bed, *arguments: str | Path) -> Said:
    """In the node's namespaces and on its bus."""
    argv = [*bed.enter, sys.executable, "-c", PROGRAM, *map(str, arguments)]
    environ = os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": bed.logind.address}
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            argv, capture_output=True, text=True, env=environ, timeout=COMMAND_SECONDS_MAX, check=False
        )
    )
    return Said(done.returncode, done.stdout, done.stderr)
