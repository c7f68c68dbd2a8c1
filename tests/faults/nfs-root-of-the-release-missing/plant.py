# SPDX-License-Identifier: Apache-2.0
"""A release whose root is gone."""

import shutil

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Remove it."""
    shutil.rmtree(site.root)
