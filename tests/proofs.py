"""The proofs: everything that is too long, or too dependent on the machine's speed, for the gate.

python -m tests.proofs --list            # every proof, its time and its command
python -m tests.proofs mutations worlds  # run these in turn, and write a line each to docs/proofs.md
python -m tests.proofs                   # run all
python -m tests.proofs --for origin/main # the proofs that the files changed since then need
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tests.beds.inside import die_with_parent

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "proofs.md"
PYTHON = ".venv/bin/python"
#: A missing part fails a proof. A building session fixture outlasts a test's watchdog.
PYTEST = f"{PYTHON} -m pytest -q --no-skips -o faulthandler_timeout=7200"
#: A proof hangs after so many times its minutes.
HANGS_TIMES = 10
#: A shell without job control starts background commands so; their children inherit it.
NOHUP = "env --ignore-signal=HUP,INT,QUIT"
TAIL_LINES = 60

CORE = r"actors/[^/]+\.py|actors/policy/|events/|replay/"
EDGES = r"actors/edges/|actors/runner\.py|ebbtide/daemon\.py"
#: Tests that these proofs run, and their helpers.
TESTS_OF_CORE = r"|tests/(actors|cases|cli/replay|events|otel|replay|scripts)/"
TESTS_OF_PARTS = r"|tests/(actors/edges|backends|beds|daemon|deploy|events|machine|store|test_units|waiting)"
NODE = r"|tests/(node|beds|waiting)"
TESTS_OF_NODE = NODE + r"|tests/(actors/edges|deploy|doctor)/|deploy/helm/|ebbtide/doctor/"
OUTAGE = (
    r"actors/outage|actors/edges/(kubernetes|proof)/|ebbtide/outage/|deploy/kubernetes/|tests/outage_bed/"
)
ANY_CODE = r"(actors|events|replay|otel|ebbtide|tests|\.ci)/|pyproject|requirements"
README_COMMAND = "bash .ci/run tests"


class Proof(NamedTuple):
    """``minutes`` on two idle processors; ``paths``: a pattern of its files.

    ``busy``: processes that compete with each of ``runs`` runs.
    """

    about: str
    command: str
    minutes: int
    paths: str
    busy: int = 0
    runs: int = 1


PROOFS = {
    "coverage": Proof(
        "branch coverage of the deterministic part",
        # A million readings of a damaged journal add no coverage and take an hour under it.
        f"{PYTHON} -m coverage erase && {PYTHON} -m coverage run -m pytest -q -n 2 tests/actors tests/scripts"
        " tests/replay tests/events tests/otel tests/cli/replay --ignore=tests/actors/edges"
        " --ignore=tests/otel/delivery --deselect tests/replay/test_damage.py"
        f" && {PYTHON} -m coverage combine -q && {PYTHON} -m coverage report",
        4,
        CORE + "|otel/" + TESTS_OF_CORE,
    ),
    "mutations": Proof(
        "every comparison of the core turned round, every bit of a journal flipped",
        f"{PYTHON} -m tests.replay.mutants"
        f" && {PYTEST} -n 2 -m '' --whole tests/replay/test_mutations.py"
        " tests/replay/test_damage.py",
        8,
        CORE + TESTS_OF_CORE,
    ),
    "worlds": Proof(
        "the fixed seeds of worlds, nodes, outages, what-if, spans and accounts, all of them",
        f"{PYTEST} -n 2 -m 'not browser' --whole tests/world tests/outage_world tests/replay tests/otel",
        12,
        CORE + "|otel/|tests/(world|outage_world|replay|otel)/|" + EDGES,
    ),
    "what-if": Proof(
        "what-if's verdicts, intervals and chances against nights simulated with the change",
        f"{PYTHON} -m tests.replay.whatif.truth",
        5,
        CORE + "|tests/replay/whatif/",
    ),
    "seeds": Proof(
        "fresh seeds of worlds and of simulated nodes",
        f"{PYTHON} -m tests.world --fresh --seconds 300"
        f" && {PYTHON} -m tests.replay.sim --fresh --seconds 300",
        10,
        CORE + "|tests/world/|" + EDGES,
    ),
    "causes": Proof(
        "the first line of 120 bad nights is the simulated fault, with the table of both",
        f"{PYTHON} -m tests.replay.sim.bad_nights --nights 120",
        1,
        CORE + "|tests/replay/sim/",
    ),
    "properties": Proof(
        "the default suite with fresh inputs for every property",
        f"{PYTEST} -n 2 --hypothesis-profile=fresh",
        3,
        ANY_CODE,
    ),
    "slow": Proof("the tests with the mark proof", f"{PYTEST} -n 2 -m proof", 10, ANY_CODE),
    "pythons": Proof("the same bytes by other Pythons", f"{PYTHON} -m tests.pythons", 3, CORE),
    "parts": Proof(
        "every test on a real part but the node: logind, D-Bus, containerd, machines, back ends, stores",
        f"{PYTEST} -m '(root or machine or backend) and not node'",
        12,
        EDGES + "|otel/|ebbtide/|deploy/(prometheus|systemd)/" + TESTS_OF_PARTS,
    ),
    "node": Proof(
        "every test on a real Kubernetes node", f"{PYTEST} -m node", 40, EDGES + "|" + OUTAGE + TESTS_OF_NODE
    ),
    "matrix": Proof(
        "every part of the node, in every way in which it fails, at every time of a shutdown",
        f"{PYTHON} -m tests.node.matrix --again && {PYTHON} -m tests.node.matrix --table",
        150,
        CORE + "|" + EDGES + NODE,
    ),
    "week": Proof(
        "one daemon through 200 shutdowns: nothing grows",
        f"{PYTHON} -m tests.node.week --shutdowns 200",
        35,
        EDGES + NODE,
    ),
    "outages": Proof(
        "outages on two nodes with storage, by the controller",
        # With its own results: existing ones are not repeated.
        f"{PYTHON} -m tests.outage_bed --all --actor controller --results $(mktemp -d)/outages.jsonl",
        70,
        OUTAGE,
    ),
    "browser": Proof(
        "the report in a real browser", f"{PYTEST} -m browser", 4, r"(tests/)?replay/report/|ebbtide/fleet/"
    ),
    "packages": Proof(
        "the .deb and the .rpm on whole machines",
        f"{PYTEST} -m 'root or machine or proof' tests/packages",
        8,
        r"deploy/packages/|deploy/systemd/|pyproject|tests/packages/",
    ),
    "image": Proof(
        "the container image", f"{PYTEST} tests/deploy/built_image.py", 3, r"deploy/|requirements"
    ),
    "spark": Proof(
        "the fleet on a real Spark cluster",
        f"{PYTEST} -n 0 -m spark tests/fleet_bed",
        6,
        r"ebbtide/fleet/|pyspark_ebbtide|tests/fleet",
    ),
    "lake": Proof(
        "the lake on a real S3 store",
        f"{PYTEST} -m backend tests/fleet",
        4,
        r"ebbtide/fleet/|tests/(fleet|store)/",
    ),
    "fuzz": Proof(
        "every parser of foreign input, guided by coverage",
        f"{PYTHON} -m pip install -q atheris && {PYTHON} -m tests.fuzz all --seconds 600",
        12,
        r"events/|ebbtide/(config|manifests)|actors/edges/|tests/fuzz/",
    ),
    "tests-under-load": Proof(
        "the README's test command beside six busy loops, started with signals ignored",
        f"{NOHUP} {README_COMMAND}",
        60,
        ANY_CODE,
        busy=6,
        runs=5,
    ),
    "gate-under-load": Proof(
        "the gate beside six busy loops", f"{NOHUP} bash .ci/run", 150, ANY_CODE, busy=6, runs=3
    ),
}


class Result(NamedTuple):
    name: str
    held: bool
    figure: str

    def row(self) -> str:
        # The page itself changes with each proof.
        changed = _git("status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}")
        commit = _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        verdict = "held" if self.held else "**not held**"
        return f"| {self.name} | {today} | {commit} | {self.figure} | {verdict} |"


def run(name: str, folder: Path) -> Result:
    """Run a proof; print the figures to judge a failure."""
    proof = PROOFS[name]
    figures, failed = [], 0
    for number in range(proof.runs):
        log = folder / f"{name}-{number + 1}.log"
        print(
            f"{name}: about {proof.minutes} min for {proof.runs} run(s), log {log}",
            file=sys.stderr,
            flush=True,
        )
        with _busy(proof.busy), log.open("wb") as output:
            begun = datetime.datetime.now()
            code = _end_of(proof, output)
            minutes = (datetime.datetime.now() - begun).total_seconds() / 60
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        figures.append(f"{figure(lines)} ({minutes:.0f} min)")
        if code:
            failed += 1
            print(
                f"{name} failed with exit code {code}: {proof.command}",
                *lines[-TAIL_LINES:],
                sep="\n",
                flush=True,
            )
    return Result(name, not failed, "; ".join(figures))


def figure(lines: list[str]) -> str:
    counted = [
        line for line in lines if re.search(r"\d+ (passed|failed|seeds|worlds|broken|shutdowns)|TOTAL", line)
    ]
    text = (counted or lines or ["no output"])[-1]
    return re.sub(r"\s+", " ", text.strip("= ")).replace("|", "/")[:120]


def write(result: Result) -> None:
    """Replace the proof's line in docs/proofs.md; keep the order of `PROOFS`."""
    head, *rows = re.split(r"(?m)^(?=\| (?!proof|--))", PAGE.read_text())
    kept = {row.split("|")[1].strip(): row.strip() for row in rows} | {result.name: result.row()}
    PAGE.write_text(head + "\n".join(kept[name] for name in PROOFS if name in kept) + "\n")


def changed_since(revision: str) -> list[str]:
    """Also the changes that are not committed."""
    changed = _git("diff", "--name-only", "--no-renames", _git("merge-base", revision, "HEAD")).splitlines()
    return changed + _git("ls-files", "--others", "--exclude-standard").splitlines()


def needed(changed: Iterable[str]) -> list[str]:
    """The proofs that judge one of these files."""
    return [name for name, proof in PROOFS.items() if any(re.match(proof.paths, path) for path in changed)]


def _end_of(proof: Proof, output: BinaryIO) -> int:
    """Its exit code, or SIGKILL's for a hung one."""
    argv = ["bash", "-c", proof.command]
    with subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=output, start_new_session=True) as process:
        try:
            return process.wait(HANGS_TIMES * 60 * proof.minutes)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return process.wait()
            raise


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many busy processes at normal priority."""
    argv = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(argv, preexec_fn=die_with_parent) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.send_signal(signal.SIGKILL)
            loop.wait()


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proofs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which proofs (all)")
    parser.add_argument("--list", action="store_true", help="print every proof, its minutes and its command")
    parser.add_argument(
        "--for", dest="revision", metavar="REV", help="print the proofs that a change since REV needs"
    )
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in PROOFS]:
        parser.error(f"no proof is called {', '.join(unknown)}: see --list")
    names = asked.names or list(PROOFS)
    if asked.revision:
        try:
            names = needed(changed_since(asked.revision))
        except subprocess.CalledProcessError as error:
            parser.error(error.stderr.strip())
    if asked.list or asked.revision:
        for name in names:
            proof = PROOFS[name]
            print(f"{name:16} {proof.minutes:4} min  {proof.about}\n{'':26}{proof.command}")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="ebbtide-proofs-"))
    results = []
    for name in names:
        results.append(run(name, folder))
        write(results[-1])
        print(results[-1].row(), flush=True)
    if all(result.held for result in results):
        shutil.rmtree(folder)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
