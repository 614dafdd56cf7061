"""sushy-tools' Redfish emulator with a short action delay.

Run by the Python of its environment (tests/beds/bmc.py), like `sushy-emulator`: ``python sushy_inside.py
--config FILE``.
"""

import random
import sys

from sushy_tools.emulator import main

#: The default is 1 to 11 s. Counted in whole seconds, so an action takes 2 to 3 s: a restart's Off is visible
#: on a busy machine too.
ACTION_SECONDS = 3

random.randint = lambda least, most: ACTION_SECONDS
sys.exit(main.main())
