# SPDX-License-Identifier: Apache-2.0
"""The ends of containers' networks, which networkd must leave to their engine."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import is_false, is_true
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.services.containers import ENGINES
from imagebuilder.proof.system import SAY
from imagebuilder.proof.system.network.nic import (
    KNOWN,
    NETWORKD,
    additions,
    matches,
    network_files,
    read_sections,
    text_of,
)
from imagebuilder.root import Root

# An end as Docker, containerd's CNI plugins and podman name it; it is a virtual device, has no
# path, and udev calls its type ether (systemd/systemd #38836, #28626).
VETH = {
    **KNOWN,
    "Name": ("veth0a1b2c3",),
    "OriginalName": ("veth0a1b2c3",),
    "Kind": ("veth",),
    "Driver": ("veth",),
    "Path": ("",),
}


def prove_ends(root: Root, startup: Startup) -> Iterator[Finding]:
    """A warning if the first file that matches the ends asks for addresses or sets some, where the
    image has a container engine: networkd then configures what belongs to the engine
    (systemd.network(5), [Match] Kind=).
    """
    if NETWORKD not in startup.jobs or not any(find_program(root, name) for name in ENGINES):
        return
    for path in network_files(root, ".network"):
        texts = [text_of(root, each) for each in (path, *additions(root, path))]
        sections = read_sections("\n".join(texts))
        if not matches(sections, VETH):
            continue
        network = sections.get("Network", {})
        asks = not is_false(network.get("DHCP", "no")) or "Address" in network
        if asks and not is_true(sections.get("Link", {}).get("Unmanaged", "")):
            said = " ".join(f"{key}={value}" for key, value in sections["Match"].items())
            what = f"{path} matches the ends of containers' networks too ({said}): networkd "
            what += "gives them addresses, and containers lose their network"
            hint = "add Kind=!* to [Match], which leaves out virtual interfaces"
            yield SAY.warning(what, Evidence(path, "Match", said=said), hint=hint)
        return
