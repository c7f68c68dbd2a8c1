# SPDX-License-Identifier: Apache-2.0
"""Shared memory of services that systemd-logind removes when somebody logs out.

RemoveIPC=, by default yes, removes what an account has in /dev/shm when its last session ends;
system accounts are left out (logind.conf(5); systemd/systemd #2039, vllm-project/vllm #54259).
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.site import site_services
from imagebuilder.proof.reading.systemd import Startup, last_lines
from imagebuilder.proof.reading.unit_paths import is_below, unit_paths
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.recipe.engines import find_engine
from imagebuilder.root import Root

CONFIG, KEY = "systemd/logind.conf", "RemoveIPC"
LOGIND, SESSION = "/usr/lib/systemd/systemd-logind", "pam_systemd.so"
# Where logins over ssh and on a console are told to logind, in Debian and in Fedora.
STACKS = ("sshd", "login", "common-session", "system-auth", "password-auth", "postlogin")
MODULES = (f"/usr/lib/*/security/{SESSION}", f"/usr/lib*/security/{SESSION}")
LINGER = "/var/lib/systemd/linger"
SHARED = "/dev/shm"
# The last system account when systemd was built for Debian and Fedora.
LAST_SYSTEM = 999


def prove_shared_memory(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A warning.  Where nobody chose it, only of engines in Python, whose processes share tensors:
    others may have nothing there.
    """
    root = subject.root
    line = last_lines(subject, CONFIG).get(KEY)
    is_off = line is not None and is_false(line.value)
    if is_off or not root.is_file(LOGIND) or not has_sessions(root):
        return
    sharing = {
        engine.unit
        for engine in subject.expectations.engines
        if find_engine(subject.engines, engine.engine).model.platform
    }
    names = {
        service.name: service.unit.last("User")
        for service in site_services(subject, startup)
        if (line or service.name in sharing) and is_removed(subject, service.unit.last("User"))
        and not any(is_below(SHARED, p.target)
                    for p in unit_paths(service.unit, "TemporaryFileSystem"))
    }  # fmt: skip
    if names:
        user = next(iter(names.values()))
        what = f"{KEY}=yes takes the shared memory from {some(names)} whenever the last session of "
        what += f"{user} ends, as whom people log in too"
        where = line.evidence if line else Evidence(f"/etc/{CONFIG}", said=f"{KEY}=yes (default)")
        hint = f"set {KEY}=no in /etc/{CONFIG}.d, or run the service as a system account"
        yield SAY.warning(what, where, hint=hint)


def has_sessions(root: Root) -> bool:
    """Whether a login tells logind of its session (pam_systemd(8))."""
    lines = (
        line.split() for name in STACKS for line in root.text(f"/etc/pam.d/{name}").splitlines()
    )
    modules = (path for pattern in MODULES for path in root.glob(pattern))
    return any(map(root.is_file, modules)) and any(
        words and words[0].lstrip("-") == "session" and any(SESSION in word for word in words)
        for words in lines
    )


def is_removed(subject: Subject, user: str) -> bool:
    """Whether people log in as an account that is no system account, and that does not linger."""
    account = subject.accounts.users.get(user)
    if account is None or account.uid <= LAST_SYSTEM or user not in subject.accounts.logins:
        return False
    return not subject.root.lies(f"{LINGER}/{user}")
