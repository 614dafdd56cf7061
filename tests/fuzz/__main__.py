"""Fuzz a parser, guided by what its code does with each input.

python -m tests.fuzz --list
python -m tests.fuzz segment --seconds 600
python -m tests.fuzz all --seconds 600

It needs atheris (``pip install atheris``), which no test needs. An input that breaks the parser is written
to ``tests/corpus/NAME/found-…``: with its cure it stays there, and every run of the tests reads it. What only
reached new code is kept with ``--keep``, as few inputs as reach the same.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

DEFAULT_SECONDS = 600
ENGINE = "--engine"


def main(arguments: Sequence[str]) -> int:
    """1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="?", default="", help="one of --list, or all")
    parser.add_argument("--list", action="store_true", help="the targets, and how many inputs each has kept")
    parser.add_argument("--seconds", type=int, default=DEFAULT_SECONDS, help="of each target")
    parser.add_argument("--keep", action="store_true", help="keep in the corpus what reached new code")
    # Arguments for the engine of a target's process.
    if arguments[:1] == [ENGINE]:
        return _engine(arguments[1], arguments[2:])
    chosen = parser.parse_args(arguments)
    from tests.fuzz.targets import TARGETS, kept_inputs

    if chosen.list:
        for name, target in TARGETS.items():
            print(f"{name:<16} {len(kept_inputs(name)):>5} kept   {(target.read.__doc__ or '').strip()}")
        return 0
    names = list(TARGETS) if chosen.target == "all" else [chosen.target]
    if not set(names) <= set(TARGETS):
        parser.error(f"no target {chosen.target!r}: --list names them")
    # A process each: lack of memory or time ends only that one.
    return max(_fuzz(name, chosen.seconds, keep=chosen.keep) for name in names)


def _fuzz(name: str, seconds: int, *, keep: bool) -> int:
    from tests.fuzz.targets import CORPUS, INPUT_BYTES_MAX, MEMORY_MIB_MAX, SECONDS_MAX, TARGETS

    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ebbtide-fuzz-") as folder:
        work, seeds = Path(folder) / "work", Path(folder) / "seeds"
        for each in (work, seeds):
            each.mkdir()
        for data in TARGETS[name].seeds():
            (seeds / sha256(data).hexdigest()[:12]).write_bytes(data)
        engine = [sys.executable, "-m", "tests.fuzz", ENGINE, name]
        limits = [
            f"-max_len={INPUT_BYTES_MAX}",
            f"-rss_limit_mb={MEMORY_MIB_MAX}",
            f"-timeout={SECONDS_MAX:.0f}",
            f"-artifact_prefix={corpus}/found-",
        ]
        print(f"== {name}: {seconds} s", flush=True)
        run = [f"-max_total_time={seconds}", "-print_final_stats=1", "-verbosity=1"]
        result = subprocess.run([*engine, *limits, *run, str(work), str(corpus), str(seeds)], check=False)
        if keep:
            subprocess.run([*engine, *limits, "-merge=1", str(corpus), str(work)], check=False)
    return int(result.returncode != 0)


def _engine(name: str, options: Sequence[str]) -> int:
    """libFuzzer over one target; ends the process."""
    try:
        import atheris
    except ImportError:
        print("this needs atheris: pip install atheris", file=sys.stderr)
        return 2
    with atheris.instrument_imports(include=["ebbtide", "jeepney", "h11"]):
        from tests.fuzz.targets import TARGETS
    # The engine restarts itself by a shell with this command.
    itself = shlex.join([sys.executable, "-m", "tests.fuzz", ENGINE, name])
    atheris.Setup([itself, *options], TARGETS[name].accepts)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
