"""Files of a state directory, written so that a crash leaves the old content or the new."""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import suppress
from pathlib import Path

#: The temporary files that are being written. The lock is for this set alone, and held over no write.
_temporaries: set[Path] = set()
_temporaries_lock = threading.Lock()


def write_atomically(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Old content or new, never half of it; readable for the owner only. Raises OSError.

    Two writers at a time are let alone by each other, and the last to finish stands.
    """
    with _temporaries_lock:
        names = (path.with_name(f".{path.name}.{number}.new") for number in itertools.count())
        # One that no other thread writes to; the first, so that what a crash leaves is written over by the
        # next.
        temporary = next(name for name in names if name not in _temporaries)
        _temporaries.add(temporary)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            # Before the rename: after a crash the name may otherwise stand for a file without its content.
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        with _temporaries_lock:
            _temporaries.discard(temporary)
