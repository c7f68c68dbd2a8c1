# SPDX-License-Identifier: Apache-2.0
"""Files that a program refuses to use because of their mode or their owner."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

ROOT = "root"
OTHERS_MAY_READ, OTHERS_MAY_WRITE = 0o077, 0o022
KEYS, NO_KEY = "/etc/ssh/authorized_keys", "no key in it is accepted"


@dataclass(frozen=True)
class StrictFile:
    """Files (a glob) that `program` refuses if they are not `owner`'s or others `may` use them.

    `effect` is what follows; without `owner` any is accepted.
    """

    pattern: str
    program: str
    owner: str
    may: int
    effect: str


# munged(8), sudoers(5), cron(8), logrotate(8), ssh(1), NetworkManager(8), sssd(8).
STRICT = (
    StrictFile("/etc/munge/munge.key", "munged", "munge", OTHERS_MAY_READ, "it does not start"),
    StrictFile("/etc/sudoers", "sudo", ROOT, 0o002, "sudo works for nobody"),
    StrictFile("/etc/sudoers.d/*", "sudo", ROOT, 0o002, "its rules have no effect"),
    StrictFile("/etc/crontab", "cron", ROOT, OTHERS_MAY_WRITE, "its jobs never run"),
    StrictFile("/etc/cron.d/*", "cron", ROOT, OTHERS_MAY_WRITE, "its jobs never run"),
    StrictFile("/etc/logrotate.d/*", "logrotate", ROOT, OTHERS_MAY_WRITE, "its logs only grow"),
    StrictFile("/etc/ssh/ssh_host_*_key", "sshd", ROOT, OTHERS_MAY_READ, "the key is not used"),
    StrictFile(KEYS, "sshd", "", OTHERS_MAY_WRITE, NO_KEY),
    StrictFile(f"{KEYS}/*", "sshd", "", OTHERS_MAY_WRITE, NO_KEY),
    StrictFile("/root/.ssh/authorized_keys", "sshd", "", OTHERS_MAY_WRITE, NO_KEY),
    StrictFile("/home/*/.ssh/authorized_keys", "sshd", "", OTHERS_MAY_WRITE, NO_KEY),
    StrictFile("/root/.ssh/id_*[!b]", "ssh", ROOT, OTHERS_MAY_READ, "the key is not used"),
    StrictFile(
        "/etc/NetworkManager/system-connections/*", "NetworkManager", ROOT, OTHERS_MAY_READ,
        "the connection is not used",
    ),
    StrictFile("/etc/sssd/sssd.conf", "sssd", ROOT, OTHERS_MAY_READ, "it does not start"),
)  # fmt: skip


def prove_modes(subject: Subject) -> Iterator[Finding]:
    """Faults of files that are in the image, and do not count."""
    ids = {name: account.uid for name, account in subject.accounts.users.items()}
    for strict in STRICT:
        wanted = 0 if strict.owner == ROOT else ids.get(strict.owner)
        for path in subject.root.glob(strict.pattern):
            info = subject.entries.get(path)
            if info is None or not stat.S_ISREG(info.st_mode):
                continue
            mode = stat.S_IMODE(info.st_mode)
            others = "read" if strict.may == OTHERS_MAY_READ else "write"
            if mode & strict.may:
                why = f"users other than its owner may {others} it (mode {mode:04o})"
            elif strict.owner and wanted is not None and info.st_uid != wanted:
                why = f"it belongs to uid {info.st_uid} and not to {strict.owner}"
            else:
                continue
            what = f"{strict.program} refuses {path}, because {why}: {strict.effect}"
            said = f"mode {mode:04o}, owner {info.st_uid}"
            who = strict.owner or "its account"
            hint = f"set its owner to {who}, and its mode to 0600 or the like (overlay key files:)"
            yield SAY.fault(what, Evidence(path, said=said), hint=hint)
