"""A fleet's size: what the plan of 100 000 journals takes, and whether advice stays linear.

The plan is one LIST of an S3 server on loopback, by names alone: its objects have a few bytes each. Beside it
stands the same LIST by the store's client alone: the difference is ours. It is
made in a process of its own, so that its memory is a driver's. Advice is asked of journals that were really
simulated, in growing numbers; 100 000 are reckoned from the rate of the most.

    python -m benchmarks.fleet_scale --journals 100000 --advised 1000 2000 4000
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fleet import NODE_PODS
from benchmarks.report import Figure, conclude, parser, say
from ebbtide.cli.common.saving import write_journal
from ebbtide.fleet.fleet_journals import journals
from ebbtide.fleet.fleet_verbs import evidence_of
from ebbtide.fleet.pool import over_bins
from ebbtide.replay.advise import Caution, Evidence
from ebbtide.replay.advise import conclude as advice_of
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from ebbtide.shipping.shipping_destination import object_key
from tests.store.gateway import BUCKET, READER, gateway

PLAN = """
import json, resource, sys, time
import obstore
from ebbtide.fleet.fleet_journals import journals
from ebbtide.fleet.fleet_journals import store
began = time.perf_counter()
count = sum(len(chunk) for chunk in obstore.list(store(sys.argv[1]), chunk_size=1000))
listed = time.perf_counter()
busy = time.process_time()
refs = journals(sys.argv[1])
told = {"list": listed - began, "clock": time.perf_counter() - listed, "busy": time.process_time() - busy}
told |= {"objects": count, "files": sum(len(ref.files) for ref in refs)}
print(json.dumps(told | {"kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
CLUSTER, PREFIX = "prod", "journals"
PLAN_SECONDS_MAX, PLAN_MIB_MAX = 15.0, 512.0
#: Of one core, for 100 000 journals.
ADVISE_MINUTES_MAX = 10.0
#: From one step to the next, a journal may cost so much more.
GROWTH_MAX = 1.1


def planning(counts: Sequence[int], segments: int) -> list[Figure]:
    figures = []
    for count in counts:
        with (
            tempfile.TemporaryDirectory(prefix="ebbtide-fleet.") as folder,
            gateway(Path(folder), f"{PREFIX}/v1") as server,
        ):
            below = server.data / BUCKET / PREFIX
            for number in range(count):
                _put_names(below, number, segments)
            say(f"{count} journals of {segments} objects")
            asked = [sys.executable, "-c", PLAN, f"s3://{BUCKET}/{PREFIX}"]
            environ = os.environ | server.environ(READER)
            told = json.loads(subprocess.run(asked, env=environ, check=True, capture_output=True).stdout)
        # Of files, not of refs: among so many there are journals whose ids begin with the same eight digits.
        assert told["objects"] == told["files"] == count * segments, told
        limits = (PLAN_SECONDS_MAX, PLAN_MIB_MAX) if count == counts[-1] else (None, None)
        what = f"planning {count} journals of {segments} objects from one LIST"
        figures += [
            Figure(f"{what}, by the clock", told["clock"], limits[0], "s"),
            Figure("the same LIST by the store's client alone, just before", told["list"], None, "s"),
            Figure(f"{what}, processor time without the server's", told["busy"], None, "s"),
            Figure(f"{what}, resident memory at most", told["kib"] / 1024, limits[1], "MiB"),
        ]
    return figures


def _put_names(below: Path, number: int, segments: int) -> None:
    journal_id = hashlib.sha256(b"%d" % number).digest()[:16]
    for segment in range(1, segments + 1):
        sha256 = hashlib.sha256(b"%d %d" % (number, segment)).hexdigest()
        name = f"{segment:010}-{journal_id.hex()[:8]}.ebj"
        path = below / object_key(CLUSTER, f"node-{number:06}", journal_id, name, sha256, redacted=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not read")


def advising(counts: Sequence[int]) -> list[Figure]:
    figures: list[Figure] = []
    a_journal = 0.0
    with tempfile.TemporaryDirectory(prefix="ebbtide-fleet.") as folder:
        made = 0
        for count in counts:
            for seed in range(made, count):
                asked = SimulationRequest(synthetic=NODE_PODS, calm=True)
                write_journal(Path(folder, f"node-{seed}"), simulate(asked, seed).files())
            made = count
            refs = journals(folder)
            began = time.process_time()
            evidence = Evidence()
            for _, (parts, _) in over_bins(evidence_of, refs, 1):
                for part in parts.values():
                    evidence.merge(part)
            added = time.process_time()
            advice = advice_of(evidence, Caution())
            ended = time.process_time()
            say(f"{count} journals: {added - began:.1f} s to read, {ended - added:.1f} s to conclude")
            assert advice.shutdown_count >= count
            figures.append(Figure(f"advice of {count} journals, processor time", ended - began, None, "s"))
            if a_journal:
                growth = (ended - began) / count / a_journal
                figures.append(
                    Figure(f"a journal among {count}, against the step before", growth, GROWTH_MAX, "×")
                )
            a_journal = (ended - began) / count
    minutes = a_journal * 100_000 / 60
    return [
        *figures,
        Figure(
            "advice of 100 000 journals, reckoned, one core",
            minutes,
            ADVISE_MINUTES_MAX,
            "min",
            f"{NODE_PODS} pods each",
        ),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--journals", type=int, nargs="*", default=[10_000, 100_000], help="to plan")
    options.add_argument("--segments", type=int, default=1, help="objects of each (default 1)")
    options.add_argument("--advised", type=int, nargs="*", default=[1_000, 2_000, 4_000], help="to advise on")
    arguments = options.parse_args()
    figures = [
        *(planning(arguments.journals, arguments.segments) if arguments.journals else []),
        *(advising(arguments.advised) if arguments.advised else []),
    ]
    return conclude("fleet_scale", arguments, figures)


if __name__ == "__main__":
    sys.exit(main())
