# SPDX-License-Identifier: Apache-2.0
"""A small root as Enterprise Linux 9 lays it out: /usr/lib64, kernels below /usr/lib/modules only,
accounts, PAM, sshd and certificates as its packages ship them, and the overlays of this project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.process import Completed
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.types import Grants
from imagebuilder.root import Root
from tests.fixtures.elf import LOADER, make_elf
from tests.unit.proof.trees import (
    Content,
    Link,
    Program,
    kernel_files,
    make_tree,
    running,
    subject,
)
from tests.unit.test_shipped_recipes import CHECKOUT, KEY

RELEASE = "5.14.0-570.12.1.el9_6.x86_64"
MODULES = f"/usr/lib/modules/{RELEASE}"
# Name, uid, gid and shell.
ACCOUNTS: tuple[tuple[str, int, int, str], ...] = (
    ("root", 0, 0, "/bin/bash"), ("bin", 1, 1, "/sbin/nologin"),
    ("sync", 5, 0, "/bin/sync"), ("shutdown", 6, 0, "/sbin/shutdown"),
    ("halt", 7, 0, "/sbin/halt"), ("operator", 11, 0, "/sbin/nologin"),
    ("nobody", 65534, 65534, "/sbin/nologin"), ("dbus", 81, 81, "/sbin/nologin"),
    ("systemd-network", 192, 192, "/usr/sbin/nologin"),
    ("systemd-resolve", 193, 193, "/usr/sbin/nologin"), ("sshd", 74, 74, "/usr/sbin/nologin"),
    ("rpc", 32, 32, "/sbin/nologin"), ("compute", 1000, 1000, "/bin/bash"),
)  # fmt: skip
GROUPS = (
    "root:x:0:", "bin:x:1:", "disk:x:6:", "kmem:x:9:", "wheel:x:10:", "video:x:39:compute",
    "render:x:998:compute", "systemd-journal:x:190:compute", "ssh_keys:x:996:", "dbus:x:81:",
    "sshd:x:74:", "rpc:x:32:", "systemd-network:x:192:", "systemd-resolve:x:193:",
    "compute:x:1000:",
)  # fmt: skip
PAM = {
    "sshd": "auth substack password-auth\nauth include postlogin\n"
    "account required pam_sepermit.so\naccount required pam_nologin.so\n"
    "account include password-auth\nsession required pam_selinux.so close\n"
    "session required pam_loginuid.so\nsession include password-auth\n",
    "password-auth": "auth sufficient pam_unix.so\nauth required pam_deny.so\n"
    "account required pam_unix.so\nsession required pam_limits.so\n"
    "-session optional pam_systemd.so\nsession required pam_unix.so\n",
    "postlogin": "session optional pam_umask.so silent\n",
}
PAM_MODULES = ("deny", "limits", "loginuid", "nologin", "selinux", "sepermit", "umask", "unix")
CERTIFICATES = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
SSHD = """\
port 22
permitrootlogin without-password
pubkeyauthentication yes
passwordauthentication no
kbdinteractiveauthentication no
authorizedkeysfile /etc/ssh/authorized_keys .ssh/authorized_keys
strictmodes yes
"""
STARTS = ("multi-user.target", "systemd-resolved.service", "systemd-networkd.service")


def placed(overlay: str, target: str) -> str:
    """A file of an overlay."""
    return (CHECKOUT / "overlays" / overlay / "files" / target.lstrip("/")).read_text()


def files_of_root() -> dict[str, Content]:
    links = {
        "/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64",
        "/etc/rc.local": "rc.d/rc.local", "/etc/init.d": "rc.d/init.d",
        "/etc/sysctl.d/99-sysctl.conf": "../sysctl.conf", "/etc/ssl/certs": "../pki/tls/certs",
        "/etc/pki/tls/certs/ca-bundle.crt": CERTIFICATES, "/etc/redhat-release": "rocky-release",
        "/etc/resolv.conf": "../run/systemd/resolve/stub-resolv.conf", "/usr/bin/sh": "bash",
        "/usr/bin/python3": "python3.9", "/var/lock": "../run/lock", "/var/mail": "spool/mail",
        f"{MODULES}/build": f"/usr/src/kernels/{RELEASE}", f"{MODULES}/source": "build",
    }  # fmt: skip
    texts: dict[str, Content] = {
        "/etc/passwd": "".join(f"{n}:x:{u}:{g}::/:{shell}\n" for n, u, g, shell in ACCOUNTS),
        "/etc/shadow": "".join(f"{name}:*:20000::::::\n" for name, *_ in ACCOUNTS),
        "/etc/group": "\n".join((*GROUPS, "")),
        "/etc/sudoers": "Defaults secure_path = /sbin:/bin:/usr/sbin:/usr/bin\n"
        "root\tALL=(ALL) \tALL\n#includedir /etc/sudoers.d\n",
        "/etc/ssh/sshd_config": "Include /etc/ssh/sshd_config.d/*.conf\n",
        "/etc/ssh/sshd_config.d/50-redhat.conf": "UsePAM yes\nX11Forwarding yes\n",
        "/etc/ssh/sshd_config.d/50-imagebuilder.conf": placed(
            "ssh", "/etc/ssh/sshd_config.d/50-imagebuilder.conf"
        ),
        "/etc/ssh/authorized_keys": f"{KEY}\n",
        "/etc/nsswitch.conf": "passwd: files systemd\nhosts: files dns myhostname\n",
        "/etc/hosts": "127.0.0.1 localhost\n", "/etc/fstab": "", "/etc/machine-id": "",
        "/etc/login.defs": "UID_MIN 1000\nSYS_UID_MIN 201\nHOME_MODE 0700\n",
        "/etc/sysctl.conf": "# Nothing\n", "/etc/rc.d/rc.local": "#!/bin/bash\n",
        "/etc/rc.d/init.d/README": "no scripts\n", "/etc/rocky-release": "Rocky Linux 9.6\n",
        "/usr/lib/os-release": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n',
        "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\n", "/etc/locale.conf": "LANG=C.UTF-8\n",
        "/etc/selinux/config": "", CERTIFICATES: "-----BEGIN CERTIFICATE-----\n",
        "/usr/lib/systemd/network/85-netboot.network": placed(
            "netboot", "/usr/lib/systemd/network/85-netboot.network"
        ),
        "/usr/bin/bash": make_elf(interpreter=LOADER, needed=["libc.so.6"]),
        "/usr/lib64/libc.so.6": make_elf(soname="libc.so.6"),
        "/usr/lib64/ld-linux-x86-64.so.2": make_elf(soname="ld-linux-x86-64.so.2"),
        f"{MODULES}/config": 'CONFIG_LSM="lockdown,yama,integrity,selinux,bpf"\n',
        f"{MODULES}/.vmlinuz.hmac": "0\n", f"{MODULES}/weak-updates/": "",
    }  # fmt: skip
    return {
        **texts,
        **{path: Link(to) for path, to in links.items()},
        **{f"/etc/pam.d/{name}": text for name, text in PAM.items()},
        **{f"/usr/lib64/security/pam_{name}.so": make_elf(soname="") for name in PAM_MODULES},
        **{path: Program() for path in ("/usr/sbin/sshd", "/usr/bin/python3.9",
                                        "/usr/lib/systemd/systemd", "/usr/bin/udevadm")},
        **kernel_files(
            {"kernel/fs/nfs/nfs.ko.xz": {}, "kernel/drivers/net/virtio_net.ko.xz": {}},
            release=RELEASE,
        ),
    }  # fmt: skip


def answer(argv: Sequence[str], *, seconds: int = 60) -> Completed:
    """What the image's sshd says of each account; no other program is there."""
    assert seconds
    if argv[0] != "sh" or "sshd -T" not in argv[2]:
        return Completed(127, "", f"{argv[0]}: not found")
    return Completed(0, "".join(f"account {name}\n{SSHD}" for name in argv[5::2]), "")


def make_root(path: Path, files: Mapping[str, Content] | None = None) -> Root:
    """The root, with more `files` or others."""
    root = make_tree(path, {**files_of_root(), **(files or {})})
    for name, mode in (("etc/shadow", 0o600), ("etc/sudoers", 0o440)):
        (path / name).chmod(mode)
    (path / "usr/bin/bash").chmod(0o755)
    return root


def subject_of(root: Root) -> Subject:
    """The root as an image with the overlays netboot, ssh and compute-node, in which systemd starts
    its network.
    """
    units = {name: LoadedUnit(name, (), {"Unit Load State": ("loaded",)}) for name in STARTS}
    made = subject(
        root,
        kernel=RELEASE,
        cmdline=("ip=dhcp", "selinux=0"),
        run=answer,
        distribution="rocky",
        suite="9",
        grants={
            "ssh": Grants(keys=("/etc/ssh/authorized_keys",)),
        },
    )
    return running(made, Startup(frozenset(STARTS), {}, units, ()))
