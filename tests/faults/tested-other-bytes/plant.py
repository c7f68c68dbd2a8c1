# SPDX-License-Identifier: Apache-2.0
"""A report that passed, about another kernel."""

from tests.faults.site import Site
from tests.unit.planted_reports import make_report
from tests.unit.planted_reports import plant as save


def plant(site: Site) -> None:
    """Save the report, whose kernel is not the release's."""
    save(site.tree, make_report(site.tree, str(site.release), 1, other={"vmlinuz": "0" * 64}))
