"""``kubectl ebbtide`` without a cluster; `tests.deploy.test_view` has one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import pytest

from ebbtide.cli.common.guard import guarded
from ebbtide.cli.kubectl import plugin
from ebbtide.cli.outage import outage, outage_common

#: Of a node that answers.
VERBS = [verb for verb in plugin.commands if verb != "outage"]


@pytest.mark.parametrize("verb", VERBS)
def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """kubectl's option names, and examples with existing commands."""
    assert guarded([verb, "--help"], plugin, "kubectl ebbtide") == 0
    text = capsys.readouterr().out
    for option in ("--kubeconfig", "--context", "-n, --namespace", "-o, --output"):
        assert option in text
    lines = text.partition("Examples:")[2].splitlines()
    examples = [line.split()[:3] for line in lines if "kubectl" in line]
    assert examples
    assert all(words[:2] == ["kubectl", "ebbtide"] and words[2] in VERBS for words in examples)
    assert all(each.help for each in plugin.commands[verb].params if isinstance(each, click.Option))


def test_the_outage_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    """All but the controller."""
    group = plugin.commands["outage"]
    assert isinstance(group, click.Group)
    context = click.Context(group)
    assert set(group.list_commands(context)) == set(outage.list_commands(context)) - {"run"}
    assert guarded(["outage", "explain", "--help"], plugin, "kubectl ebbtide") == 0
    assert "Usage: kubectl ebbtide outage explain" in capsys.readouterr().out


def test_without_a_kubeconfig_or_with_another_context(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with its name, and no request."""
    config = tmp_path / "config"
    config.write_text(json.dumps({"current-context": "a", "contexts": [], "clusters": [], "users": []}))
    for words, said in (
        (["--kubeconfig", str(tmp_path / "none")], "no kubeconfig file"),
        (["--kubeconfig", str(config), "--context", "there"], "it has no context 'there'"),
    ):
        assert guarded(["status", "node-1", *words], plugin, "kubectl ebbtide") in (1, 2)
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert said in err


def test_every_given_option_reaches_the_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also wave 0, which equals False."""
    kubectl = sys.modules["ebbtide.cli.kubectl"]  # the package has a function with this name
    monkeypatch.setattr(outage_common, "chosen_kubeconfig", lambda given: None)
    monkeypatch.setattr(kubectl, "ask_cluster", lambda access, work, context: work(None))
    monkeypatch.setattr(kubectl, "ask_there", lambda *asked: (0, repr(asked), ""))
    words = ["timeline", "node-1", "-2", "--all", "--wave", "0", "-n", "there", "-o", "json"]
    assert guarded(words, plugin, "kubectl ebbtide") == 0
    asked = ["timeline", "-2", "--all", "--wave=0", "--output=json"]
    assert capsys.readouterr().out == f"{(None, 'node-1', 'there', asked)!r}\n"
