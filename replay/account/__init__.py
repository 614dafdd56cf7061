"""One shutdown, told: what every reader of a journal wants to know of it, folded from its records once."""
