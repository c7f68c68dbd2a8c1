# SPDX-License-Identifier: Apache-2.0
"""What a node asks the web server for from its firmware to its login, as a program.

usage: python -m tests.integration.node_boot SOURCE SERVER MAC RELEASE

iPXE asks over one connection and gives up after ten seconds; the initrd opens one for each report.
Prints how many seconds it all took, as JSON by part: scripts, kernel, initrd, reports.
"""

from __future__ import annotations

import http.client
import json
import sys
import time

PATIENCE = 10.0  # seconds, as imgfetch --timeout in pxe/boot.ipxe.j2
STAGES = ("network", "root", "node-files", "pivot", "switch-root", "up")


def get(line: http.client.HTTPConnection, path: str, wanted: int = 200) -> int:
    """Fetch one path and say how many bytes came.  Ends the program for any other status."""
    line.request("GET", path)
    answer = line.getresponse()
    size = len(answer.read())
    if answer.status != wanted:
        sys.exit(f"{path}: {answer.status}")
    return size


def boot(source: str, server: str, mac: str, release: str) -> dict[str, float]:
    """Boot once."""

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPConnection(server, 80, PATIENCE, (source, 0))

    took: dict[str, float] = {}
    begun = time.monotonic()

    def done(part: str) -> None:
        took[part] = round(time.monotonic() - begun - sum(took.values()), 3)

    node = f"/nodes/{mac.replace(':', '-')}"
    ipxe = connect()
    for path in ("/boot.ipxe", "/menu.ipxe", f"{node}/boot.ipxe"):
        get(ipxe, path)
    done("scripts")
    get(ipxe, f"/{release}/vmlinuz")
    done("kernel")
    get(ipxe, f"/{release}/initrd.img")
    get(ipxe, f"{node}/node.img")
    done("initrd")
    for stage in STAGES:
        get(connect(), f"/report/generic/1?stage={stage}&uptime=9.1&node={mac}", 204)
    done("reports")
    return took


if __name__ == "__main__":
    print(json.dumps(boot(*sys.argv[1:5])))
