# SPDX-License-Identifier: Apache-2.0
"""A report that passed, about a root over HTTP."""

from tests.faults.site import Site
from tests.unit.planted_reports import make_report
from tests.unit.planted_reports import plant as save


def plant(site: Site) -> None:
    """Save it."""
    save(site.tree, make_report(site.tree, str(site.release), 1, root="http"))
