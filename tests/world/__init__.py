"""The test world: the real system on a simulated node, crashed and damaged at will, checked from outside."""
