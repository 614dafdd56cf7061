"""The command line. Import nothing before its use: ``ebbtide run`` stays resident and has to be armed within
half a second.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn


def main() -> NoReturn:
    _mend_streams()
    from ebbtide.cli.common.guard import guarded

    _end(guarded(sys.argv[1:]))


def kubectl() -> NoReturn:
    """For ``kubectl ebbtide``."""
    _mend_streams()
    from ebbtide.cli.common.guard import guarded
    from ebbtide.cli.kubectl import plugin

    _end(guarded(sys.argv[1:], plugin, "kubectl ebbtide"))


def _mend_streams() -> None:
    # An old terminal gets a question mark; a closed stream takes everything.
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # for the life of the process
        else:
            stream.reconfigure(errors="replace")


def _end(code: int) -> NoReturn:
    if {"deltalake", "obstore"} & sys.modules.keys():
        # Their threads and pyarrow's unload in any order, and at times abort a command that has succeeded.
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    gc.freeze()  # the end of the process frees everything, without a search for what is in cycles
    sys.exit(code)
