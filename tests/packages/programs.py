"""nFPM, the package builder, from its own Go module.

python -m tests.packages.programs      # builds it ahead of time, and says where it is
"""

from __future__ import annotations

from pathlib import Path

from tests.beds.golang import Module, built

MODULE = Module(Path(__file__).parent / "nfpm", ("-ldflags", "-s -w"))


def nfpm() -> Path:
    return built(MODULE, "nfpm", "github.com/goreleaser/nfpm/v2/cmd/nfpm")


if __name__ == "__main__":
    print(nfpm(), flush=True)
