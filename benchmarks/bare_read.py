"""The least that any reader of a journal does: find each frame, hash it, decode its payload, no more.

The peer of a verified replay, in the same run: no chain is compared, no step executed.

    python -m benchmarks.bare_read FOLDER
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import msgspec

from ebbtide.events.codec import FLAG_LAST, FRAME_HEAD, HASH_BYTES
from ebbtide.events.segment import header_length


def bare_read(folder: Path) -> int:
    """How many records there are."""
    count, unpack, decode, sha256 = 0, FRAME_HEAD.unpack_from, msgspec.msgpack.decode, hashlib.sha256
    for file in sorted(folder.glob("*.ebj")):
        data = file.read_bytes()
        at = header_length(data[:16])
        while at < len(data):
            _, _, length, _, _, _, _, _, _, flags, tag_bytes, actor_bytes = unpack(data, at)
            sha256(data[at - HASH_BYTES : at + length - HASH_BYTES]).digest()
            if flags <= FLAG_LAST:
                decode(data[at + FRAME_HEAD.size + actor_bytes + tag_bytes : at + length - HASH_BYTES])
                count += 1
            at += length
    return count


if __name__ == "__main__":
    print(f"identical: {bare_read(Path(sys.argv[1]))} events")
