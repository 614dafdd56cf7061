"""Closed segments to an object store: the process that ships them, and real stores."""
