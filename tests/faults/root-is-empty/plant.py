# SPDX-License-Identifier: Apache-2.0
"""A root with nothing in it."""

import shutil

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Empty it."""
    shutil.rmtree(site.root)
    site.root.mkdir(mode=0o755)
