#!/bin/sh
# Debian's postrm ($1 remove, purge, upgrade, …), RPM's %postun ($1 the number of versions that stay).
set -e
case "$1" in
remove | purge | 0)
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
    fi
    ;;
esac
# Removed, a package leaves its configuration and its data; purged, nothing. RPM has no such word: there they stay.
if [ "$1" = purge ]; then
    rm -rf /etc/ebbtide /var/lib/ebbtide /run/ebbtide
fi
