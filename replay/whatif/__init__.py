"""What if: a recorded shutdown decided again under other settings, in virtual time.

`performing` is the way in (`what_if`). `tape` reads the record, and `changes` is what shall differ; `sight`
tells what each fact belonged to (`seen`). `world` answers the new run's orders with that, `way` for each
container and `hooks` for each hook, on a `stage` that hands facts on at their time. `outline` folds a run
into waves and pods, `compare` lays two runs side by side, `evidence` says how well the record supports it.
"""
