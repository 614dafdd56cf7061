"""What several verbs share: options, journals to read, shutdowns to choose, output, exit codes."""

from __future__ import annotations
