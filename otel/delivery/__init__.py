"""The journal's way to a tracing back end: destinations, cursors, requests, and what an answer means."""
