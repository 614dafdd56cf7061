"""``ebbtide config check`` and ``config show``: what holds, where it came from, whether it can be honoured.

Only the command line imports this; the daemon prints no tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from actors.policy.periods import effective_periods, requested_seconds
from actors.policy.plan import Plan, make_plan
from ebbtide.config.loading import DEFAULT, Loaded
from ebbtide.config.types import FIELDS, OWN_KIND, OWN_VERSION
from events.base import NS_PER_SECOND

SHOW_VERSION = CHECK_VERSION = 1

#: What a cut by the grant is called; alone it means that a configuration cannot be honoured.
_CUT = "grant-too-small"
_CURED_BY_RAISING = (_CUT, "wave-cut", "reserve-not-granted")


class Checked(NamedTuple):
    """The result of ``config check``: valid it is, or loading would have failed."""

    enabled: bool
    honoured: bool
    findings: tuple[tuple[str, str], ...]

    @property
    def exit_code(self) -> int:
        return 0 if self.honoured else 1


# --- show --------------------------------------------------------------------------------------


def show_values(loaded: Loaded) -> dict[str, Any]:
    """Every field as it would stand in a file, defaults included."""
    return {name: field.doc.show(getattr(loaded.config, field.attribute)) for name, field in FIELDS.items()}


def show_json(loaded: Loaded) -> dict[str, Any]:
    """The values, the source of each, and the periods that follow from them."""
    periods = effective_periods(loaded.settings)
    return {
        "kind": "EffectiveConfiguration",
        "version": SHOW_VERSION,
        "enabled": bool(periods),
        "requestedSeconds": requested_seconds(periods),
        "periods": FIELDS["shutdownGracePeriodByPodPriority"].doc.show(periods),
        "values": show_values(loaded),
        "sources": loaded.sources,
    }


def show_yaml(loaded: Loaded) -> str:
    """A complete document that can be loaded again; comments say where each value came from."""
    lines = [f"apiVersion: {OWN_VERSION}", f"kind: {OWN_KIND}"]
    for name, value in show_values(loaded).items():
        lines += _commented(name, value, loaded.sources)
    return "\n".join(lines) + "\n"


def show_table(loaded: Loaded) -> RenderableType:
    """One row a field, gates one by one."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("FIELD", "VALUE", "SOURCE"):
        table.add_column(heading, overflow="fold")
    for name, value in _flat(show_values(loaded)).items():
        source = loaded.sources[name]
        table.add_row(name, Text(_plain(value)), Text(source, style="dim" if source == DEFAULT else ""))
    return table


# --- check -------------------------------------------------------------------------------------


def check(loaded: Loaded, grant_ns: int | None) -> Checked:
    """Whether a valid configuration can be honoured under logind's present limit (None: not known).

    It cannot where the limit is smaller than the periods and may not be raised; a reserve that is not granted
    cuts nothing. Warnings that need pods are ``plan``'s.
    """
    settings = loaded.settings
    periods = effective_periods(settings)
    plan = make_plan(periods, grant_ns, settings.reserve_seconds * NS_PER_SECOND, (), settings.budget)
    cut = any(code == _CUT for code, _ in plan.warnings)
    if not (settings.raise_grant and plan.override_needed):
        return Checked(plan.enabled, not cut, plan.warnings)
    others = tuple(warning for warning in plan.warnings if warning[0] not in _CURED_BY_RAISING)
    return Checked(plan.enabled, True, (("grant-raised", _raised(plan)), *others))


def check_json(checked: Checked) -> dict[str, Any]:
    """``valid`` is true in any result: an invalid configuration has none, it is exit code 2."""
    return {
        "kind": "ConfigCheck",
        "version": CHECK_VERSION,
        "valid": True,
        "enabled": checked.enabled,
        "honoured": checked.honoured,
        "findings": [{"code": code, "message": message} for code, message in checked.findings],
    }


def check_text(checked: Checked) -> RenderableType:
    """The verdict in one line, then one line a finding."""
    verdict = (
        "valid, and graceful shutdown is off"
        if not checked.enabled
        else "valid, and can be honoured"
        if checked.honoured
        else "valid, but it cannot be honoured"
    )
    lines = [Text(f"{code}: {message}") for code, message in checked.findings]
    return Group(Text(verdict, style="green" if checked.honoured else "yellow"), *lines)


def _raised(plan: Plan) -> str:
    needed_seconds = plan.requested_seconds + plan.reserve_seconds
    return (
        f"logind grants {plan.grant_seconds} s now and {needed_seconds} s are needed: "
        "the daemon raises its limit with a drop-in"
    )


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    gates = {f"featureGates.{gate}": on for gate, on in values["featureGates"].items()}
    return {name: value for name, value in values.items() if name != "featureGates"} | gates


def _commented(name: str, value: Any, sources: dict[str, str]) -> list[str]:
    if isinstance(value, dict):
        told = {key: sources.get(f"{name}.{key}", sources.get(name, "")) for key in value}
        inner = [f"  {key}: {_plain(each)}  # {told[key]}" for key, each in value.items()]
        return [f"{name}:", *inner]
    return [f"{name}: {_plain(value)}  # {sources[name]}"]


def _plain(value: Any) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=2**31, allow_unicode=False)
    return text.removesuffix("\n").removesuffix("\n...")
