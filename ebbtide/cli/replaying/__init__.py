"""The verbs of ``ebbtide replay``, a module each."""
