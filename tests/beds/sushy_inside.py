"""The Redfish emulator of sushy-tools, with a short one of the delays that it draws for an action.

Run by the Python of an environment of its own (tests/beds/bmc.py), as `sushy-emulator` is:
``python sushy_inside.py --config FILE``.
"""

import random
import sys

from sushy_tools.emulator import main

#: Of 1 to 11 s. It counts them from the whole second, so an action takes effect after 2 to 3 s: the Off of a
#: restart is seen, on a busy machine too.
ACTION_SECONDS = 3

random.randint = lambda least, most: ACTION_SECONDS
sys.exit(main.main())
