"""How the records of one shutdown become the spans of its trace."""
