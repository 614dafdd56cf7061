"""``kubectl ebbtide`` as far as it goes without a cluster; `tests.deploy.test_view` has one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import msgspec
import pytest

from ebbtide.actors.edges.kubernetes.api_calls import ApiNode
from ebbtide.cli.common.guard import guarded
from ebbtide.cli.kubectl import SECTIONS, known_rows, plugin

VERBS = [name for section in SECTIONS.values() for name in section]


@pytest.mark.parametrize("verb", VERBS)
def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command has kubectl's names of options, a help for each, and examples of commands that exist."""
    assert guarded([verb, "--help"], plugin, "kubectl ebbtide") == 0
    text = capsys.readouterr().out
    for option in ("--kubeconfig", "--context", "-n, --namespace", "-o, --output"):
        assert option in text
    examples = [
        shlex.split(line) for line in text.partition("Examples:")[2].splitlines() if "kubectl" in line
    ]
    assert [words[:2] for words in examples] == [["kubectl", "ebbtide"]] * len(examples)
    assert {words[2] for words in examples} <= set(VERBS)
    command = plugin.get_command(click.Context(plugin), verb)
    assert command is not None
    assert all(each.help for each in command.params if isinstance(each, click.Option))


def test_without_a_kubeconfig_or_with_another_context(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that names it, and nothing is asked."""
    config = tmp_path / "config"
    config.write_text(json.dumps({"current-context": "a", "contexts": [], "clusters": [], "users": []}))
    for words, said in (
        (["--kubeconfig", str(tmp_path / "none")], "which is no file"),
        (["--kubeconfig", str(config), "--context", "there"], "it has no context 'there'"),
    ):
        assert guarded(["status", "node-1", *words], plugin, "kubectl ebbtide") in (1, 2)
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert said in err


def test_what_the_api_server_knows() -> None:
    """Of a node that cannot be asked: whether it is up, what a shutdown has left there, and our own notes."""
    node = {
        "metadata": {"name": "node-1", "annotations": {"ebbtide.dev/last-boot": "{}", "other": "x"}},
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}],
        },
        "status": {
            "nodeInfo": {"bootID": "b"},
            "conditions": [
                {"type": "Ready", "status": "Unknown"},
                {"type": "Drained", "status": "True"},
            ],
        },
    }
    assert dict(known_rows(msgspec.convert(node, ApiNode))) == {
        "node": "node-1, Unknown",
        "boot": "b",
        "unschedulable": "yes",
        "taints": "ebbtide.dev/shutting-down:NoSchedule",
        "Drained": "True",
        "ebbtide.dev/last-boot": "{}",
    }
