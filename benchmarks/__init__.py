"""What was promised in figures, measured: each script prints its figures beside their limits."""
