"""What the tests of the replay prove, counted: identical results, and damage that is seen.

A hundred replays, each ten in a process of its own under a random hash seed, by every Python that is named
in EBBTIDE_OTHER_PYTHONS; a bit flipped in one byte of sixteen of a journal of a thousand events, each time
another one, one in fifty of these executed; and cuts at the same places. The tests flip every bit, and cut at
every byte. Root is not needed.

    python -m benchmarks.proofs --replays 100
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks.report import Figure, conclude, parser, say
from ebbtide.events.reader import History
from ebbtide.events.recovery import EXIT_CODES
from ebbtide.events.segment import LOGICS
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.replay.verify import verify
from tests.journals import Memory
from tests.pythons import PYTHONS, ran
from tests.replay import damage

#: In one process.
REPLAYS_EACH = 10

#: One damaged journal in so many is executed.
EXECUTED_EACH = 50


def replays(folder: Path, count: int) -> Figure:
    """How many different results there are of so many replays by each Python."""
    for name, data in simulate(SimulationRequest(synthetic=12), 1).files().items():
        (folder / name).write_bytes(data)
    found = [
        line
        for python in PYTHONS
        for _ in range(count // REPLAYS_EACH)
        for line in ran(python, "random", "tests.replay.executed", folder, str(REPLAYS_EACH)).split()
    ]
    say(f"{len(found)} replays by {len(PYTHONS)} Pythons")
    basis = f"{len(found)} replays under random hash seeds, by {_count(len(PYTHONS), 'Python')}"
    return Figure("different results of a replay", len(dict.fromkeys(found)), 1, "result", basis)


def flips(stride: int) -> Figure:
    """How often a flipped bit is not seen, or something comes out that was not written."""
    files, ends = damage.files(), damage.ends(damage.intact())
    events, wrong, number, executed = len(damage.intact()), 0, 0, 0
    for name, data in files.items():
        for at in range(0, len(data), stride):
            changed = data[at] ^ 1 << at // stride % 8
            damaged = {**files, name: data[:at] + bytes((changed,)) + data[at + 1 :]}
            found = damage.read(damaged)
            wrong += found.state == "intact" or ends.get(found.last) != found.head
            number += 1
            if number % EXECUTED_EACH == 0:
                executed += 1
                result = verify(History([Memory(damaged)], logics=LOGICS))
                wrong += result.divergence is not None or (result.identical and result.events == events)
    say(f"{number} flips, {executed} executed, {wrong} wrong")
    basis = f"{number} flips in {events} events, {executed} of them executed"
    return Figure("flipped bits that are not seen, or give a wrong answer", wrong, 0, "flips", basis)


def cuts(stride: int) -> Figure:
    """How often a cut journal gives another prefix than the whole steps before the cut, or another code."""
    files, ends = damage.files(), damage.ends(damage.intact())
    wrong, number, before = 0, 0, dict[str, bytes]()
    for name, data in files.items():
        for size in range(0, len(data), stride):
            found = damage.read({**before, name: data[:size]})
            right = ends.get(found.last) == found.head and EXIT_CODES[found.state] in (0, 4, 5)
            wrong += not right
            number += 1
        before[name] = data
    say(f"{number} cuts, {wrong} wrong")
    return Figure("cuts that give a wrong answer", wrong, 0, "cuts", f"{number} cuts")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--replays", type=int, default=100, help="by each Python (default 100)")
    options.add_argument("--stride", type=int, default=16, help="damage one byte in so many (default 16)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        figures = [replays(Path(folder), arguments.replays)]
    with pytest.MonkeyPatch.context() as patch, damage.remembering(patch):
        figures += [flips(arguments.stride), cuts(arguments.stride)]
    return conclude("proofs", arguments, figures, {"replays": arguments.replays})


if __name__ == "__main__":
    sys.exit(main())
