#!/bin/sh
# Debian's prerm ($1 remove, upgrade, deconfigure, …), RPM's %preun ($1 the number of versions that stay). In an upgrade
# the daemon goes on: it is restarted when the new files are there.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
    going_down=$(busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
        PreparingForShutdown 2>/dev/null || true)
    if [ "$going_down" = "b true" ]; then
        echo "ebbtide: this machine is going down, and its pods with it: remove the package when it is up again" >&2
        exit 1
    fi
    # The unit, logind's drop-in, what stands on the Node. With a configuration that cannot be read it does nothing:
    # then at least the unit.
    if systemctl is-active -q ebbtide.service || systemctl is-enabled -q ebbtide.service 2>/dev/null; then
        /usr/bin/ebbtide uninstall || {
            echo "ebbtide: not everything was taken back; for the Node: ebbtide uninstall --node-only, from anywhere" >&2
            systemctl disable --now ebbtide.service || true
        }
    fi
fi
find /usr/lib/ebbtide -name __pycache__ -prune -exec rm -rf {} +
