"""Closed segments of the journal to an object store: each once, and never in the way of a shutdown.

A process of its own (`python -m ebbtide.shipping`), a sibling of the traces' exporter: who ships and exports
nothing loads no OpenTelemetry, a store that hangs holds no span, and what redacts may import the replay. The
daemon imports `edge` and what that needs: no client of a store.
"""
