"""``ebbtide export otlp``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from ebbtide.cli.options import DURATION, F, config_option, output_option
from ebbtide.cli.reading import journals_option

EPILOG = """\b
Examples:
  ebbtide export otlp --endpoint http://localhost:4318
  ebbtide export otlp -2 --endpoint http://localhost:4317 --protocol grpc
  ebbtide export otlp 8f2d6c1e-1234 --journal /mnt/old/journal -o json | jq .traceId
  ebbtide export otlp --endpoint http://localhost:4318 --give-up 0s
  OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer%20…' ebbtide export otlp

What is not said here comes from the section tracing of the configuration, then from the standard variables
OTEL_EXPORTER_OTLP_*. Header values are given there: what stands on a command line, everybody on the machine
can read. Sending a shutdown again is harmless: each span has the same id and bytes as the first time.
"""


def _file(name: str, text: str) -> Callable[[F], F]:
    path = click.Path(path_type=Path, exists=True, dir_okay=False)
    return click.option(name, type=path, default=None, metavar="FILE", help=text)


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@click.option("--endpoint", default=None, metavar="URL", help="Where to; /v1/traces is added where missing.")
@click.option(
    "--protocol", type=click.Choice(("http/protobuf", "grpc")), default=None, help="[default: http/protobuf]"
)
@click.option("--compression", type=click.Choice(("none", "gzip")), default=None, help="[default: none]")
@click.option("--timeout", type=DURATION, default=None, help="Of one request.  [default: 10s]")
@click.option(
    "--give-up",
    type=DURATION,
    default="20s",
    show_default=True,
    help="How long to try a back end that does not answer.",
)
@_file("--certificate", "Authorities to trust, PEM.")
@_file("--client-certificate", "Ours, for mutual TLS, PEM.")
@_file("--client-key", "Its key, PEM.")
@config_option
@journals_option
@output_option("table", "json")
def otlp(
    episode: str,
    endpoint: str | None,
    protocol: str | None,
    compression: str | None,
    timeout: int | None,
    give_up: int,
    certificate: Path | None,
    client_certificate: Path | None,
    client_key: Path | None,
    configs: tuple[Path, ...],
    journals: tuple[Path, ...],
    output: str,
) -> int:
    """Send the trace of a shutdown to a tracing back end.

    EPISODE is last (the default), -1, -2, …, or an id. Exit code 1: it did not take all of it; its reason is
    printed.
    """
    from ebbtide.cli.exporting.otlp_send import send, wanted

    said = wanted(endpoint, protocol, compression, timeout, (certificate, client_certificate, client_key))
    return send(journals, episode, said, configs, give_up, output)
