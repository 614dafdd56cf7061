#!/bin/sh
# Debian's preinst, RPM's %pre.
set -e
# What was compiled here belongs to the files that are about to be replaced, and to no package: left, it would keep
# folders alive of which the new version has none.
if [ -d /usr/lib/ebbtide ]; then
    find /usr/lib/ebbtide -name __pycache__ -prune -exec rm -rf {} +
fi
