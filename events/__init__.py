"""The vocabulary and the journal: events, and how they are stored.

The bottom layer: it imports no other part of the project.
"""
