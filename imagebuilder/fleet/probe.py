# SPDX-License-Identifier: Apache-2.0
"""Ask many ssh servers at once whether they are there: connect, and read the banner (RFC 4253 4.2).

No login and no key: that a server answers says that the node is up, not who it is.  What is run on
it later is run over ssh with its known host key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from imagebuilder.fleet.state import Observation
from imagebuilder.untrusted import fit

PORT = 22
AT_ONCE = 900  # below the 1024 files that a process may open unless somebody says otherwise
SECONDS = 4.0  # a busy node answers within one
MOST = 255  # bytes of a banner


def probe_nodes(addresses: Mapping[str, str]) -> dict[str, Observation]:
    """The answers by name; who does not answer within SECONDS is left out."""
    return asyncio.run(probe_all(addresses))


async def probe_all(addresses: Mapping[str, str]) -> dict[str, Observation]:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, address: str) -> tuple[str, Observation | None]:
        async with turn:
            try:
                return name, await asyncio.wait_for(read_banner(address), SECONDS)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
                return name, None

    found = await asyncio.gather(*(one(name, place) for name, place in addresses.items()))
    return {name: answer for name, answer in found if answer}


async def read_banner(address: str) -> Observation | None:
    """What the ssh server at `address` says first; None for what is no ssh server."""
    reader, writer = await asyncio.open_connection(address, PORT, limit=MOST)
    try:
        line = await reader.readline()
    finally:
        writer.close()
    if not line.startswith(b"SSH-"):
        return None
    banner = fit(line.decode(errors="replace").strip())
    return Observation("ssh", datetime.now(UTC), f"answers to ssh: {banner}")
