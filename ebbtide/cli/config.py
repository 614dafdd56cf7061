"""``ebbtide config``: is the configuration valid, and where does each value come from?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import yaml
from rich.text import Text

from ebbtide.actors.policy.grace_periods import effective_periods, requested_seconds
from ebbtide.actors.policy.planning import PlanWarning, make_plan
from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import Cell, show, show_json, table
from ebbtide.cli.common.shared_options import config_option, grant_option, need_command, output_option
from ebbtide.config.loading import DEFAULT_SOURCE, Loaded, configuration_values, load_named
from ebbtide.config.schema import OWN_KIND, OWN_VERSION
from ebbtide.doctor.rules import overridden_cure
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.record.format import document, visible
from ebbtide.events.units import span_s

CHECK_EPILOG = """\b
Examples:
  ebbtide config check
  ebbtide config check --config /var/lib/kubelet/config.yaml --grant 30s
  ebbtide config check --config site.yaml --require-enabled     # in a pipeline
"""

SHOW_EPILOG = """\b
Examples:
  ebbtide config show
  ebbtide config show --config base.yaml --config site.yaml -o yaml
"""


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Check the configuration; show where each value comes from."""
    need_command(ctx)


@config.command("check", epilog=CHECK_EPILOG)
@config_option
@grant_option
@click.option(
    "--require-enabled",
    "required",
    is_flag=True,
    help="Exit code 1 also if graceful shutdown is off.",
)
@output_option("table", "json")
def check_command(configs: tuple[Path, ...], grant: int | None, required: bool, output: str) -> int:
    """Validate, and check whether logind's limit allows it.

    Exit code 1: valid, but logind grants less than the periods, and its limit must not be raised or another
    drop-in wins against ours. Where logind does not answer, name its limit with --grant.
    """
    loaded = load_named(configs)
    # With --grant the limit can be another machine's: a pipeline checks the files of a whole fleet.
    if grant is None:
        from ebbtide.actors.edges.logind_reading import DropIns
        from ebbtide.node import logind_grant_ns

        checked = check_configuration(loaded, logind_grant_ns(), DropIns().read().overridden_by)
    else:
        checked = check_configuration(loaded, grant)
    if output == "json":
        show_json(checked)
    else:
        show_check(checked)
    return NOT_SO if checked["honoured"] is False or (required and not checked["enabled"]) else DONE


@config.command("show", epilog=SHOW_EPILOG)
@config_option
@output_option("table", "json", "yaml")
def show_command(configs: tuple[Path, ...], output: str) -> None:
    """Show the effective configuration, and where each value comes from."""
    loaded = load_named(configs)
    if output == "yaml":
        click.echo(configuration_yaml(loaded), nl=False)
    elif output == "json":
        show_json(configuration_json(loaded))
    else:
        show_configuration(loaded)


#: Only _CUT_CODE, a cut by the grant, means "cannot be honoured".
OFF_CODE, _CUT_CODE = "disabled", "grant-too-small"
VERDICTS = {
    True: "valid, and can be honoured",
    False: "valid, but it cannot be honoured",
    None: "valid; whether it can be honoured is not known",
}
_CURED_BY_RAISING = (_CUT_CODE, "wave-cut", "reserve-not-granted")


def configuration_json(loaded: Loaded) -> dict[str, Any]:
    periods = effective_periods(loaded.settings)
    return document(
        "EffectiveConfiguration",
        1,
        enabled=bool(periods),
        requested_seconds=requested_seconds(periods),
        periods=[{"priority": each.priority, "shutdownGracePeriodSeconds": each.seconds} for each in periods],
        values=configuration_values(loaded),
        sources=loaded.sources,
    )


def configuration_yaml(loaded: Loaded) -> str:
    """A complete document that can be loaded again, with sources as comments."""
    lines, sources = [f"apiVersion: {OWN_VERSION}", f"kind: {OWN_KIND}"], loaded.sources
    for name, value in configuration_values(loaded).items():
        if not isinstance(value, dict):
            lines.append(f"{name}: {yaml_line(value)}  # {visible(sources[name])}")
            continue
        lines.append(f"{name}:")
        for key, each in value.items():
            source = sources.get(f"{name}.{key}", sources.get(name, ""))
            lines.append(f"  {key}: {yaml_line(each)}  # {visible(source)}")
    return "\n".join(lines) + "\n"


def show_configuration(loaded: Loaded) -> None:
    rows: list[tuple[Cell, ...]] = []
    for name, value in configuration_values(loaded).items():
        # A whole section on one line would set the width of all lines.
        parts = {f"{name}.{part}": each for part, each in value.items()} if isinstance(value, dict) else {}
        for field, each in (parts or {name: value}).items():
            # A file that replaces the whole section is its one source.
            source = visible(loaded.sources.get(field, loaded.sources.get(name, "")))
            style = "dim" if source == DEFAULT_SOURCE else ""
            rows.append((field, Text(yaml_line(each)), Text(source, style=style)))
    show(table(("FIELD", "VALUE", "SOURCE"), rows))


def check_configuration(loaded: Loaded, grant_ns: int | None, overrider: str = "") -> dict[str, Any]:
    """``honoured`` None: it depends on logind's unknown limit. False: the limit is smaller than the periods
    and cannot be raised, by raiseGrant or because logind reads the drop-in ``overrider`` after ours. A
    missing reserve cuts no period.
    """
    settings = loaded.settings
    periods = effective_periods(settings)
    # Without pods: cuts by the limit do not depend on them.
    plan = make_plan(periods, grant_ns, settings.reserve_seconds * NS_PER_SECOND, (), settings.budget)
    needed = f"{span_s(plan.requested_seconds + plan.reserve_seconds)} are needed"
    found: list[PlanWarning] = [*plan.warnings]
    honoured: bool | None = all(code != _CUT_CODE for code, _ in found)
    if plan.enabled and grant_ns is None and not settings.raise_grant:
        honoured = None
        why = f"logind does not answer, and its limit may not be raised (raiseGrant): {needed}"
        found.append(("grant-unknown", f"{why}; name the limit with --grant"))
    elif settings.raise_grant and plan.override_needed and overrider:
        found.append(("grant-overridden", overridden_cure(overrider)))
    elif settings.raise_grant and plan.override_needed:
        honoured = True
        why = f"logind grants {span_s(plan.grant_seconds)} now and {needed}"
        others = (warning for warning in found if warning[0] not in _CURED_BY_RAISING)
        found = [("grant-raised", f"{why}: the daemon raises its limit with a drop-in"), *others]
    if plan.enabled and loaded.kubelet_periods:
        text = (
            f"{', '.join(loaded.kubelet_periods)}: a period in the kubelet's document is the kubelet's too:"
            " it takes a lock of its own and ends the pods itself. Mode observe wants that; for the others"
            " set it to 0s there and write it in an EbbtideConfiguration (docs/node.md, 'Whose periods')"
        )
        found.append(("kubelet-acts-too", text))
    findings = [{"code": code, "message": message} for code, message in (*found, *loaded.notes)]
    fields = {"enabled": plan.enabled, "honoured": honoured, "findings": findings}
    return document("ConfigCheck", 1, valid=True, **fields)


def show_check(checked: dict[str, Any]) -> None:
    # The sentence for "off" also has the cure.
    findings = [(each["code"], each["message"]) for each in checked["findings"]]
    off = next((message for code, message in findings if code == OFF_CODE), "")
    style = "green" if checked["enabled"] and checked["honoured"] else "yellow"
    show(Text(f"valid, and {off}" if off else VERDICTS[checked["honoured"]], style=style))
    for code, message in findings:
        if code != OFF_CODE:
            show(Text(f"{code}: {message}"))


def yaml_line(value: Any) -> str:
    # The source's comment follows on the line.
    text = yaml.safe_dump(value, default_flow_style=True, width=2**31, allow_unicode=False)
    return text.removesuffix("\n").removesuffix("\n...")
