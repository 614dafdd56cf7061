"""The command line: thin commands over the daemon, the journal and the replayer.

Nothing is imported before it is needed: ``ebbtide run`` stays resident and has to be armed within half a
second, so it must not pay for tables, YAML printing or the replayer.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry point ``ebbtide``."""
    from ebbtide.cli.guard import guarded

    sys.exit(guarded(sys.argv[1:]))
