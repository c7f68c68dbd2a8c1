# SPDX-License-Identifier: Apache-2.0
"""Commands: each parses, calls one function, and prints."""

import atexit
import gc

# Imports make hundreds of thousands of objects, all to stay: to look for garbage among them every
# 700 took 6 % of a build of nothing, and to look for it once more at the end took 12 %.
gc.set_threshold(300_000)
atexit.register(gc.freeze)
