# SPDX-License-Identifier: Apache-2.0
"""A file of a user who is nobody in the image."""

import os

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Make it."""
    site.write("/opt/tool", "#!/bin/sh\n", 0o755)
    os.chown(site.path("/opt/tool"), 4321, 4321)
