"""The vocabulary and the journal: what can happen, and how it is kept.

This package is the bottom layer: it imports nothing else of the project.
"""
