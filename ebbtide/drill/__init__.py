"""The drill: what a shutdown would need of this machine, measured now, without ending anything."""
