# SPDX-License-Identifier: Apache-2.0
"""Two nodes with one MAC address, written in two ways."""

from tests.faults.site import Site

NODES = """\
nodes:
  alpha:
    macs: ["52:54:00:00:00:01"]
    profile: generic
    address: 10.77.0.21
  beta:
    macs: ["52-54-00-00-00-01"]
    profile: generic
    address: 10.77.0.22
"""


def plant(site: Site) -> None:
    """Write nodes.yaml."""
    site.tree.nodes_file.write_text(NODES)
