# SPDX-License-Identifier: Apache-2.0
"""Make the root nobody's in particular: no identity, no secrets, no traces; and name it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import Family
from imagebuilder.phrases import list_first
from imagebuilder.steps import clean
from imagebuilder.steps.step import Step, StepWorkspace

VERSION = 2

# systemd "Safely Building Images", virt-sysprep's operations, and what GPU nodes add to them.
IDENTITY = (
    "/etc/hostname", "/etc/machine-info", "/var/lib/dbus/machine-id",
    "/etc/netplan/50-cloud-init.yaml", "/var/lib/cloud",
    "/var/lib/NetworkManager/secret_key", "/var/lib/NetworkManager/seen-bssids",
    "/var/lib/dhcp/*", "/var/lib/dhcpcd/*",
    "/etc/iscsi/initiatorname.iscsi", "/etc/nvme/hostnqn", "/etc/nvme/hostid",
    "/etc/munge/munge.key", "/var/lib/munge/*", "/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub",
    "/root/.netrc", "/root/.git-credentials", "/root/.config/pip", "/etc/pip.conf",
    "/var/mail/*", "/var/spool/cron/crontabs/*", "/var/crash/*", "/core", "/.autorelabel",
    "/loader/random-seed", "/boot/efi/loader/random-seed",
)  # fmt: skip

# Arguments: image id, image version, what nodes with the image are to have as JSON.  The link of
# /etc/resolv.conf is the resolver's business when the root has one; a copy of a builder's file is
# nobody's.
FINALISE = """\
: > /etc/machine-id
[ -L /etc/resolv.conf ] || rm -f /etc/resolv.conf
file=/usr/lib/os-release
[ -f "$file" ] || file=/etc/os-release
sed -i '/^IMAGE_ID=/d; /^IMAGE_VERSION=/d' "$file"
printf 'IMAGE_ID=%s\\nIMAGE_VERSION=%s\\n' "$1" "$2" >> "$file"
mkdir -p /usr/lib/imagebuilder
printf '%s\\n' "$3" > /usr/lib/imagebuilder/promises.json
# Nothing is newer than these: no ldconfig, hwdb or catalogue run at each boot
# (systemd.unit(5), ConditionNeedsUpdate=).
touch /etc/.updated /var/.updated
"""


@dataclass(frozen=True)
class FinaliseStep(Step):
    """The last layer.  `packages` is what must be installed: identity to version.

    The command line, the ports, `grants` (with the secrets that are meant) and what the image is
    judged by are not written into the root, but a part of what IMAGE_VERSION names.  `promises` is
    written into it, for the health checks of a node.
    """

    profile: str
    packages: Mapping[str, str]
    cmdline: tuple[str, ...]
    listens: tuple[str, ...]
    grants: Mapping[str, Json]
    expects: Mapping[str, Json]
    promises: Mapping[str, Json]
    version: str = ""
    title: ClassVar[str] = "finalise"
    reports: ClassVar[str] = "installed"

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"finalise {VERSION}.{clean.VERSION}",
            "profile": self.profile,
            "cmdline": list(self.cmdline),
            "listens": list(self.listens),
            **self.grants,
            "expects": self.expects,
            "promises": self.promises,
            "epoch": self.epoch,
        }

    def apply(self, workspace: StepWorkspace) -> None:
        script = render_finalise(workspace.family)
        promises = json.dumps(self.promises)
        workspace.run(["sh", "-c", script, "sh", self.profile, self.version, promises])
        installed = check_installed(workspace, self.packages)
        workspace.facts.write_text(json.dumps(installed))


def find_identity(family: Family) -> tuple[str, ...]:
    """Globs of what is of one machine, or of one site."""
    return (*IDENTITY, *family.site_files)


def render_finalise(family: Family) -> str:
    """The shell script that finishes a root; its arguments are as above FINALISE."""
    remove = f"rm -rf -- {' '.join(find_identity(family))}\n"
    return f"set -eu\n{family.finalise()}{remove}{FINALISE}{clean.render_clean(family)}\n"


def check_installed(workspace: StepWorkspace, locked: Mapping[str, str]) -> dict[str, int]:
    """The root must list the locked packages as installed, all whole, and no others.

    Returns their installed sizes in bytes.  Raises WorkError with the difference.
    """
    found = workspace.family.installed(workspace)
    installed = {name: one.version for name, one in found.items() if one.whole}
    broken = [name for name, one in found.items() if not one.whole]
    wrong = [
        *(f"{n} is not configured" for n in broken),
        *(f"{n} {v} is missing" for n, v in locked.items() if installed.get(n) is None),
        *(
            f"{n} is {installed[n]}, not {v}"
            for n, v in locked.items()
            if installed.get(n) not in (None, v)
        ),
        *(f"{n} {v} is not in the lock" for n, v in installed.items() if n not in locked),
    ]
    if wrong:
        raise WorkError(
            f"the root differs from its lock: {list_first(wrong, 5, '; ')}",
            hint="a script of an overlay installs or removes packages: list them under `packages:`",
        )
    return {name: one.size for name, one in found.items()}
