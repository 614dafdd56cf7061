"""The option that writes the expected output of interaction scripts anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``pytest tests/scripts --rewrite``: then read the diff, and keep only what you understand."""
    parser.addoption("--rewrite", action="store_true", help="write the expected output of scripts anew")
