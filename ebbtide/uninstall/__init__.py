"""The way back: a node as it was before Ebbtide, with an account of each step."""
