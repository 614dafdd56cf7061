"""Traces, metrics and logs of a shutdown: pure projections of the journal, and their delivery."""
