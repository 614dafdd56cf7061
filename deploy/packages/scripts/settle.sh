#!/bin/sh
# Called by the package's scripts when its files are all there, and by hand after the distribution has got another
# Python: compiles for the Python of now, and has a daemon that runs take the new version up.
set -e
# A unit that may write nothing could not keep what it compiles, and would do so at each start. What Ebbtide never loads
# is left as it is.
/usr/lib/ebbtide/bin/python3 -IS -m compileall -q -x '/(_?tests?|lexers|styles|pydantic)/|_test\.py$' \
    /usr/lib/ebbtide/lib/python3/site-packages || true
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
systemctl is-active -q ebbtide.service || exit 0
# What is wrong by the new version's rules would end it for good (exit code 2), and its lock with it. The daemon that
# runs has read that configuration long ago: it protects the node until somebody has looked.
checked=0
/usr/bin/ebbtide config check >/dev/null 2>&1 || checked=$?
if [ "$checked" = 2 ]; then
    echo "ebbtide: this version refuses the configuration, so the version before runs on: ebbtide config check" >&2
    exit 0
fi
# The delay lock waits in the service manager's store meanwhile.
systemctl try-restart ebbtide.service || echo "ebbtide: not started again: systemctl status ebbtide" >&2
