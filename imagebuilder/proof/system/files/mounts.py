# SPDX-License-Identifier: Apache-2.0
"""What a site mounts: disks that a node may not have, options, helpers and file systems; and what
systemd merges over the image.
"""

from __future__ import annotations

import re

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading.modules import plain, read_options
from imagebuilder.proof.reading.mounts import (
    FSTAB,
    NFS,
    SiteMount,
    files_added,
    find_mounts,
    read_extensions,
)
from imagebuilder.proof.reading.texts import size_of
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject

LOCAL = ("UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "/dev/")
OPTIONAL = frozenset(("nofail", "noauto", "x-systemd.automount"))
# Options for file systems without owners, and the file systems that accept them.
OWNERS = frozenset(("uid", "gid", "umask", "fmask", "dmask", "iocharset", "codepage"))
HAVE_OWNERS = frozenset(
    ("vfat", "msdos", "exfat", "ntfs", "ntfs3", "ntfs-3g", "cifs", "smb3", "tmpfs", "ramfs", "9p",
     "fuse", "iso9660", "udf", "hfsplus", "devpts", "proc", "debugfs", "tracefs", "efivarfs",
     "hugetlbfs",
     "fuse.sshfs")
)  # fmt: skip
# File systems that mount(8) cannot mount by itself: /sbin/mount.TYPE does it.
HELPED = frozenset(
    ("cifs", "smb3", "nfs", "nfs4", "glusterfs", "ceph", "lustre", "davfs", "ntfs-3g", "zfs")
)
FUSE = "fuse."
SOFT = frozenset(("soft", "softerr"))
# tmpfs(5), size=; a share in percent is that of each node's memory.
SIZE = re.compile(r"(?<![\w.])size=(\d+[kKmMgG]?)(?=,|$)")
UDP = {"udp", "proto=udp", "proto=udp6"}
NO_UDP = "CONFIG_NFS_DISABLE_UDP_SUPPORT=y"
LEAST_SHARED = 1 << 30
HELPERS = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin")
# Modules of file systems that have another name, and what is in every kernel or is no file system.
MODULES = {"nfs4": "nfsv4", "smb3": "cifs", "iso9660": "isofs", "msdos": "vfat"}
KERNELS = frozenset(
    ("auto", "bind", "none", "swap", "tmpfs", "ramfs", "proc", "sysfs", "devtmpfs", "devpts",
     "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "bpf", "pstore", "efivarfs",
     "hugetlbfs", "mqueue", "configfs", "binfmt_misc", "rpc_pipefs", "nfsd", "fusectl", "zfs",
     "glusterfs", "davfs", "ntfs-3g", "fuse")
)  # fmt: skip


def prove_fields(subject: Subject) -> Findings:
    """Faults of lines of fstab(5) in which a blank ends a field too early: mount(8) and systemd 262
    ignore them, and systemd 252 mounts with the options before the blank.
    """
    for number, line in enumerate(subject.root.text(FSTAB).splitlines(), 1):
        words = line.partition("#")[0].split()
        extra = [word for word in words[4:6] if not word.isdecimal()]
        if len(words) > 3 and extra:
            what = f"line {number} of {FSTAB} is ignored, or its options end at the blank, so that "
            what += f"{words[1]} is not mounted as meant: {extra[0]} stands for a number"
            hint = "write the options without blanks, and \\040 for a blank in a path"
            yield fault(what, Evidence(FSTAB, said=line.strip()), hint=hint)


def prove_mounts(subject: Subject) -> Findings:
    yield from prove_fields(subject)
    for mount in find_mounts(subject):
        if mount.path not in subject.shipped or mount.path == FSTAB:
            yield from prove_disk(mount)
            yield from prove_options(mount)
            yield from prove_kind(subject, mount)
            yield from prove_shared_memory(mount)
            yield from prove_soft(mount)
            yield from prove_transport(subject, mount)


def prove_disk(mount: SiteMount) -> Findings:
    is_local = mount.path == FSTAB and mount.device.startswith(LOCAL) and mount.kind != "swap"
    if is_local and not OPTIONAL & set(mount.options.split(",")):
        what = f"a node without {mount.device} stops in emergency mode: {mount.name} lacks nofail"
        yield fault(what, mount.evidence, hint="add the option nofail")


def prove_shared_memory(mount: SiteMount) -> Findings:
    """A warning about /dev/shm with less than what processes of an engine share with each other."""
    found = SIZE.search(mount.options) if mount.place == "/dev/shm" else None
    if found and size_of(found[1].upper()) < LEAST_SHARED:
        what = f"/dev/shm has {found[0]}: PyTorch, NCCL, MPI and Ray share memory there between "
        what += "processes, and may end with a bus error or No space left on device"
        hint = "remove size=: the default is half of the memory, and only what is used is allocated"
        yield warning(what, mount.evidence, hint=hint)


def prove_soft(mount: SiteMount) -> Findings:
    """A warning about writing to a server that may answer late (nfs(5), soft)."""
    options = mount.options.split(",")
    if mount.kind in NFS and SOFT & set(options) and "ro" not in options:
        what = f"{mount.name} gives up what it writes when its server answers late "
        what += f"({min(SOFT & set(options))}), and programs rarely notice"
        yield warning(what, mount.evidence, hint="use hard, which is the default, or ro")


def prove_transport(subject: Subject, mount: SiteMount) -> Findings:
    """A fault of NFS over UDP with a kernel that was built without it, as most are since 5.6."""
    if mount.kind not in NFS or not UDP & set(mount.options.split(",")):
        return
    path, built = read_options(subject.root, subject.kernel)
    if NO_UDP in built:
        what = f"{mount.name} is not mounted: the kernel has no NFS over UDP"
        where = (mount.evidence, Evidence(path, said=NO_UDP))
        yield fault(what, *where, hint="use proto=tcp, or remove that option")


def prove_options(mount: SiteMount) -> Findings:
    wrong = [o for o in mount.options.split(",") if o.partition("=")[0] in OWNERS]
    if wrong and not set(mount.kind.split(",")) & HAVE_OWNERS:
        what = f"{mount.name} is not mounted: ext4, xfs and btrfs have no option {some(wrong)}"
        hint = "remove it; set the owner of files on such a disk with chown"
        yield fault(what, mount.evidence, hint=hint)


def prove_kind(subject: Subject, mount: SiteMount) -> Findings:
    root, kind = subject.root, mount.kind
    if kind in HELPED or kind.startswith(FUSE):
        names = [f"mount.{kind}", kind.removeprefix(FUSE)]
        if not any(root.is_file(f"{folder}/{name}") for folder in HELPERS for name in names):
            what = f"{mount.name} is not mounted: mount.{kind} is not in the image"
            yield fault(what, mount.evidence, hint="install the package that has it")
            return
    module = "fuse" if kind.startswith(FUSE) else MODULES.get(kind, kind)
    modules = subject.drivers
    if kind in KERNELS or "," in kind or not modules.by_name:
        return
    if plain(module) not in modules.by_name and plain(module) not in modules.builtin:
        what = f"{mount.name} is not mounted: the kernel {subject.kernel} has no module {module}"
        hint = "install it, or exclude it from `prune:` and `slim:`"
        yield fault(what, mount.evidence, hint=hint)


def prove_extensions(subject: Subject) -> Findings:
    """Faults of extensions that hide files of the image; warnings of those passed over."""
    root = subject.root
    for each in read_extensions(subject):
        if each.is_file:
            what = f"the extension {each.top} may be merged over /usr or /etc at boot"
            yield warning(what, Evidence(each.top), hint="install its files with an overlay")
            continue
        if each.refusal:
            what = f"the extension {each.top} is never merged, and nothing fails: {each.refusal}"
            hint = "make the extension for this distribution, or ship its files in an overlay"
            yield warning(what, Evidence(each.release), hint=hint)
            continue
        inside = files_added(root, each)
        hidden = [
            path for path in inside if root.lies(path) and "/extension-release.d/" not in path
        ]
        if hidden:
            name = each.name
            what = f"the extension {name} is merged over the image at boot and hides {some(hidden)}"
            hint = "remove it, or ship these files in an overlay"
            yield fault(what, *(Evidence(f"{each.top}{p}") for p in hidden[:1]), hint=hint)
