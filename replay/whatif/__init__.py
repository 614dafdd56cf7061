"""What if: a recorded shutdown decided again under other settings, in virtual time.

`run` is where to begin (`what_if`): it runs the recorded shutdown again and lays both runs side by side.
`record` reads it, says what shall differ, and finds what each recorded fact belonged to. `world` answers the
new run's orders with that, container by container and hook by hook.
"""
