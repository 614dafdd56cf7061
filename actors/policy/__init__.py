"""Pure rules: who is ended when, with how much time, and what a start does about the past.

Integers and values in, integers and values out. The actors, the ``plan`` command and every what-if call the
same functions.
"""
