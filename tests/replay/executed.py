"""Everything that a replay produces, as one hash; needs no more than msgspec.

python -m tests.replay.executed FOLDER TIMES
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from ebbtide.actors.checkpoint import as_checkpoint
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import encode_event
from ebbtide.events.reader import History
from ebbtide.events.segment import LOGICS
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.verify import verify


def digest(folder: Path) -> str:
    """Over each step's decisions as they are produced, and the state at the end. The journal must verify."""
    source = DirectorySource(folder)
    assert verify(History([source], logics=LOGICS)).identical
    total, replayer = hashlib.sha256(), Replayer()
    for batch in History([source]).batches():
        for raw in batch.records:
            for side in replayer.believe([raw]) if not raw.cause else ():
                total.update(repr(side).encode())
    total.update(encode_event(as_checkpoint(replayer.system)))
    return total.hexdigest()


if __name__ == "__main__":
    for _ in range(int(sys.argv[2])):
        print(digest(Path(sys.argv[1])))
