# SPDX-License-Identifier: Apache-2.0
"""Golden root filesystems for GPU and NPU nodes: locked, layered, proved, netbooted."""

import os
import sys

__version__ = "0.1.0"

# Root leaves no bytecode in a checkout or virtual environment of somebody else's; that of this file
# was written before its first line ran.
if os.geteuid() == 0 and os.stat(__file__).st_uid != 0:
    sys.dont_write_bytecode = True
    if __spec__ and __spec__.cached:
        try:
            if os.stat(__spec__.cached).st_uid == 0:
                os.unlink(__spec__.cached)
                os.rmdir(os.path.dirname(__spec__.cached))
        except OSError:
            pass
