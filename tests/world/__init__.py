"""The test world: the real system on a simulated node with crashes and damage, checked from outside."""
