"""Manifests, unit and uninstall on a real cluster and on real machines."""
