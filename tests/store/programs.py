"""versitygw, a store that speaks S3 over a folder: built from a Go module of its own here.

python -m tests.store.programs      # builds it ahead of time, and says where it is
"""

from __future__ import annotations

from pathlib import Path

from tests.beds.golang import Module, built

MODULE = Module(Path(__file__).parent / "versitygw", ("-ldflags", "-s -w"))


def versitygw() -> Path:
    """The binary, built if it is not there. Raises tests.beds.rootfs.Unavailable."""
    return built(MODULE, "versitygw", "github.com/versity/versitygw/cmd/versitygw")


if __name__ == "__main__":
    print(versitygw(), flush=True)
