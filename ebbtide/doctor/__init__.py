"""What would keep the next shutdown from being graceful: looking, and judging what was seen.

`gather` looks and decides nothing; `rules` judges and looks at nothing, so that every rule is tested on
plain values.
"""
