"""The reference's own test tables as data: our copy, and the one beside the repository where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

OURS = Path(__file__).parents[2] / "cases"
SHARED = Path(__file__).parents[4] / "shared" / "cases"

#: Words for people; each copy has its own. ("not nil" is what an unquoted note with a comma leaves behind.)
WORDS = ("name", "note", "not nil", "not_ours", "want_message", "error")


def tables(name: str, folder: Path = OURS) -> list[list[dict[str, Any]]]:
    """The cases of each document of one file."""
    documents = yaml.safe_load_all((folder / name).read_text())
    return [document["cases"] for document in documents]


def params(name: str, document: int = 0) -> list[Any]:
    """The cases of one document, as test parameters; what is not ours is left out."""
    cases = [case for case in tables(name)[document] if "not_ours" not in case]
    return [pytest.param(case, id=case["name"].replace(" ", "-")) for case in cases]


def numbers(case: dict[str, Any]) -> dict[str, Any]:
    """A case without its words: what both copies must agree on."""
    kept = {key: value for key, value in case.items() if key not in WORDS}
    if isinstance(kept.get("want"), str):
        kept["want"] = "error" if kept["want"] == "error" else "words"
    return kept | {"fails": case.get("error") is not None}
