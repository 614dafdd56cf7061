"""Shared by several verbs: options, reading of journals, selection of shutdowns, output, exit codes."""

from __future__ import annotations
