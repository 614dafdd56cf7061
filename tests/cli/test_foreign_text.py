"""A journal keeps foreign text unchanged, but no verb sends control characters to a terminal.

A pod, a server or a user may choose a text. In these real journals each such text (all that `journal pack
--redact` would hide) is hostile.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.replay import redact as module
from tests.commands import Run

GOLDEN = Path(__file__).parents[1] / "golden"

#: Escape, colour, bell, delete, two eight-bit controls, three line ends, reversed text.
NASTY = "\x1b]0;x\x07\x7f\x9b31m\x85\r\n\u2028\u202e\u2066"
#: Only a newline is our own control.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

#: Our colours; the hostile text has none.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

READING = [
    ("journal", "ls"),
    ("journal", "check"),
    ("journal", "show"),
    ("replay", "timeline", "--all"),
    ("replay", "state"),
    ("replay", "state", "--all"),
    ("replay", "blame"),
    ("replay", "critical-chain"),
    ("replay", "diff", "last", "last"),
    ("replay", "what-if", "--grant", "1s"),
    ("replay", "advise"),
    ("replay", "verify"),
]
FORMS: dict[tuple[str, ...], tuple[str, ...]] = {("replay", "advise"): ("table", "json", "yaml")}


@pytest.fixture(scope="module", params=["node-v1/api", "shutdown-v1"])
def hostile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patched:
        # UIDs too: an annotation may set a static pod's.
        forms = {form: f"{form}{{}}{NASTY}" for form in module._FORMS}
        patched.setattr(module, "_FORMS", forms)
        for piece in module.redact(History([DirectorySource(GOLDEN / request.param)]), module.Pseudonyms()):
            with open(folder / piece.name, "ab") as file:
                file.write(piece.data)
    return folder


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_terminal_gets_nothing_to_obey(
    run: Run, hostile: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every format, on both outputs, in a pipe and on a terminal; only our colours remain."""
    monkeypatch.setenv("TERM", "dumb")
    forms = FORMS.get(command, ("table", "json"))
    for form, terminal in [(forms[0], True), *((form, False) for form in forms)]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        ran = run(*command, "--journal", hostile, "-o", form)
        shown = COLOURS.sub("", ran.out) if terminal else ran.out
        assert not OBEYED.search(shown), (form, OBEYED.search(shown))
        assert not OBEYED.search(ran.err), form


def test_a_configuration_is_shown_with_what_its_path_is_called(run: Run, tmp_path: Path) -> None:
    """The path is in every line, in YAML as a comment; no part of it becomes its own line."""
    folder = tmp_path / "a\x9b31m\nreserve: 1s\u2028"
    folder.mkdir()
    path = folder / "c.yaml"
    path.write_text(
        "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nreserve: 7s\n"
        'dropInDirectory: "/run/systemd/logind.conf.d"\njournalFallbacks: ["/a\\x85b\\u202e"]\n'
    )
    for form in ("table", "json", "yaml"):
        ran = run("config", "show", "--config", path, "-o", form)
        assert (ran.code, OBEYED.search(ran.out)) == (0, None), form
    assert "\nreserve: 7s  # " in ran.out
