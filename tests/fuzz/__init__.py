"""Every parser of outside input reads any bytes, or refuses them with its one error."""
