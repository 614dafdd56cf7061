"""The only code that touches the world. An edge carries orders out and says what it saw; it decides nothing."""
