"""The actors: values and functions. No clock, randomness, environment, I/O or await in here.

An actor type is a state Struct and a table from event type to handler. A handler takes the state, the
event and the monotonic time of its fact in nanoseconds, and returns the next state and its decisions.
"""
