"""Generate the Python modules of our ``.proto`` files: ``python -m tests.actors.edges.cri.generate``.

A test compares the descriptors, not the text: the text differs between generator releases.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]
PROTOS = ("actors/edges/cri/api.proto", "tests/actors/edges/cri/making.proto")


def generate(*outputs: str) -> None:
    """Run the generator in the repository's root. Raises RuntimeError on an invalid file."""
    from grpc_tools import protoc

    code = protoc.main(["protoc", f"-I{ROOT}", *outputs, *(str(ROOT / proto) for proto in PROTOS)])
    if code:
        raise RuntimeError(f"protoc ended with exit code {code}")


if __name__ == "__main__":
    generate(f"--python_out={ROOT}", f"--pyi_out={ROOT}")
    print("made", *PROTOS, file=sys.stderr)
