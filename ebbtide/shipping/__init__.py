"""Sends closed segments of the journal to an object store, each once.

A separate process (`python -m ebbtide.shipping`) beside the traces' exporter: neither loads the other's
libraries, and a hanging store delays no span. The daemon imports `shipping_edge` and no client of a store.
"""
