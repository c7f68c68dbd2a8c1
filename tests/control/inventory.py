# SPDX-License-Identifier: Apache-2.0
"""What serving leaves on a machine outside its tree: files, units, exports, programs, ports."""

from __future__ import annotations

import re
import time

from tests.control.world import Nuc

# Without the bus: an emulated machine may need more than the 25 s that it waits for an answer.
# Ports that the system gives out, those of the parts of NFS, differ after every start; rpc.statd
# takes a privileged one by chance.
SCRIPT = r"""
sudo find /etc -type f -print0 | sudo xargs -0 sha256sum | sort -k 2
sudo find /etc -type l -printf '%p -> %l\n' | sort
echo %%
sudo systemctl --root=/ list-unit-files --no-legend --plain | awk '{ print $1, $2 }' | sort
systemctl list-units --no-legend --plain --all 'imagebuilder*' | awk '{ print $1, $3 }'
echo %%
sudo exportfs -s
echo %%
ps -eo comm= | grep -v ^kworker |
    grep -E 'nginx|dnsmasq|radvd|python|nfsd|mountd|statd|rpcbind' | sort -u || :
echo %%
sudo ss -Htulnp | awk '{ port = $5; sub(/.*:/, "", port)
    sub(/"[^"]*$/, "", $7); sub(/.*"/, "", $7)
    if (port > 30000 || $7 == "rpc.statd") sub(/[0-9]+$/, "N", $5); print $1, $5, $7 }' | sort -u
"""
SECONDS = 60.0
PARTS = ("files in /etc", "units", "exports", "programs", "ports")
# The user of the web page, as every user that systemd-sysusers makes, and the tokens.
STAYS = re.compile(
    r". files in /etc: \S+ +/etc/((passwd|g?shadow|group)-?|imagebuilder/tokens.json)"
)


def inventory(nuc: Nuc) -> dict[str, list[str]]:
    """Lists by what they are of."""
    parts = nuc.type(SCRIPT).stdout.split("%%\n")
    return {name: part.splitlines() for name, part in zip(PARTS, parts, strict=True)}


def await_inventory(nuc: Nuc, before: dict[str, list[str]]) -> list[str]:
    """What a machine has more (`+`) or less (`-`) than before, and keeps so for a minute.

    A program that asks for the time or a name has a port of its own for as long as that takes.
    """
    end = time.monotonic() + SECONDS
    while True:
        after = inventory(nuc)
        differences = [
            f"{sign} {name}: {line}"
            for name in PARTS
            for sign, here, there in (("+", after, before), ("-", before, after))
            for line in here[name]
            if line not in there[name]
        ]
        differences = [line for line in differences if not STAYS.fullmatch(line)]
        if not differences or time.monotonic() > end:
            return differences
