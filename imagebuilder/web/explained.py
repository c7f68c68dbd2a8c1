# SPDX-License-Identifier: Apache-2.0
"""Why a node is as it is, for a page: nothing is asked of it."""

from __future__ import annotations

import threading

from imagebuilder.explain import Explanation, explain_view
from imagebuilder.web.look import FleetRow
from imagebuilder.web.site import WebSite

# An explanation reads megabytes of the daemons' logs.
TURN = threading.BoundedSemaphore(2)


def explain_row(site: WebSite, row: FleetRow) -> Explanation:
    """The explanation of a node of the newest snapshot."""
    with TURN:
        return explain_view(site.tree, row.node, row.view)
