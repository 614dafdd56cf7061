"""versitygw, an S3 server over a folder, from its own Go module.

python -m tests.store.programs      # builds it ahead of time, and says where it is
"""

from __future__ import annotations

from pathlib import Path

from tests.beds.golang import Module, built

MODULE = Module(Path(__file__).parent / "versitygw", ("-ldflags", "-s -w"))


def versitygw() -> Path:
    return built(MODULE, "versitygw", "github.com/versity/versitygw/cmd/versitygw")


if __name__ == "__main__":
    print(versitygw(), flush=True)
