# SPDX-License-Identifier: Apache-2.0
"""What every step leaves out of its layer: caches, logs and files that differ between builds."""

from __future__ import annotations

from imagebuilder.families.protocol import Family
from imagebuilder.steps.step import StepWorkspace

VERSION = 2

# Shell globs, absolute in the root.  Each is written anew when needed, or is nobody's business.
LEFTOVERS = (
    "/var/log/*.log", "/var/log/journal/*", "/var/log/lastlog",
    "/var/log/faillog", "/var/log/wtmp*", "/var/log/btmp*",
    "/var/cache/ldconfig/aux-cache",       # holds inode numbers and times
    "/etc/.pwd.lock", "/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-",
    "/etc/subuid-", "/etc/subgid-",
    "/etc/ssh/ssh_host_*",                 # made by openssh-server's postinst; never in an image
    "/etc/ssl/private/ssl-cert-snakeoil.key", "/etc/ssl/certs/ssl-cert-snakeoil.pem",
    "/root/.ssh",                          # made by systemd's tmpfiles.d/provision.conf
    "/root/.ansible", "/root/.cache", "/root/.bash_history", "/root/.python_history",
    "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret",
    "/boot/initrd.img*", "/initrd.img*",   # ours is made once, beside the root
)  # fmt: skip


def render_clean(family: Family) -> str:
    """The shell command that removes the leftovers of a root of this family."""
    return f"rm -rf -- {' '.join((*LEFTOVERS, *family.leftovers))}"


def run_clean(workspace: StepWorkspace) -> None:
    """Remove the leftovers in the same upper that made them, so that no whiteout stays."""
    workspace.run(["sh", "-c", render_clean(workspace.family)])
