"""Sources of proof: one file a source that can report whether a machine is off (docs/extending.md)."""
