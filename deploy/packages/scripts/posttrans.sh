#!/bin/sh
# RPM's %posttrans.
set -e
/usr/lib/ebbtide/settle
