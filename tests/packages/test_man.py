"""Man pages equal --help, without accidental troff requests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ebbtide.cli.app import cli
from tests.cli.test_app import LEAVES

ROOT = Path(__file__).parents[2]
#: The pages' man(7) requests.
REQUESTS = {"TH", "SH", "SS", "PP", "TP", "IP", "nf", "fi"}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    into = tmp_path_factory.mktemp("man")
    argv = [sys.executable, str(ROOT / "docs/tools/write_man.py"), str(into), "1.2.3"]
    environ = os.environ | {"SOURCE_DATE_EPOCH": "86400"}
    subprocess.run(argv, env=environ, check=True)
    return {path.name: path.read_text() for path in into.glob("*/*")}


def shown(text: str) -> str:
    for escaped in (r"\fB", r"\fI", r"\fR", r"\&"):
        text = text.replace(escaped, "")
    for escaped, means in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ga", "`"), (r"\(ti", "~")):
        text = text.replace(escaped, means)
    return text.replace(r"\(ha", "^").replace(r"\(rs", "\\")


def help_of(path: tuple[str, ...]) -> tuple[click.Context, click.Command]:
    ctx, command = click.Context(cli, info_name="ebbtide"), cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, name)
        assert found is not None
        ctx, command = click.Context(found, info_name=name, parent=ctx), found
    return ctx, command


def test_a_page_has_the_whole_help_of_its_command(pages: dict[str, str]) -> None:
    """The description, each option and the examples."""
    for path in LEAVES:
        ctx, command = help_of(path)
        page = " ".join(shown(pages["-".join(("ebbtide", *path)) + ".1"]).split())
        wanted = [command.help or "", (command.epilog or "").replace("\b\nExamples:", "")]
        for each in command.params:
            if isinstance(each, click.Option) and (record := each.get_help_record(ctx)):
                wanted += record
        for text in wanted:
            for paragraph in text.replace("\b", "").split("\n\n"):
                assert " ".join(paragraph.split()) in page, path


def test_the_references_have_every_field(pages: dict[str, str]) -> None:
    """Section 5 is docs/configuration.md and docs/outage-configuration.md."""
    for name in ("configuration", "outage-configuration"):
        fields = re.findall(r"^### `(.+)`$", (ROOT / f"docs/{name}.md").read_text(), re.MULTILINE)
        assert fields
        assert re.findall(r"^\.SS (.+)$", shown(pages[f"ebbtide-{name}.5"]), re.MULTILINE) == fields


def test_no_line_is_a_request_by_accident(pages: dict[str, str]) -> None:
    """A line with a leading period would vanish silently. The title has version and date."""
    for name, text in pages.items():
        assert text.startswith(".TH ")
        assert '"1970-01-02" "Ebbtide 1.2.3"' in text.partition("\n")[0], name
        lines = [line for line in text.splitlines() if line.startswith((".", "'"))]
        assert {line[1:].split(" ")[0] for line in lines} <= REQUESTS, name
