# SPDX-License-Identifier: Apache-2.0
"""What programs of the image say of a site's settings when they only test them.

Many daemons have an option for that.  A program is asked if a file that it reads is not as a
package ships it, and only a complaint that names such a file counts: what depends on the network,
on a certificate that a node gets at boot or on the kernel of the builder is none of the image's.

Each form of a test and of its complaints was tried.  The forms are those of Debian 13 and of Debian
testing: nginx 1.26, HAProxy 3.0, chrony 4.6, dnsmasq 2.91, rsyslog 8.2504, logrotate 3.22,
keepalived 2.3, Unbound 1.26, Apache 2.4, Docker 26, podman 5.4, Prometheus 2.53, fail2ban 1.1,
nftables 1.1, AppArmor 4.1, SSSD 2.10, BIRD 2.17, FRR 10.3, netplan 1.1, LVM 2.03, smartmontools
7.4, iptables 1.8.11, OpenSSH 10, sudo 1.9.17, kmod 34, systemd 257 and 262.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from imagebuilder.image.proof import Evidence, Finding, Findings, warning
from imagebuilder.process import Completed
from imagebuilder.proof.reading.scripts import site_files
from imagebuilder.proof.subject import Subject

SECONDS = 30
QUOTED = re.compile(r"""["'`](?P<word>[^"'`\s]{2,80})["']""")
# What a program gets from its environment, which is not the one of a test (Caddy).
VARIABLE = "{$"
LONGEST_LINE, MOST_LINES = 1000, 20_000
MOST_TOLD = 3  # complaints of one program: the later ones often follow from the first
NAMES = {"path": r"(?P<path>/[^\s:,\]]+)", "line": r"(?P<line>\d+)", "what": r"(?P<what>.+)"}


@dataclass(frozen=True)
class RefusedLine:
    """What a program does not accept, in which file; `line` is 0 if it does not say."""

    path: str
    line: int
    what: str


def prove_dry_runs(subject: Subject) -> Findings:
    for each in DRY_RUNS:
        program = next(filter(subject.root.is_file, each.programs), "")
        found = site_files(subject, *each.files) if program else ()
        files = tuple(dict.fromkeys(filter(subject.root.is_file, found)))
        if files:
            told = dict.fromkeys(complaints(subject, each, program, files))
            for complaint in list(told)[:MOST_TOLD]:
                yield finding(each, program, complaint)


def complaints(
    subject: Subject, each: DryRun, program: str, files: tuple[str, ...]
) -> Iterator[RefusedLine]:
    """What the program says of `files`."""
    script = each.script.format(program=program)
    for path in files if "$1" in script else ("",):
        done = subject.run(["sh", "-c", script, "sh", path], seconds=SECONDS)
        if done.late:
            continue
        said = printed(done)
        forms = (form.format(**NAMES) for form in each.forms)
        for match in chain(*(re.finditer(form, said, re.MULTILINE) for form in forms)):
            groups = match.groupdict()
            what = " ".join(match["what"].split())
            named = groups.get("path") or path
            fitting = (each for each in files if named in (each, posixpath.basename(each)))
            found = next(fitting, "") if named else quoting_file(subject, what, files)
            line = int(groups.get("line") or 0)
            if found and not re.search(each.elsewhere, what) and not is_set(subject, found, line):
                yield RefusedLine(found, line, what)


def printed(done: Completed) -> str:
    """What a program of the image printed, as far as patterns are applied to it."""
    lines = (done.stdout + done.stderr).splitlines()
    return "".join(f"{line[:LONGEST_LINE]}\n" for line in lines[:MOST_LINES])


def quoting_file(subject: Subject, what: str, files: tuple[str, ...]) -> str:
    """The file that has the word which a complaint quotes; the only one, if there is one."""
    words = [match["word"] for match in QUOTED.finditer(what)]
    holds = (path for path in files if any(word in subject.root.text(path) for word in words))
    return files[0] if len(files) == 1 else next(holds, "")


def is_set(subject: Subject, path: str, line: int) -> bool:
    """Whether a line has a value from the environment in it."""
    lines = subject.root.text(path).splitlines()
    return VARIABLE in (lines[line - 1] if 0 < line <= len(lines) else "")


def finding(each: DryRun, program: str, complaint: RefusedLine) -> Finding:
    line = f"line {complaint.line}" if complaint.line else ""
    does = "refuses" if each.refuses else "ignores"
    place = f"{line} of {complaint.path}" if line else complaint.path
    what = f"{each.name} {does} {place}: {complaint.what}"
    hint = f"correct it; `{each.command(posixpath.basename(program))}` in the image "
    hint += "(imagebuilder shell) tests it again"
    return warning(what, Evidence(complaint.path, said=line or complaint.what), hint=hint)


@dataclass(frozen=True)
class DryRun:
    """A program's test of its settings.

    `script` is for sh(1), with the program as {program} and one of `files` as $1, if each is tested
    alone.  `forms` are those of its complaints, with {path}, {line} and {what} for what they say.
    `elsewhere` fits complaints that are not the image's.  `refuses`: the program ends at one;
    otherwise it goes on without the line.
    """

    name: str
    program: str
    script: str
    files: tuple[str, ...]
    forms: tuple[str, ...]
    elsewhere: str = "(?!)"
    refuses: bool = True

    @property
    def programs(self) -> tuple[str, ...]:
        """Where the program may be."""
        name = self.program
        return (name,) if "/" in name else (f"/usr/sbin/{name}", f"/usr/bin/{name}")

    def command(self, program: str) -> str:
        """The last command as a person types it."""
        command = self.script.rpartition("; ")[2]
        return command.format(program=program).replace('"$1"', "FILE")


CONFIG = tuple(f"{parent}/{{}}/*.conf" for parent in ("/etc", "/usr/local/lib", "/usr/lib"))


def in_folders(name: str) -> tuple[str, ...]:
    return tuple(pattern.format(name) for pattern in CONFIG)


DRY_RUNS = (
    # What every node has.
    DryRun("modprobe", "modprobe", "{program} -c", in_folders("modprobe.d"),
           (r"kmod_config_parse: {path} line {line}: {what}",), refuses=False),
    # What a version without --dry-run does not change, it tests in part.
    DryRun("systemd-tmpfiles", "systemd-tmpfiles",
           "{program} --create --prefix=/nonexistent; {program} --create --dry-run",
           in_folders("tmpfiles.d"), (r"^{path}:{line}: {what}",),
           r"Failed to (?!parse)|legacy directory|unresolvable", refuses=False),
    DryRun("systemd-sysusers", "systemd-sysusers", "{program} --dry-run", in_folders("sysusers.d"),
           (r"^{path}:{line}: {what}",), "legacy directory", refuses=False),
    DryRun("systemd-sysctl", "/usr/lib/systemd/systemd-sysctl", "{program} --prefix=/nonexistent",
           in_folders("sysctl.d"), (r"^{path}:{line}: {what}",), refuses=False),
    DryRun("ssh", "ssh", "{program} -G localhost",
           ("/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d/*.conf"),
           (r"^{path}:? line {line}: {what}",)),
    DryRun("sudo", "visudo", "{program} -c", ("/etc/sudoers", "/etc/sudoers.d/*"),
           (r"^{path}:{line}(?::\d+)?: {what}",), r"^(?:Warning: )?unused |^Cycle", refuses=False),
    # Networks and time.
    DryRun("nft", "nft", "{program} -c -f /etc/nftables.conf",
           ("/etc/nftables.conf", "/etc/nftables.d/*"), (r"^{path}:{line}:\d+-\d+: Error: {what}",),
           r"Could not (?:process rule|resolve)|cache initialization|No such file|"
           r"does not exist|not supported"),
    *(DryRun(name, name, '{program} -t "$1"', (f"/etc/iptables/rules.v{version}",),
             (r"^{what}\nError occurred at line: {line}",),
             r"not supported|Permission denied|host/network")
      for name, version in (("iptables-restore", 4), ("ip6tables-restore", 6))),
    DryRun("netplan", "netplan", "{program} get", ("/etc/netplan/*.yaml",),
           (r"{path}:{line}:\d+: {what}",), refuses=False),
    DryRun("chronyd", "chronyd", "{program} -Q -t 1",
           ("/etc/chrony/chrony.conf", "/etc/chrony.conf", "/etc/chrony/conf.d/*.conf"),
           (r"Fatal error : {what} at line {line} in file {path}",)),
    DryRun("dnsmasq", "dnsmasq", "{program} --test -7 /etc/dnsmasq.d",
           ("/etc/dnsmasq.conf", "/etc/dnsmasq.d/*"),
           (r"^dnsmasq: {what} at line {line} of {path}",)),
    DryRun("unbound", "unbound-checkconf", "{program}",
           ("/etc/unbound/unbound.conf", "/etc/unbound/unbound.conf.d/*.conf"),
           (r"^{path}:{line}: error: {what}",)),
    DryRun("keepalived", "keepalived", "{program} -t", ("/etc/keepalived/keepalived.conf",),
           (r"^\({path}: Line {line}\) {what}",), "Unknown interface|doesn't exist", refuses=False),
    DryRun("bird", "bird", "{program} -p -c /etc/bird/bird.conf", ("/etc/bird/bird.conf",),
           (r"^bird: {path}:{line}:\d+ {what}",)),
    DryRun("FRR", "vtysh", "{program} -C", ("/etc/frr/frr.conf",), (r"^line {line}: % {what}",),
           refuses=False),
    # Web servers.
    DryRun("nginx", "nginx", "{program} -t -q", ("/etc/nginx/nginx.conf", "/etc/nginx/*/*"),
           (r"\[emerg\] [\d#]+: {what} in {path}:{line}$",), "host not found"),
    DryRun("haproxy", "haproxy", "{program} -c -f /etc/haproxy/haproxy.cfg",
           ("/etc/haproxy/haproxy.cfg",), (r"^\[ALERT\].* : parsing \[{path}:{line}\] : {what}",),
           "resolve|certificate|unable to (?:load|stat)"),
    DryRun("apache2", "apache2ctl", "mkdir -p /run/lock /run/apache2; {program} -t",
           ("/etc/apache2/*.conf", "/etc/apache2/*-enabled/*"),
           (r"^AH\d+: Syntax error on line {line} of {path}:\n{what}",),
           "does not exist or is empty"),
    DryRun("caddy", "caddy", "{program} adapt --config /etc/caddy/Caddyfile",
           ("/etc/caddy/Caddyfile",), (r"^Error: {path}:{line}(?: -|:) {what}",)),
    # Containers.
    # The question `services` says what is no JSON.
    DryRun("dockerd", "dockerd", "{program} --validate", ("/etc/docker/daemon.json",),
           (r"with file {path}: {what}",), "invalid character|unexpected end of JSON"),
    DryRun("podman's generator", "/usr/libexec/podman/quadlet", "{program} -dryrun",
           ("/etc/containers/systemd/*", "/etc/containers/systemd/*/*"),
           (r'converting "(?P<path>[^"\n]+)": {what}',), refuses=False),
    # Logs, security, watching.
    DryRun("rsyslogd", "rsyslogd", "{program} -N1", ("/etc/rsyslog.conf", "/etc/rsyslog.d/*.conf"),
           (r"error during parsing file {path}, on or before line {line}: {what} \[v[\d.]+ try",
           r"^rsyslogd: (?P<what>could not load module '[^'\n]+')",
           r"^rsyslogd: (?P<what>invalid or yet-unknown config file command '[^'\n]+')"),
           "errors occurred in file", refuses=False),
    DryRun("logrotate", "logrotate", "{program} -d /etc/logrotate.conf",
           ("/etc/logrotate.conf", "/etc/logrotate.d/*"),
           (r"^(?:error|warning): (?P<path>[^\s:]+):{line} {what}",), "unknown (?:user|group)",
           refuses=False),
    DryRun("apparmor_parser", "apparmor_parser", '{program} -QK "$1"', ("/etc/apparmor.d/*",),
           (r"^AppArmor parser error for .* in (?:profile )?{path} at line {line}: {what}",)),
    DryRun("fail2ban", "fail2ban-client", "{program} -t",
           ("/etc/fail2ban/*.local", "/etc/fail2ban/*.d/*"),
           (r"ERROR +Failed during configuration: {what}\nfile: '{path}', line: {line}",
           r"ERROR +(?P<what>Unable to read the filter '[^'\n]+')")),
    DryRun("sssd", "sssctl", "{program} config-check",
           ("/etc/sssd/sssd.conf", "/etc/sssd/conf.d/*.conf"), (r"^\[rule/[^\]\n]+\]: {what}",),
           "config_file_version", refuses=False),
    DryRun("prometheus", "promtool", '{program} check config "$1"',
           ("/etc/prometheus/prometheus.yml",),
           (r"FAILED: (?P<what>parsing YAML file .+(?:\n.+)?)",)),
    DryRun("smartd", "smartd", "{program} -q showtests", ("/etc/smartd.conf",),
           (r"^File {path} line {line} (?:\([^)\n]*\))?:? ?{what}",)),
    DryRun("lvm", "lvmconfig", "{program} --validate",
           ("/etc/lvm/lvm.conf", "/etc/lvm/lvmlocal.conf"),
           (r"^ *Parse error at byte \d+ \(line {line}\): {what}\n"
           r" *Failed to load config file {path}",)),
)  # fmt: skip
