"""The command line: thin commands over the daemon, the journal and the replayer.

Nothing is imported before it is needed: ``ebbtide run`` stays resident and has to be armed within half a
second, so it must not pay for tables, YAML printing or the replayer.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry point ``ebbtide``."""
    # A terminal of another century gets a question mark, a closed stream takes everything in silence.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # for the life of the process
        else:
            stream.reconfigure(errors="replace")
    from ebbtide.cli.common.guard import guarded

    code = guarded(sys.argv[1:])
    gc.freeze()  # the end of the process frees everything, without a search for what is in cycles
    sys.exit(code)
