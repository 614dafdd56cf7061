"""Spans that a back end has to get: over OTLP, at least once, and never in the way of a shutdown.

A process of its own (`python -m ebbtide.otel.delivery`) tails the synced journal and sends what is finished
there. What was not acknowledged before the machine went down is sent at the next start, from a cursor beside
the journal. The daemon imports `destination`, which says where spans go, and `cursor`, and nothing else here.
"""
