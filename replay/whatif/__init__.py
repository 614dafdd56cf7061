"""What if: a recorded shutdown decided again under other settings, in virtual time.

`what_if` is the way in. `tape` reads the record, `seen` says what each fact in it belonged to, `world`
answers the new run's orders with that, `outline` folds a run into waves and pods, `compare` lays two runs
side by side. How certain the result is, and why, is in `world`.
"""
