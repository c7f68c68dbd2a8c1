# SPDX-License-Identifier: Apache-2.0
"""A file that belongs below /usr/bin, in a folder /bin."""

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Replace the link by a folder."""
    site.path("/sbin").unlink()
    site.write("/sbin/tool", "#!/bin/sh\n", 0o755)
