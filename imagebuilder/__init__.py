# SPDX-License-Identifier: Apache-2.0
"""Golden root filesystems for GPU and NPU nodes: locked, layered, proved, netbooted."""

import contextlib
import os
import sys
from pathlib import Path

__version__ = "0.1.0"

# Root leaves no bytecode in a checkout or virtual environment of somebody else's; that of this file
# was written before its first line ran.
if os.geteuid() == 0 and Path(__file__).stat().st_uid != 0:
    sys.dont_write_bytecode = True
    if __spec__ and __spec__.cached:
        with contextlib.suppress(OSError):
            own = Path(__spec__.cached)
            if own.stat().st_uid == 0:
                own.unlink()
                own.parent.rmdir()
