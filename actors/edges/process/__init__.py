"""The embedded default: pods as local processes with real signals, hooks and exit codes."""
