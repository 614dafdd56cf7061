"""The only code that touches the world: an edge carries out and says what it saw; it decides nothing."""
