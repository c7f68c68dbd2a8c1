# SPDX-License-Identifier: Apache-2.0
"""What a root of Enterprise Linux may keep of a site and of its programs, and do without its lock.

dnf(8), dnf.conf(5), dnf-automatic(8), rpm(8), rpmdb(8).
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imagebuilder.families.protocol import AnsibleSetup, SecretFile, Unsigned
from imagebuilder.families.rpm.contents import release_of
from imagebuilder.families.shipped import RootFiles, text_of

# What rpm, dnf and kernel-install leave.  The write-ahead log of rpm's database is not among it: if
# rpm was killed, it has what the database lacks.  dnf's history differs in each build (dnf #2274).
LEFTOVERS = (
    "/var/lib/rpm/.*.lock", "/var/lib/rpm/__db.*", "/var/lib/rpm/rpmdb.sqlite-shm",
    "/usr/lib/sysimage/rpm/.*.lock", "/usr/lib/sysimage/rpm/rpmdb.sqlite-shm",
    "/var/lib/rpm-state/*", "/var/lib/dnf/*", "/var/cache/dnf/*", "/var/cache/yum/*",
    "/var/cache/libdnf5/*", "/var/log/dnf*", "/var/log/hawkey.log*", "/var/log/yum.log*",
    "/boot/initramfs-*", "/boot/vmlinuz-0-rescue-*", "/boot/loader/entries/*",
)  # fmt: skip
# A subscription is that of one machine.
SITE_FILES = ("/etc/pki/consumer/*", "/etc/pki/entitlement/*", "/var/lib/rhsm/*")
PASSWORD = rb"^[^\S\n]*(?:proxy_)?password[^\S\n]*=[^\S\n]*\S"
IN_ADDRESS = rb"://[^\s/:@'\"]+:[^\s/@'\"]+@"
SECRETS = (
    SecretFile(
        "dnf password",
        r"/etc/(dnf/.+|yum\.conf|yum/.+|yum\.repos\.d/.+|distro\.repos\.d/.+)",
        rb"(?mi)" + PASSWORD + rb"|" + IN_ADDRESS,
    ),
    SecretFile("subscription password", r"/etc/rhsm/.+", rb"(?mi)" + PASSWORD),
)

# What Ansible finds in a root.  No repositories: only the lock may add packages.
CONF = "/etc/dnf/dnf.conf"
DNF_CONF = """\
[main]
gpgcheck=1
plugins=0
reposdir=/dev/null
"""
ANSIBLE = AnsibleSetup(
    facts={"os_family": "RedHat", "pkg_mgr": "dnf"},
    versions={"9": "9"},
    kernel=release_of,
    files={"dnf.conf": DNF_CONF},
    environment={},
    # Ansible's module reads this file, whatever the environment says.
    covers={CONF: "dnf.conf"},
)

# 1. What packages ship names mirrors and more repositories than the recipe; the files of overlays
#    are meant.
# 2. A database with a write-ahead log cannot be read from a file system that is read-only: sqlite
#    would have to make files beside it (https://sqlite.org/wal.html, "Read-Only Databases").  Bytes
#    18 and 19 say whether it has one (https://sqlite.org/fileformat2.html); rpm sets them when it
#    next changes it.
FINALISE = """\
for file in /etc/yum.repos.d/*.repo; do
    if [ -f "$file" ] && rpm --query --quiet --file "$file" 2> /dev/null; then
        cat > "$file" <<'END'
# This root is immutable: packages are added in its recipe, not on the node.
# Its exact packages and the repositories they are from are in the image's manifest.
END
    fi
done
for file in /var/lib/rpm/rpmdb.sqlite /usr/lib/sysimage/rpm/rpmdb.sqlite; do
    if [ -f "$file" ]; then
        if [ -s "$file-wal" ]; then rpm --initdb; fi
        if [ -s "$file-wal" ]; then
            echo "$file: rpm did not finish, $file-wal has changes" >&2
            exit 1
        fi
        rm -f -- "$file-wal" "$file-shm"
        printf '\\1\\1' | dd of="$file" bs=1 seek=18 conv=notrunc status=none
    fi
done
"""

# What changes the packages of a system, by program.
DNF = re.compile(
    r"up|up-min|(local|group-?)?(upgrade|update)(-to|-minimal)?|upgrade-?minimal|update-?minimal"
    r"|distro-?sync(hroni[sz]e|hronization)?|dsync|system-upgrade|offline-(upgrade|distrosync)"
)
VERBS = {
    **dict.fromkeys(("dnf", "dnf-3", "dnf4", "dnf5", "yum", "microdnf"), DNF),
    "pkcon": re.compile(r"update|upgrade-system|offline-update|offline-trigger"),
}
# Subcommands that have the word after them.
GROUPS = frozenset(("group", "groups", "module"))
# dnf's options whose value is a word of its own.
WITH_VALUE = frozenset(
    ("-c", "-d", "-e", "-R", "-x", "--advisory", "--advisories", "--bz", "--bzs", "--color",
     "--comment", "--config", "--cve", "--cves", "--debuglevel", "--destdir", "--disableexcludes",
     "--disableexcludepkgs", "--disableplugin", "--disablerepo", "--disable-repo", "--downloaddir",
     "--enableplugin", "--enablerepo", "--enable-repo", "--errorlevel", "--exclude",
     "--excludepkgs", "--forcearch", "--installroot", "--rpmverbosity", "--randomwait",
     "--releasever", "--repo", "--repofrompath", "--repoid", "--sec-severity", "--secseverity",
     "--setopt", "--setvar")
)  # fmt: skip
CHANGES_NOTHING = frozenset(("--assumeno", "--downloadonly", "--help", "-h"))
# rpm -U, -Uvh, -F; its modes that ask and verify have none of these letters.
RPM = re.compile(r"--upgrade|--freshen|-[a-zA-Z]*[UF][a-zA-Z]*")
AUTOMATIC = frozenset(("dnf-automatic", "dnf5-automatic"))

# Who wants a timer, and the settings of its program.
WANTED = (
    "/etc/systemd/system/timers.target.wants",
    "/usr/lib/systemd/system/timers.target.wants",
)
INSTALLING = "dnf-automatic-install.timer"
TIMERS = ("dnf-automatic.timer", "dnf5-automatic.timer")
AUTOMATIC_CONF = ("/etc/dnf/automatic.conf", "/etc/dnf/dnf5-plugins/automatic.conf")

REPOSITORIES = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")
SECTION = re.compile(r"\[(?P<name>[^\]]+)\]")
OPTION = re.compile(r"(?P<key>[\w-]+)[ \t]*=[ \t]*(?P<value>.*)")
TRUE = frozenset(("1", "yes", "true", "on"))


@dataclass(frozen=True)
class ConfOption:
    """An option of a section; the section itself is one without a key."""

    path: str
    line: int
    section: str
    key: str = ""
    value: str = ""

    @property
    def is_true(self) -> bool:
        return self.value.lower() in TRUE


def is_upgrade(words: Sequence[str]) -> bool:
    """Whether a command line upgrades packages."""
    program = posixpath.basename(words[0]) if words else ""
    if program in AUTOMATIC:
        return "--installupdates" in words
    if program == "rpm":
        return any(map(RPM.fullmatch, words[1:]))
    if program not in VERBS or CHANGES_NOTHING & set(words):
        return False
    return VERBS[program].fullmatch(find_verb(words[1:])) is not None


def find_verb(words: Sequence[str]) -> str:
    """The subcommand of dnf: the first word that is neither an option nor its value."""
    rest = iter(words)
    for word in rest:
        if word in WITH_VALUE:
            next(rest, "")
        elif word not in GROUPS and not word.startswith("-"):
            return word
    return ""


def find_upgrading(root: RootFiles) -> str:
    """The file by which dnf's timers upgrade packages, "" if none does."""
    wanted = {name: f"{folder}/{name}" for folder in WANTED for name in root.names(folder)}
    enabled = {name: path for name, path in wanted.items() if root.host(path)}
    if INSTALLING in enabled:
        return enabled[INSTALLING]
    if not enabled.keys() & set(TIMERS):
        return ""
    found = [option for path in AUTOMATIC_CONF for option in options_in(root, path)]
    applied = [each for each in found if (each.section, each.key) == ("commands", "apply_updates")]
    return applied[-1].path if applied and applied[-1].is_true else ""


def find_unsigned(root: RootFiles) -> tuple[Unsigned, ...]:
    """Enabled repositories whose packages dnf does not verify.

    What a repository does not say, `[main]` says, and dnf verifies nothing if that does not either.
    """
    main = [option for option in options_in(root, CONF) if option.section == "main"]
    told = [option for option in main if option.key == "gpgcheck"]
    found = [each for each in told[-1:] if not each.is_true]
    for repository in repositories_in(root):
        enabled = [option for option in repository if option.key == "enabled"]
        checked = [option for option in repository if option.key == "gpgcheck"]
        if enabled and not enabled[-1].is_true:
            continue
        if checked and not checked[-1].is_true:
            found.append(checked[-1])
        elif not checked and not told:
            found.append(repository[0])
    return tuple(
        Unsigned(each.path, each.line, f"{each.key}={each.value}" if each.key else
                 f"[{each.section}] without gpgcheck=1")
        for each in found
    )  # fmt: skip


def repositories_in(root: RootFiles) -> Iterator[list[ConfOption]]:
    """The options of each repository, after its section."""
    paths = [
        f"{folder}/{name}"
        for folder in REPOSITORIES
        for name in root.names(folder)
        if fnmatch.fnmatchcase(name, "*.repo")
    ]
    for path in (CONF, *paths):
        sections: dict[str, list[ConfOption]] = {}
        for option in options_in(root, path):
            sections.setdefault(option.section, []).append(option)
        yield from (options for name, options in sections.items() if name != "main")


def options_in(root: RootFiles, path: str) -> Iterator[ConfOption]:
    """The sections and options of a file, in order; the last of several options counts."""
    section = ""
    for number, line in enumerate(text_of(root, path).splitlines(), 1):
        if match := SECTION.match(line):
            section = match["name"]
            yield ConfOption(path, number, section)
        elif section and (match := OPTION.match(line)):
            yield ConfOption(path, number, section, match["key"], match["value"].strip())
