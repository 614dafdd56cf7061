"""The kubelet's edge: its unit on a real service manager's words, mounts that the kernel really has."""
