"""What the composition root settles about traces: where they go, who waits for them, what hooks are told."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import msgspec

from ebbtide.config import Loaded
from ebbtide.surroundings import Tell
from otel.delivery.destination import BadDestination, Destination, from_environment, resolve
from otel.ids import hook_span_id, traceparent


def destination_of(loaded: Loaded, environ: Mapping[str, str]) -> Destination | None:
    """Where spans go; None: nowhere. Raises BadDestination."""
    return resolve(loaded.options.tracing.given, from_environment(environ))


def usable(loaded: Loaded, tell: Tell) -> Destination | None:
    """The same for a daemon: a stray variable must not leave a node unprotected."""
    try:
        return destination_of(loaded, os.environ)
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def flushing(load: Callable[[], Loaded]) -> Callable[[], Loaded]:
    """Configurations that ask the end of a shutdown to wait for its trace, for a daemon that exports."""

    def read() -> Loaded:
        loaded = load()
        flush_ns = loaded.options.tracing.flush_ns
        return loaded._replace(settings=msgspec.structs.replace(loaded.settings, trace_flush_ns=flush_ns))

    return read


def hook_context(trace_id: str, order_key: str) -> str:
    """The ``traceparent`` under which a hook's own spans belong; empty outside of a shutdown."""
    trace = bytes.fromhex(trace_id)
    return traceparent(trace, hook_span_id(trace, order_key)) if trace else ""
