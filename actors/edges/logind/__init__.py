"""The edge to systemd-logind: the delay lock, the signal, and the limit."""
