"""The doctor: `gather` looks at the machine, `rules` judges plain values."""
