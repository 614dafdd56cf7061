"""Seeds with promised journal bytes, and their hashes.

    python -m tests.replay.sim.seeds tests/golden/simulated-v1/sha256.txt     # when the logic has changed

One line per run: seed, pods, and the SHA-256 of its segments in writing order.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

from ebbtide.replay.sim.simulate import Simulated, SimulationRequest, simulate

GOLDEN = Path(__file__).parents[2] / "golden" / "simulated-v1" / "sha256.txt"

#: Seed and pods: a crash, a calm run, a hung API server, a lost bus, a second signal, an empty node, a small
#: grant, a cancel with another shutdown, a power cut, and more pods than one inventory holds.
RUNS = (
    (0, 30),
    (1, 30),
    (3, 110),
    (5, 12),
    (7, 30),
    (8, 30),
    (12, 0),
    (13, 20),
    (20, 30),
    (40, 30),
    (271_828, 300),
)


def digest(run: Simulated) -> str:
    return hashlib.sha256(b"".join(run.files().values())).hexdigest()


def lines() -> Iterator[str]:
    for seed, pods in RUNS:
        yield f"{seed} {pods} {digest(simulate(SimulationRequest(synthetic=pods), seed))}"


if __name__ == "__main__":
    text = "".join(f"{line}\n" for line in lines())
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        sys.stdout.write(text)
