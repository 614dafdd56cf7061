"""The Kubernetes API: a warm watch of this node's pods, and what is written there in a shutdown."""
