"""The effective configuration, and its check against logind's limit, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ebbtide.actors.policy.grace_periods import effective_periods, requested_seconds
from ebbtide.actors.policy.planning import Plan, make_plan
from ebbtide.config.loading import DEFAULT_SOURCE, Loaded, configuration_values
from ebbtide.config.schema import OWN_KIND, OWN_VERSION
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.record.format import visible
from ebbtide.events.units import span_s

SHOW_VERSION = CHECK_VERSION = 1
#: The code of a cut by the grant; only this one means "cannot be honoured".
OFF_CODE, _CUT_CODE = "disabled", "grant-too-small"
_CURED_BY_RAISING = (_CUT_CODE, "wave-cut", "reserve-not-granted")


class Checked(NamedTuple):
    """The result of ``config check`` for a valid configuration.

    ``honoured``: None where it depends on an unknown limit.
    """

    enabled: bool
    honoured: bool | None
    findings: tuple[tuple[str, str], ...]

    @property
    def exit_code(self) -> int:
        return 1 if self.honoured is False else 0


def configuration_json(loaded: Loaded) -> dict[str, Any]:
    """The values, the source of each, and the resulting periods."""
    periods = effective_periods(loaded.settings)
    return {
        "kind": "EffectiveConfiguration",
        "version": SHOW_VERSION,
        "enabled": bool(periods),
        "requestedSeconds": requested_seconds(periods),
        "periods": [
            {"priority": each.priority, "shutdownGracePeriodSeconds": each.seconds} for each in periods
        ],
        "values": configuration_values(loaded),
        "sources": loaded.sources,
    }


def configuration_yaml(loaded: Loaded) -> str:
    """A complete document that can be loaded again; comments have each value's source."""
    lines, sources = [f"apiVersion: {OWN_VERSION}", f"kind: {OWN_KIND}"], loaded.sources
    for name, value in configuration_values(loaded).items():
        if not isinstance(value, dict):
            lines.append(f"{name}: {yaml_line(value)}  # {visible(sources[name])}")
            continue
        lines.append(f"{name}:")
        for key, each in value.items():
            # Gates have their own sources; other sections may have one for the whole.
            source = sources.get(f"{name}.{key}", sources.get(name, ""))
            lines.append(f"  {key}: {yaml_line(each)}  # {visible(source)}")
    return "\n".join(lines) + "\n"


def configuration_table(loaded: Loaded) -> RenderableType:
    """One row for each field and each part of a section."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("FIELD", "VALUE", "SOURCE"):
        table.add_column(heading, overflow="fold")
    rows: dict[str, Any] = {}
    for name, value in configuration_values(loaded).items():
        # A line for each part: the longest section would otherwise set the width of all lines.
        parts = {f"{name}.{part}": each for part, each in value.items()} if isinstance(value, dict) else None
        rows |= parts or {name: value}
    for name, value in rows.items():
        # A section that a later file replaces as a whole has one source.
        source = visible(loaded.sources.get(name, loaded.sources.get(name.partition(".")[0], "")))
        table.add_row(
            name, Text(yaml_line(value)), Text(source, style="dim" if source == DEFAULT_SOURCE else "")
        )
    return table


def check_configuration(loaded: Loaded, grant_ns: int | None) -> Checked:
    """Whether logind's present limit (None: unknown) allows a valid configuration.

    It does not where the limit is smaller than the periods and must not be raised; a missing reserve cuts
    no period. ``plan`` has the warnings about pods.
    """
    settings = loaded.settings
    periods = effective_periods(settings)
    # A plan without pods: cuts by the limit do not depend on pods, and the sentences are ``plan``'s own.
    plan = make_plan(periods, grant_ns, settings.reserve_seconds * NS_PER_SECOND, (), settings.budget)
    cut = any(code == _CUT_CODE for code, _ in plan.warnings)
    both = tuple(_kubelet_finding(loaded.kubelet_periods)) if plan.enabled else ()
    if plan.enabled and grant_ns is None and not settings.raise_grant:
        unknown = (
            f"logind does not answer, and its limit may not be raised (raiseGrant): {_needed(plan)} are"
            " needed; name the limit with --grant"
        )
        return Checked(True, None, (*plan.warnings, ("grant-unknown", unknown), *both))
    if not (settings.raise_grant and plan.override_needed):
        return Checked(plan.enabled, not cut, plan.warnings + both)
    # A raised limit removes its own warnings; the others stay true.
    others = tuple(warning for warning in plan.warnings if warning[0] not in _CURED_BY_RAISING)
    raised = (
        f"logind grants {span_s(plan.grant_seconds)} now and {_needed(plan)} are needed: the daemon raises"
        " its limit with a drop-in"
    )
    return Checked(plan.enabled, True, (("grant-raised", raised), *others, *both))


def _needed(plan: Plan) -> str:
    return span_s(plan.requested_seconds + plan.reserve_seconds)


def _kubelet_finding(places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The kubelet also uses the periods in its own file."""
    if places:
        text = (
            f"{', '.join(places)}: a period in the kubelet's document is the kubelet's too: it takes a lock"
            " of its own and ends the pods itself. Mode observe wants that; for the others set it to 0s"
            " there and write it in an EbbtideConfiguration (docs/node.md, 'Whose periods')"
        )
        yield "kubelet-acts-too", text


def check_document(checked: Checked) -> dict[str, Any]:
    """``valid`` is always true: an invalid configuration ends with exit code 2."""
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
    # The sentence for "off" also has the cure.
    off = next((message for code, message in checked.findings if code == OFF_CODE), "")
    verdict = (
        f"valid, and {off}"
        if off
        else "valid, and can be honoured"
        if checked.honoured
        else "valid; whether it can be honoured is not known"
        if checked.honoured is None
        else "valid, but it cannot be honoured"
    )
    lines = [Text(f"{code}: {message}") for code, message in checked.findings if code != OFF_CODE]
    return Group(Text(verdict, style="green" if checked.enabled and checked.honoured else "yellow"), *lines)


def yaml_line(value: Any) -> str:
    """One line of YAML."""
    # Any length: the comment with the source follows on the line.
    text = yaml.safe_dump(value, default_flow_style=True, width=2**31, allow_unicode=False)
    return text.removesuffix("\n").removesuffix("\n...")
