#!/bin/sh
# Debian's postinst ($1 configure, $2 the version that was configured before, empty at a first installation; or
# abort-…), RPM's %post ($1 the number of versions that are installed now).
set -e
case "$1:$2" in
configure: | 1:)
    # The presets that come with it leave it disabled: a node's kubelet may still end the pods itself, and nobody has
    # chosen a period. Whoever wants it on all machines has a preset of his own, and that one counts.
    systemctl preset ebbtide.service >/dev/null || true
    ;;
esac
# After an upgrade that failed the files of before are back, and what was compiled is gone. After a removal that failed
# nothing has changed, least of all in mid-shutdown.
case "$1" in
configure | abort-upgrade) /usr/lib/ebbtide/settle ;;
esac
