"""Whatever bytes come: every parser that meets the outside reads them, or refuses them by its one error."""
