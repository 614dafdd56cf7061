"""What a node should be configured with, learned from how its pods really stopped.

`stops` reads observations from accounts, `survival` does the statistics, `advising` draws the conclusion,
`configuration` writes it down to be pasted. `fitting` holds a rollout against it before it happens, with what
`needs` makes of each container's `parts`.
"""
