# SPDX-License-Identifier: Apache-2.0
"""Files that every node needs: mounts, PAM, certificates, time zone, packages, settings of the
kernel; files that a program refuses because of their mode or their owner; and characters and
operators in a site's files that look right, and mean something else.
"""

from __future__ import annotations

import posixpath
import re
import stat
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading.modules import plain
from imagebuilder.proof.reading.parameters import read_sysctl, requested
from imagebuilder.proof.reading.scripts import services_of, texts_of
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.reading.udev import UdevRule, read_rules
from imagebuilder.proof.say import prove_answered, some, why_unanswered
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.authorities import prove_authorities
from imagebuilder.proof.system.files.mounts import prove_mounts
from imagebuilder.root import Root
from imagebuilder.ui import format_size

PAM = "/etc/pam.d"
# What update-ca-certificates(8) of Debian makes, and update-ca-trust(8) of Enterprise Linux.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
)
LOCALTIME = "/etc/localtime"
MODULES = ("/usr/lib/*/security", "/usr/lib/security", "/usr/lib64/security")
# Harmful settings, with their effect.
SETTINGS = {
    "kernel.modules_disabled": (r"[1-9]\d*", "drivers can no longer be loaded"),
    "net.ipv4.conf.all.arp_ignore": (r"8", "the node answers no ARP request"),
    "vm.max_map_count": (r"\d{1,4}", "a model cannot be mapped"),
    "vm.overcommit_memory": (
        r"2",
        "drivers and engines cannot reserve the address space that they need",
    ),
    "fs.file-max": (r"\d{1,4}", "programs cannot open files"),
    "vm.min_free_kbytes": (r"\d{9,}", "the unit is kB, and the node frees memory all the time"),
    "kernel.pid_max": (r"\d{1,3}", "programs cannot start threads"),
    "kernel.threads-max": (r"\d{1,3}", "programs cannot start threads"),
}
# Bytes of a huge page on x86-64, and by hugepagesz=; as much as most services never need.
PAGE, HUGE, MUCH = 2 << 20, {"2M": 2 << 20, "1G": 1 << 30}, 8 << 30
# States of packages (Family.list_packages): what was removed, and what is complete.
GONE, INSTALLED = ("not-installed", "config-files"), "installed"
# Prefixes of settings, and the module that has them.
OF_MODULES = (
    ("net.bridge.bridge-nf-", "br_netfilter"),
    ("net.netfilter.nf_conntrack_", "nf_conntrack"),
    ("net.nf_conntrack_", "nf_conntrack"),
    ("net.ipv4.vs.", "ip_vs"),
    ("sunrpc.", "sunrpc"),
)
# They load br_netfilter and nf_conntrack by themselves.
LOADING = ("dockerd", "k3s", "rke2", "microk8s")
ROOT = "root"
OTHERS_MAY_READ, OTHERS_MAY_WRITE = 0o077, 0o022
KEYS, NO_KEY = "/etc/ssh/authorized_keys", "no key in it is accepted"
MOST = 256 << 10  # bytes of a file that people write
# For people, or of formats that allow these characters and ends of lines.
ELSEWHERE = re.compile(
    r".*/(motd|issue)\b.*|.*/(update-motd\.d|ssl|ca-certificates)/.*"
    r"|.*(?i:banner|readme|licen[cs]e|notice|welcome)[^/]*"
    r"|.*\.(md|txt|html?|xml|json|ya?ml|toml|pem|crt|cer|key|css|js|rst|csv|po|desktop)"
)
# A dash that begins a word, quotation marks before a value or a word, and blanks that are none.
FOREIGN = re.compile(
    "(?:(?<=\\s)|(?<=[\"'=]))[\u2010-\u2015\u2212]{1,2}[A-Za-z]|(?:(?<=\\s)|(?<==))[\u2018-\u201f]"
    "|[\u00a0\u200b\u2060\ufeff]"
)
NAMES = {
    "\u00a0": "a no-break space",
    "\u200b": "a space without width",
    "\ufeff": "a byte order mark",
}
REMARKS = ("#", ";", "//", "!", '"')
ENDS = re.compile(r"\r\n")
# What udev itself finds out about a device, so that rules only read it.
FOUND = re.compile(
    r"ID_(PART_\w+|FS_\w+|VENDOR\w*|MODEL\w*|SERIAL\w*|PATH\w*|BUS|TYPE|REVISION|USB_\w+|WWN\w*)"
    r"|DEVTYPE|DEVNAME|DEVPATH|SUBSYSTEM|ACTION|MAJOR|MINOR|PCI_\w+|DRIVER"
)
ACTS = frozenset(("RUN", "OWNER", "GROUP", "MODE", "SYMLINK", "NAME", "TAG"))


def prove_files(subject: Subject) -> Findings:
    root = subject.root
    yield from prove_mounts(subject)
    yield from prove_log_in(root)
    yield from prove_modes(subject)
    if "ca-certificates" in subject.packages or any(map(root.lies, BUNDLES)):
        yield from prove_certificates(root)
    yield from prove_authorities(subject)
    if root.lies(LOCALTIME) and not root.is_file(LOCALTIME):
        what = f"{LOCALTIME} leads to a time zone that is not in the image"
        yield fault(what, Evidence(LOCALTIME), hint="install tzdata, or correct the link")
    if root.lies(subject.family.database):
        yield from prove_packages(subject)
    yield from prove_settings(subject)
    yield from prove_huge_pages(subject)


def prove_log_in(root: Root) -> Findings:
    folders = root.glob(*MODULES)
    for name in root.names(PAM):
        path = f"{PAM}/{name}"
        for line in root.text(path).replace("\\\n", " ").splitlines():
            found = re.match(
                r"\s*(?:(?P<type>-?\w+)\s+(?P<control>\[[^]]*\]|\S+)\s+|@include\s+)(?P<module>\S+)",
                line.partition("#")[0],
            )
            if not found or (found["type"] or "").startswith("-"):
                continue
            wanted = found["module"]
            if found["control"] in (None, "include", "substack"):
                exists = root.is_file(f"{PAM}/{wanted}")
            elif wanted.startswith("/"):
                exists = root.is_file(wanted)
            else:
                exists = any(root.is_file(f"{folder}/{wanted}") for folder in folders)
            if not exists:
                passes = passes_over(found["control"] or "")
                say = warning if passes else fault
                does = "the line does nothing" if passes else f"{name} refuses everybody"
                what = f"{path} needs {wanted}, which is not in the image: {does}"
                hint = "install the package that has it, or remove the line"
                yield say(what, Evidence(path, said=line.strip()), hint=hint)


def passes_over(control: str) -> bool:
    """Whether PAM goes on without a module: its answer is then module_unknown (pam.conf(5))."""
    actions = dict(word.partition("=")[::2] for word in control.strip("[]").split())
    action = actions.get("module_unknown") or actions.get("default", "")
    return control in ("optional", "sufficient") or action == "ignore" or action.isdecimal()


def prove_certificates(root: Root) -> Findings:
    trusts = root.lies(posixpath.dirname(BUNDLES[1]))
    bundle, program = (
        (BUNDLES[1], "update-ca-trust extract")
        if trusts
        else (BUNDLES[0], "update-ca-certificates")
    )
    if "BEGIN CERTIFICATE" not in root.text(bundle):
        why = "is empty" if root.is_file(bundle) else "is missing"
        what = f"{bundle} {why}: no certificate of a server can be verified"
        hint = f"run {program} after adding the last certificate"
        yield fault(what, Evidence(bundle), hint=hint)


def prove_packages(subject: Subject) -> Findings:
    done = subject.run(subject.family.list_packages)
    if why_unanswered(done):
        unread = "which packages the database lists"
        yield from prove_answered(done, unread, Evidence(subject.family.database))
        return
    lines = done.stdout.splitlines()
    states = [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]
    listed = {name for name, state in states if state not in GONE}
    missing = sorted(name.partition(":")[0] for name in subject.packages)
    missing = [name for name in missing if name not in listed]
    for state in sorted({state for _, state in states} - {INSTALLED, *GONE}):
        names = sorted({name for name, each in states if each == state})
        verb, whose = ("is", "its") if len(names) == 1 else ("are", "their")
        what = f"{some(names)} {verb} {state}: {whose} installation did not finish, and the next "
        what += "one repeats it"
        where = Evidence(subject.family.database, said=f"{names[0]}: {state}")
        hint = "make a step fail if its package manager fails: no package may be half installed"
        yield fault(what, where, hint=hint)
    if missing:
        what = f"the package database does not have {some(missing)}, which the lock lists"
        hint = "make sure that no step changes or removes the database"
        yield fault(what, Evidence(subject.family.database), hint=hint)


def prove_huge_pages(subject: Subject) -> Findings:
    """Warnings if much memory is kept for programs that ask for huge pages, and of a size of pages
    without a number: `hugepages=` is for the size before it (kernel-parameters.txt).
    """
    size, reserved, sized = PAGE, dict[str, tuple[int, Evidence]](), None
    words = subject.words
    for word in words:
        if word.key in ("hugepagesz", "default_hugepagesz"):
            size = HUGE.get(word.value.upper(), PAGE)
            sized = word if word.key == "hugepagesz" else sized
        elif word.key == "hugepages" and word.value.isdecimal():
            reserved[word.text] = whole(word.value) * size, word.evidence
            sized = None
    if sized and any(word.key == "hugepages" for word in words):
        what = f"{sized.text} on the command line reserves no pages: no hugepages= follows it, and "
        what += "one before it counts pages of another size"
        yield warning(what, sized.evidence, hint=f"write {sized.text} before its hugepages=")
    if (one := read_sysctl(subject).get("vm.nr_hugepages")) and one.value.isdecimal():
        reserved[f"vm.nr_hugepages={one.value}"] = whole(one.value) * PAGE, one.where
    for name, (many, where) in reserved.items():
        if many >= MUCH:
            what = f"{name} keeps {format_size(many)} of each node's memory for programs that ask "
            what += "for huge pages; the root and models cannot use it"
            yield warning(what, where, hint="remove it, unless a program of the image needs it")


def prove_settings(subject: Subject) -> Findings:
    for name, one in read_sysctl(subject).items():
        pattern, why = SETTINGS.get(name, ("(?!)", ""))
        if re.fullmatch(pattern, one.value):
            yield fault(f"{name}={one.value}: {why}", one.where, hint="remove that line")


def prove_late_settings(subject: Subject) -> Findings:
    """Warnings about settings that do not exist when they are applied, and are skipped."""
    settings = read_sysctl(subject)
    for module in dict.fromkeys(module for _, module in OF_MODULES):
        begins = tuple(begin for begin, each in OF_MODULES if each == module)
        found = {name: one for name, one in settings.items() if name.startswith(begins)}
        if found and not is_loaded(subject, module):
            first, one = next(iter(found.items()))
            what = f"{first} is not set: it belongs to the module {module}, which nothing loads at "
            what += "boot"
            yield warning(what, one.where, hint=f"add {module} to a file in /etc/modules-load.d")


def is_loaded(subject: Subject, module: str) -> bool:
    kernel = subject.drivers
    if not kernel.by_name or plain(module) in kernel.builtin:
        return True
    if plain(module) in (plain(name) for name, _ in requested(subject)):
        return True
    if any(True for program in LOADING for _ in services_of(subject, program)):
        return True
    said = re.compile(rf"\b{module}\b")
    commands = (words for unit in subject.startup.starting() for words in unit.lines)
    return any(said.search(text) for words in commands for text in texts_of(subject.root, words))


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
    StrictFile("/etc/NetworkManager/system-connections/*", "NetworkManager", ROOT, OTHERS_MAY_READ,
               "the connection is not used"),
    StrictFile("/etc/sssd/sssd.conf", "sssd", ROOT, OTHERS_MAY_READ, "it does not start"),
)  # fmt: skip


def prove_modes(subject: Subject) -> Findings:
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
            yield fault(what, Evidence(path, said=said), hint=hint)


def prove_characters(subject: Subject) -> Findings:
    for path in subject.root.walk("/etc"):
        if path in subject.shipped or ELSEWHERE.fullmatch(path):
            continue
        data = subject.root.map(path) or b""
        if len(data) > MOST or data.find(b"\0") >= 0:
            continue
        try:
            text = bytes(data).decode()
        except UnicodeDecodeError:
            continue
        yield from prove_text(path, text)


def prove_text(path: str, text: str) -> Findings:
    for number, line in enumerate(text.splitlines(), 1):
        is_remark = line.lstrip().startswith(REMARKS)
        found = None if is_remark else FOREIGN.search(f" {line.partition('#')[0]}")
        if found:
            mark = found[0].strip()[:1] or found[0][:1]
            name = NAMES.get(mark, f'"{mark}"')
            what = f"{path} has {name} (U+{ord(mark):04X}) in line {number}, as web pages and word "
            what += "processors put it: programs do not take it for the plain character"
            hint = "write the plain character: -, \", ' or a space"
            yield warning(what, Evidence(path, said=f"line {number}"), hint=hint)
            return
    if ENDS.search(text) and not text.startswith("#!"):
        what = f"the lines of {path} end in CR LF, as on Windows: programs take the CR for the "
        what += "last character of a name or a value"
        yield warning(what, Evidence(path), hint=f"run sed -i 's/\\r$//' {path}")


def prove_udev_rules(subject: Subject) -> Findings:
    """Warnings of rules that then apply to every device."""
    for rule in read_rules(subject):
        said = assigned(rule) if rule.path not in subject.shipped else ""
        if said:
            what = f"a rule of {rule.path} sets {said} and does not compare it: what follows is "
            what += "done for every device that the rest of the rule matches"
            hint = f"write {said.replace('=', '==', 1)}, if it is to be compared"
            yield warning(what, Evidence(rule.path, said=said), hint=hint)


def assigned(rule: UdevRule) -> str:
    """A property of udev's own that a rule sets before it does something, "" if none."""
    acts = any(key in ACTS and operator not in ("==", "!=") for key, _, operator, _ in rule.parts)
    for key, name, operator, value in rule.parts if acts else ():
        if key == "ENV" and operator in ("=", ":=") and FOUND.fullmatch(name) and value:
            return f'ENV{{{name}}}="{value}"'
    return ""
