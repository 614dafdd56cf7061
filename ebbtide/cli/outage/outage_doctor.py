"""``ebbtide outage doctor``: would an outage of each node be recovered?

It reads the cluster with a person's rights, and asks the proof sources from here; `ebbtide.outage.checks`
judges the result.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import NarrowTable, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.cluster_looks import gather
from ebbtide.cli.outage.outage_common import (
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    namespace_option,
)

if TYPE_CHECKING:
    from ebbtide.outage.checks import NodeCheck


DIAGNOSIS_VERSION = 1

EPILOG = """\b
Examples:
  ebbtide outage doctor --config outage.yaml
  ebbtide outage doctor --config outage.yaml -o json | jq '.findings[] | select(.level == "critical")'


Management controllers and clouds are asked from here, with the credentials that the configuration names: run
it where these files are, best in the controller's pod. Only looks. Exit code 1: a finding is critical.
"""


def source_text(node: NodeCheck) -> str:
    """``redfish 10.0.0.7: on``."""
    said = [f"{each.source} {each.name}: {each.error or each.verdict}" for each in node.sources]
    believed = f"only what stands on the Node ({', '.join(node.believes)})" if node.believes else "nothing"
    return "; ".join(said) or believed


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The controller's OutageConfiguration (docs/outage-configuration.md).",
)
@kubeconfig_option
@namespace_option
@output_option("table", "json")
@click.pass_context
def doctor(
    ctx: click.Context, config: Path | None, kubeconfig: str | None, namespace: str, output: str
) -> int:
    """Check whether an outage of each node would be recovered, with a cure for each problem."""
    from ebbtide.cli.doctor import print_findings
    from ebbtide.extras import require

    require("node", "outage doctor")
    from ebbtide.outage.checks import examine
    from ebbtide.outage.configuration import OutageConfiguration, load_outage

    loaded = OutageConfiguration() if config is None else load_outage(config)
    given = ctx.get_parameter_source("namespace") is click.core.ParameterSource.COMMANDLINE
    where = namespace if given or config is None else loaded.namespace
    seen = ask_cluster(
        chosen_kubeconfig(kubeconfig),
        lambda each: gather(each, loaded, where, configured=config is not None),
    )
    findings = examine(seen)
    healthy = not any(finding.level == "critical" for finding in findings)
    rows = [(each.name, each.pool, "yes" if each.ready else "no", source_text(each)) for each in seen.nodes]
    if output == "json":
        show_json(
            {
                "kind": "OutageDiagnosis",
                "version": DIAGNOSIS_VERSION,
                "recoverable": healthy,
                "findings": [finding._asdict() for finding in findings],
                "nodes": [
                    {"name": name, "pool": pool, "ready": ready == "yes", "proof": proof}
                    for name, pool, ready, proof in rows
                ],
            }
        )
        return DONE if healthy else NOT_SO
    print_findings(findings, "ok: an outage of each node would be recovered")
    show("")
    show(NarrowTable(("NODE", "POOL", "READY", "PROOF"), rows))
    return DONE if healthy else NOT_SO
