"""Sources of proof: who can say whether a machine is off, each an edge of its own."""
