# SPDX-License-Identifier: Apache-2.0
"""A site's files that nobody reads or runs: by their name, their mode, or because the image lacks
the program; variables of such files; and what settings name: libraries that are not there, licences
of one machine.

Programs that read a folder pass over names that they do not expect, and say nothing.
"""

from __future__ import annotations

import posixpath
import re
import stat
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.reading.config import PARENTS, read_yaml
from imagebuilder.proof.reading.environment import assignments
from imagebuilder.proof.reading.scripts import (
    EXECUTABLE,
    SET_ASIDE,
    SHELL,
    first_line,
    runs,
    site_files,
)
from imagebuilder.proof.reading.units import find_file, find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject

RUN_PARTS = r"[A-Za-z0-9_-]+"
CONF, RULES = r".+\.conf", r".+\.rules"
CRON = ("/usr/sbin/cron", "/usr/sbin/crond")
IFUPDOWN = ("/usr/sbin/ifup", "/sbin/ifup")
UNITS = r"automount|device|mount|path|scope|service|slice|socket|swap|target|timer"
INIT, SYSV = "/etc/init.d", "/usr/lib/systemd/system-generators/systemd-sysv-generator"
STARTED = re.compile(r"S\d\d(?P<name>.+)")
CLOUD_FILES = ("/etc/cloud/cloud.cfg", "/etc/cloud/cloud.cfg.d/*.cfg")
FOLDERS = ("/etc/default", "/etc/sysconfig")
# Where what reads one may be, the likely folders first, in the others only programs; and what never
# does.
LIKELY = ("/etc/", "/usr/lib/systemd/", "/usr/local/")
OTHERS = ("/usr/", "/opt/", "/srv/", "/root/")
NOT_READERS = (
    "/usr/share/", "/usr/src/", "/usr/include/", "/usr/lib/modules/", "/usr/lib/firmware/",
    "/usr/lib/python3/",
)  # fmt: skip
MOST_BYTES = 8 << 20
# A script that puts the name together, or hands all variables on.
COMPOSED, EXPORTS = (b"/$", b"/%s", b"/{"), b"set -a"
MOST = 64 << 10  # bytes of a file of settings
LIBRARY = re.compile(r"(?<![\w./*$+@-])(?P<path>/(?!/)[\w./+@-]+\.so(\.\d+)*)(?![\w./*])")
# Said of a library that may be missing: by Slurm, PAM, rsyslog and others.
OPTIONAL = re.compile(r"\boptional\b|^[ \t]*-")
COMMENT = re.compile(r"\s*([#;]|//)")
# What other questions read, or nothing reads.
ELSEWHERE = re.compile(
    r"/etc/(cdi|pam\.d|ld\.so|alternatives|ssl)/?|.*\.(bak|old|orig|example|rej)$"
)
# FlexNet and RLM: the machine that a licence is for, by the MAC address of a NIC.
LICENCES = (".lic", "/license.dat")
MACHINE = re.compile(r"\bHOSTID=\"?(?=[0-9a-f]*\d)[0-9a-f]{12}\b", re.IGNORECASE)


@dataclass(frozen=True)
class ReadFolder:
    """A folder (a glob) of whose files `reader` reads those with a name that matches `names`.

    `meant` says which those are.  `programs` are paths of the reader, "" for what every image has.
    It starts the files of a folder that `runs`, if they may be executed.
    """

    pattern: str
    names: str
    meant: str
    reader: str
    programs: tuple[str, ...] = ()
    runs: bool = False


def ending(pattern: str, names: str, meant: str, reader: str, *programs: str) -> ReadFolder:
    return ReadFolder(pattern, names, f"names that end with {meant}", reader, programs)


def run_parts(pattern: str, reader: str, *programs: str, names: str = RUN_PARTS) -> ReadFolder:
    meant = "names of letters, digits, - and _"
    return ReadFolder(pattern, names, meant, reader, programs, runs=True)


def started(pattern: str, reader: str, *programs: str) -> ReadFolder:
    return ReadFolder(pattern, ".+", "", reader, programs, runs=True)


# Of every folder its own manual page says so; cron(8) and run-parts(8) are Debian's.
READ = (
    ReadFolder(
        "/etc/sudoers.d", r"[^.]*[^.~]", "names without a dot, and none that end with ~", "sudo",
        ("/usr/bin/sudo",),
    ),
    ReadFolder("/etc/cron.d", RUN_PARTS, "names of letters, digits, - and _", "cron", CRON),
    *(run_parts(f"/etc/cron.{each}", "cron", *CRON) for each in ("hourly", "daily", "weekly",
                                                               "monthly")),
    started("/etc/update-motd.d", "pam_motd"),
    started("/etc/networkd-dispatcher/*.d", "networkd-dispatcher", "/usr/bin/networkd-dispatcher"),
    *(started(f"/etc/network/if-{when}.d", "ifupdown", *IFUPDOWN)
      for when in ("pre-up", "up", "down", "post-down")),
    started("/etc/NetworkManager/dispatcher.d", "NetworkManager", "/usr/sbin/NetworkManager"),
    started("/usr/lib/systemd/system-sleep", "systemd-sleep"),
    started("/usr/lib/systemd/system-shutdown", "systemd-shutdown"),
    started("/usr/lib/imagebuilder/health.d", "the health check"),
    *(ending(f"{parent}/{name}", CONF, ".conf", reader)
      for parent in PARENTS
      for name, reader in (
          ("sysctl.d", "systemd-sysctl"), ("modprobe.d", "modprobe"), ("environment.d", "systemd"),
          ("modules-load.d", "systemd-modules-load"), ("tmpfiles.d", "systemd-tmpfiles"),
          ("sysusers.d", "systemd-sysusers"), ("systemd/*.conf.d", "systemd"),
          ("systemd/system/*.*.d", "systemd"),
      )),
    *(ending(f"{parent}/{name}", names, meant, reader)
      for parent in PARENTS
      for name, names, meant, reader in (
          ("udev/rules.d", RULES, ".rules", "udev"), ("udev/hwdb.d", r".+\.hwdb", ".hwdb", "udev"),
          ("systemd/network", r".+\.(network|netdev|link|dnssd)(\.d)?",
           ".network, .netdev or .link", "networkd"),
          ("systemd/system", rf".+\.({UNITS})|.+\.(d|wants|requires|upholds)",
           "the type of a unit, such as .service", "systemd"),
      )),
    ending("/etc/ssh/sshd_config.d", CONF, ".conf", "sshd", "/usr/sbin/sshd"),
    ending("/etc/ssh/ssh_config.d", CONF, ".conf", "ssh"),
    ending("/etc/security/limits.d", CONF, ".conf", "pam_limits"),
    ending("/etc/ld.so.conf.d", CONF, ".conf", "ldconfig"),
    ending("/etc/profile.d", r".+\.c?sh", ".sh", "a login shell"),
    ending("/etc/polkit-1/rules.d", RULES, ".rules", "polkit", "/usr/lib/polkit-1/polkitd"),
    ending("/etc/OpenCL/vendors", r".+\.icd", ".icd", "OpenCL's loader"),
    ending("/etc/vulkan/icd.d", r".+\.json", ".json", "Vulkan's loader"),
    ending("/etc/cdi", r".+\.(json|yaml)", ".json or .yaml", "every container engine"),
    ending("/etc/netplan", r".+\.yaml", ".yaml", "netplan", "/usr/sbin/netplan"),
    ending("/etc/rsyslog.d", CONF, ".conf", "rsyslogd", "/usr/sbin/rsyslogd"),
    ending("/etc/chrony/conf.d", CONF, ".conf", "chronyd", "/usr/sbin/chronyd"),
    ending("/etc/exports.d", r".+\.exports", ".exports", "exportfs", "/usr/sbin/exportfs"),
)  # fmt: skip
# Single files that only one program reads.
FILES = {
    "/etc/crontab": CRON,
    "/var/spool/cron/crontabs/*": CRON,
    "/etc/docker/daemon.json": ("/usr/bin/dockerd", "/usr/sbin/dockerd"),
    "/etc/network/interfaces.d/*": IFUPDOWN,
    "/etc/NetworkManager/system-connections/*": ("/usr/sbin/NetworkManager",),
    "/etc/iptables/rules.v[46]": ("/usr/sbin/netfilter-persistent",),
}


def prove_read(subject: Subject) -> Findings:
    told = {word for unit in subject.startup.starting() for words in unit.lines for word in words}
    for folder in READ:
        for path in site_files(subject, f"{folder.pattern}/*"):
            yield from prove_file(subject, folder, path)
    for pattern, programs in FILES.items():
        for path in site_files(subject, pattern):
            if path not in told and not any(map(subject.root.is_file, programs)):
                yield without_reader(path, posixpath.basename(programs[0]), is_job=programs == CRON)
    yield from prove_last_lines(subject)
    yield from prove_init_scripts(subject)


def prove_file(subject: Subject, folder: ReadFolder, path: str) -> Findings:
    name = posixpath.basename(path)
    if subject.root.link_at(path) == "/dev/null":
        return
    if folder.programs and not any(map(subject.root.is_file, folder.programs)):
        is_job = folder.runs or folder.programs == CRON
        yield without_reader(path, folder.reader, is_job=is_job)
    elif not re.fullmatch(folder.names, name):
        what = f"{path} has no effect: {folder.reader} reads only {folder.meant}"
        yield fault(what, Evidence(path), hint="rename it")
    elif folder.runs and (host := subject.root.host(path)) and not host.stat().st_mode & 0o111:
        what = f"{path} never runs: {folder.reader} starts only executable files"
        mode = f"{stat.S_IMODE(host.stat().st_mode):04o}"
        yield fault(what, Evidence(path, said=mode), hint="give it the mode 0755")


def without_reader(path: str, reader: str, *, is_job: bool) -> Finding:
    """A warning of settings, which may be for images with the program; a fault of a job."""
    say, happens = (fault, "never runs") if is_job else (warning, "has no effect")
    what = f"{path} {happens}: the image has no {reader}"
    return say(what, Evidence(path), hint=f"install {reader}, or remove the file")


def prove_last_lines(subject: Subject) -> Findings:
    """Faults of tables of cron that it ignores as a whole (Debian's crontab(5), DIAGNOSTICS)."""
    tables = ("/etc/crontab", "/etc/cron.d/*", "/var/spool/cron/crontabs/*")
    for path in site_files(subject, *tables):
        text = subject.root.text(path)
        if text and not text.endswith("\n"):
            what = f"cron ignores {path}: its last line does not end in a newline"
            yield fault(what, Evidence(path), hint="add a newline at its end")


def prove_init_scripts(subject: Subject) -> Findings:
    """Faults of scripts of a runlevel without a unit: systemd 260 makes none of them."""
    root = subject.root
    if root.is_file(SYSV):
        return
    seen: set[str] = set()
    for path in site_files(subject, "/etc/rc[2-5S].d/*"):
        match = STARTED.fullmatch(posixpath.basename(path))
        script = root.resolve(path)
        if match is None or script is None or script in seen or script in subject.shipped:
            continue
        seen.add(script)
        unit = f"{match['name']}.service"
        if not any(root.lies(f"{parent}/systemd/system/{unit}") for parent in PARENTS):
            what = f"{script} never runs: this systemd makes no units from scripts in {INIT}"
            hint = f"write a unit for it: /etc/systemd/system/{unit}"
            yield fault(what, Evidence(path, said=script), hint=hint)


def prove_documents(subject: Subject) -> Findings:
    """Warnings of files of cloud-init, which goes on without one that is no YAML."""
    root = subject.root
    for path in site_files(subject, *CLOUD_FILES) if root.is_file("/usr/bin/cloud-init") else ():
        read = read_yaml(root, path)
        if read.problem and read.refused:
            what = f"cloud-init ignores {path}, which {read.problem}"
            yield warning(what, read.evidence, hint="correct the file")


def prove_defaults(subject: Subject) -> Findings:
    """Warnings of variables in /etc/default and /etc/sysconfig that nothing reads, one a file.

    These files belonged to scripts of init.  A unit reads one by EnvironmentFile=, or a script that
    it starts; where neither does, what the file says has no effect, and nothing says so.
    """
    wanted: dict[str, dict[str, str]] = {}
    for path in (path for folder in FOLDERS for path in subject.root.glob(f"{folder}/*")):
        if is_changed(subject, path):
            told = {n: v for n, v in assignments(subject.root.text(path)) if v.strip()}
            wanted |= {path: told} if told else {}
    if not wanted:
        return
    left = {path: set(names) for path, names in wanted.items()}
    for folders, but in ((LIKELY, ()), (OTHERS, LIKELY)):
        for reader, info in subject.entries.items() if left else ():
            is_meant = reader.startswith(folders) and not reader.startswith((*but, *NOT_READERS))
            is_meant = is_meant and (info.st_mode & EXECUTABLE != 0 or folders == LIKELY)
            if is_meant and stat.S_ISREG(info.st_mode) and info.st_size < MOST_BYTES:
                for path in [each for each in left if each != reader]:
                    left[path] -= read_by(subject, reader, path, left[path])
        left = {path: names for path, names in left.items() if names}
    for path, names in left.items():
        ordered = [name for name in wanted[path] if name in names]
        what = f"{some(ordered)} in {path} {'has' if len(ordered) == 1 else 'have'} no effect: no "
        what += "unit and no program of the image reads it from there"
        hint = "set it where the program reads its settings, such as a drop-in of its unit"
        yield warning(what, Evidence(path, said=f"{ordered[0]}="), hint=hint)


def is_changed(subject: Subject, path: str) -> bool:
    """Whether a file is a package's that is not as it was shipped, or a site's with the name of a
    package, a service or a program: another one may be for people, or for another machine.
    """
    root, name = subject.root, posixpath.basename(path)
    host, shipped = root.host(path), subject.shipped.get(path)
    if host is None or root.link_at(path) or not root.is_file(path):
        return False
    if shipped:
        return bool(shipped.checksum and not shipped.checksum.is_of(host))
    is_known = name in subject.packages or find_file(root, f"{name}.service")
    is_known = is_known or find_program(root, name)
    return bool(is_known) and not SET_ASIDE.fullmatch(name)


def read_by(subject: Subject, reader: str, path: str, names: set[str]) -> set[str]:
    """The variables that a file reads: all, unless it is a shell script that names only some."""
    is_of_init = reader.startswith(f"{INIT}/") and not subject.root.is_file(SYSV)
    content = None if is_of_init else subject.root.map(reader)
    if not content:
        return set()
    folder, name = posixpath.split(path)
    is_named = content.find(path.encode()) >= 0
    is_composed = any(content.find(folder.encode() + mark) >= 0 for mark in COMPOSED)
    if not is_named and not (is_composed and content.find(name.encode()) >= 0):
        return set()
    if not runs(SHELL, first_line(content)) or content.find(EXPORTS) >= 0:
        return names
    return {each for each in names if content.find(each.encode()) >= 0}


def prove_named_files(subject: Subject) -> Findings:
    for path, info in subject.entries.items():
        if not stat.S_ISREG(info.st_mode) or path in subject.shipped or info.st_size > MOST:
            continue
        if path.startswith("/etc/") and not ELSEWHERE.match(path):
            yield from prove_libraries(subject, path)
        if path.endswith(LICENCES):
            yield from prove_licence(subject, path)


def prove_libraries(subject: Subject, path: str) -> Findings:
    for line in subject.root.text(path).splitlines():
        if COMMENT.match(line) or OPTIONAL.search(line):
            continue
        for found in LIBRARY.finditer(line):
            library = found["path"]
            if not is_there(subject, library) and ".so/" not in library:
                what = f"{path} names {library}, which is not in the image"
                hint = "install the package that has it, or remove that line"
                yield warning(what, Evidence(path, said=line.strip()), hint=hint)


def prove_licence(subject: Subject, path: str) -> Findings:
    found = MACHINE.search(subject.root.text(path))
    # A server of licences is one machine, and others ask it.
    if found:
        what = f"{path} is a licence for one machine, by its MAC address: the other nodes of this "
        what += "image have none"
        hint = "use a licence server, or keep the licence of each node on its disk"
        yield warning(what, Evidence(path, said=found[0]), hint=hint)
