#!/opt/ebbtide/bin/python
"""The command in the image."""

import sys

from ebbtide.cli import main

sys.exit(main())
