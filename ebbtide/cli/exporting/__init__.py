"""The formats of ``ebbtide export``, one module each."""
