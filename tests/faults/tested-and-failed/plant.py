# SPDX-License-Identifier: Apache-2.0
"""A report that passed, and a newer one that did not."""

from tests.faults.site import Site
from tests.unit.planted_reports import NO_ROOT, make_report
from tests.unit.planted_reports import plant as save


def plant(site: Site) -> None:
    """Save both."""
    save(site.tree, make_report(site.tree, str(site.release), 1))
    save(site.tree, make_report(site.tree, str(site.release), 2, verdict=NO_ROOT))
