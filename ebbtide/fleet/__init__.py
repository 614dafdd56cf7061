"""Journals of many nodes in any store, read by any engine.

An unreadable journal is a row, and never a failed job.
"""
