"""A fleet's journals on a real Spark standalone cluster, on loopback."""
