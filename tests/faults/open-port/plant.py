# SPDX-License-Identifier: Apache-2.0
"""What the image declares, where it was built before that was asked for."""

import json

from tests.faults.site import Site


def plant(site: Site) -> None:
    """Declare ssh, unless there is a list."""
    manifest = json.loads(site.path("release/manifest.json").read_text())
    manifest.setdefault("listens", ["22/tcp", "68/udp"])
    site.write("release/manifest.json", json.dumps(manifest))
