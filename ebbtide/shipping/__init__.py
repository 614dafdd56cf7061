"""Closed segments of the journal to an object store, each once."""
