# SPDX-License-Identifier: Apache-2.0
"""Complaints of programs that test a site's settings, as the versions of the table print them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.process import Completed
from imagebuilder.proof.system.programs.dry_runs import (
    DRY_RUNS,
    LONGEST_LINE,
    MOST_TOLD,
    prove_dry_runs,
)
from tests.unit.proof.trees import Program, Sandbox, make_tree, subject

PROGRAMS = {each.name: each.programs[0] for each in DRY_RUNS}


@dataclass(frozen=True)
class Said:
    """What a program printed of a file; `found` is the message, "" if it is none of the image's."""

    name: str
    path: str
    output: str
    found: str
    text: str = "x\n"


FOUND = (
    Said(
        "modprobe", "/etc/modprobe.d/s.conf",
        "options ifb numifbs=0\nlibkmod: ERROR: kmod_config_parse: /etc/modprobe.d/s.conf line 1: "
        "ignoring bad line starting with 'option'\n",
        "modprobe ignores line 1 of /etc/modprobe.d/s.conf: ignoring bad line starting with "
        "'option'",
    ),
    Said(
        "systemd-tmpfiles", "/etc/tmpfiles.d/s.conf",
        "Would create directory /x\n/etc/tmpfiles.d/s.conf:1: Invalid mode '0999'.\n",
        "systemd-tmpfiles ignores line 1 of /etc/tmpfiles.d/s.conf: Invalid mode '0999'.",
    ),
    Said(
        "systemd-sysusers", "/etc/sysusers.d/s.conf",
        "/etc/sysusers.d/s.conf:1: Unknown modifiers in command 'user'.\n",
        "systemd-sysusers ignores line 1 of /etc/sysusers.d/s.conf: Unknown modifiers in command "
        "'user'.",
    ),
    Said(
        "systemd-sysctl", "/etc/sysctl.d/s.conf",
        "/etc/sysctl.d/s.conf:1: Line is not an assignment, ignoring: net.core.rmem_max 100\n",
        "systemd-sysctl ignores line 1 of /etc/sysctl.d/s.conf: Line is not an assignment, "
        "ignoring: net.core.rmem_max 100",
    ),
    Said(
        "ssh", "/etc/ssh/ssh_config.d/s.conf",
        "/etc/ssh/ssh_config.d/s.conf: line 2: Bad configuration option: stricthostkeycheking\n"
        "/etc/ssh/ssh_config.d/s.conf: terminating, 1 bad configuration options\n",
        "ssh refuses line 2 of /etc/ssh/ssh_config.d/s.conf: Bad configuration option: "
        "stricthostkeycheking",
    ),
    Said(
        "ssh", "/etc/ssh/ssh_config.d/s.conf",
        "/etc/ssh/ssh_config.d/s.conf line 2: invalid time value.\n",
        "ssh refuses line 2 of /etc/ssh/ssh_config.d/s.conf: invalid time value.",
    ),
    Said(
        "sudo", "/etc/sudoers.d/site",
        "/etc/sudoers.d/site:1:25: syntax error\n%operators ALL=(ALL:ALL ALL\n        ^~~\n",
        "sudo ignores line 1 of /etc/sudoers.d/site: syntax error",
    ),
    Said(
        "nft", "/etc/nftables.conf",
        "/etc/nftables.conf:3:44-47: Error: syntax error, unexpected drop\n  polcy drop;\n",
        "nft refuses line 3 of /etc/nftables.conf: syntax error, unexpected drop",
    ),
    *(
        Said(
            name, path,
            'iptables-restore v1.8.11 (nf_tables): unknown option "--dprt"\n'
            "Error occurred at line: 3\nTry `iptables-restore -h' for more information.\n",
            f"{name} refuses line 3 of {path}: iptables-restore v1.8.11 (nf_tables): unknown "
            'option "--dprt"',
        )
        for name, path in (
            ("iptables-restore", "/etc/iptables/rules.v4"),
            ("ip6tables-restore", "/etc/iptables/rules.v6"),
        )
    ),
    Said(
        "netplan", "/etc/netplan/01-x.yaml",
        "Command failed: /etc/netplan/01-x.yaml:5:7: Error in network definition: unknown key "
        "'dhpc4'\n      dhpc4: true\n      ^\n",
        "netplan ignores line 5 of /etc/netplan/01-x.yaml: Error in network definition: unknown "
        "key 'dhpc4'",
    ),
    Said(
        "chronyd", "/etc/chrony/conf.d/s.conf",
        "2026-11-28T17:59:48Z chronyd version 4.6.1 starting\n2026-11-28T17:59:48Z Fatal error : "
        "Could not parse server directive at line 1 in file /etc/chrony/conf.d/s.conf\n",
        "chronyd refuses line 1 of /etc/chrony/conf.d/s.conf: Could not parse server directive",
    ),
    Said(
        "dnsmasq", "/etc/dnsmasq.d/s.conf",
        "\ndnsmasq: bad option at line 1 of /etc/dnsmasq.d/s.conf\n",
        "dnsmasq refuses line 1 of /etc/dnsmasq.d/s.conf: bad option",
    ),
    Said(
        "unbound", "/etc/unbound/unbound.conf.d/s.conf",
        "/etc/unbound/unbound.conf.d/s.conf:2: error: unknown keyword 'interfce'\n"
        "read /etc/unbound/unbound.conf failed: 1 errors in configuration file\n",
        "unbound refuses line 2 of /etc/unbound/unbound.conf.d/s.conf: unknown keyword 'interfce'",
    ),
    Said(
        "keepalived", "/etc/keepalived/keepalived.conf",
        "(/etc/keepalived/keepalived.conf: Line 3) Unknown keyword 'interfac'\n"
        "(A) Unknown interface!\n",
        "keepalived ignores line 3 of /etc/keepalived/keepalived.conf: Unknown keyword 'interfac'",
    ),
    Said(
        "bird", "/etc/bird/bird.conf",
        "bird: /etc/bird/bird.conf:1:1 syntax error, unexpected CF_SYM_UNDEFINED\n",
        "bird refuses line 1 of /etc/bird/bird.conf: syntax error, unexpected CF_SYM_UNDEFINED",
    ),
    Said(
        "FRR", "/etc/frr/frr.conf",
        "line 2: % Unknown command[28]:  neighbr 10.0.0.1 remote-as 1\n"
        "Configuration file[/etc/frr/frr.conf] processing failure: 2\n",
        "FRR ignores line 2 of /etc/frr/frr.conf: Unknown command[28]: neighbr 10.0.0.1 "
        "remote-as 1",
    ),
    Said(
        "nginx", "/etc/nginx/conf.d/s.conf",
        '2026/11/28 17:59:49 [emerg] 3#3: unknown directive "proxy_passs" in '
        "/etc/nginx/conf.d/s.conf:3\nnginx: configuration file /etc/nginx/nginx.conf test failed\n",
        'nginx refuses line 3 of /etc/nginx/conf.d/s.conf: unknown directive "proxy_passs"',
    ),
    Said(
        "haproxy", "/etc/haproxy/haproxy.cfg",
        "[NOTICE]   (3) : haproxy version is 3.0.11-1+deb13u4\n[ALERT]    (3) : config : parsing "
        "[/etc/haproxy/haproxy.cfg:4] : unknown keyword 'balence' in 'listen' section\n"
        "[ALERT]    (3) : config : Fatal errors found in configuration.\n",
        "haproxy refuses line 4 of /etc/haproxy/haproxy.cfg: unknown keyword 'balence' in "
        "'listen' section",
    ),
    Said(
        "apache2", "/etc/apache2/conf-enabled/s.conf",
        "AH00526: Syntax error on line 1 of /etc/apache2/conf-enabled/s.conf:\nInvalid command "
        "'Lisen', perhaps misspelled or defined by a module not included\n",
        "apache2 refuses line 1 of /etc/apache2/conf-enabled/s.conf: Invalid command 'Lisen', "
        "perhaps misspelled or defined by a module not included",
    ),
    Said(
        "caddy", "/etc/caddy/Caddyfile",
        "Error: /etc/caddy/Caddyfile:2: unrecognized directive: revrse_proxy\n",
        "caddy refuses line 2 of /etc/caddy/Caddyfile: unrecognized directive: revrse_proxy",
        ":80 {\n revrse_proxy x\n}\n",
    ),
    Said(
        "caddy", "/etc/caddy/Caddyfile",
        "Error: /etc/caddy/Caddyfile:2 - Error during parsing: Unexpected EOF\n",
        "caddy refuses line 2 of /etc/caddy/Caddyfile: Error during parsing: Unexpected EOF",
    ),
    Said(
        "dockerd", "/etc/docker/daemon.json",
        "unable to configure the Docker daemon with file /etc/docker/daemon.json: the following "
        "directives don't match any configuration option: dat-root\n",
        "dockerd refuses /etc/docker/daemon.json: the following directives don't match any "
        "configuration option: dat-root",
    ),
    Said(
        "podman's generator", "/etc/containers/systemd/x.container",
        "quadlet-generator[3]: Loading source unit file /etc/containers/systemd/x.container\n"
        "quadlet-generator[3]: converting \"x.container\": unsupported key 'Volumes' in group "
        "'Container'\n",
        "podman's generator ignores /etc/containers/systemd/x.container: unsupported key 'Volumes' "
        "in group 'Container'",
    ),
    Said(
        "rsyslogd", "/etc/rsyslog.d/s.conf",
        "rsyslogd: could not load module 'imjornal', errors: trying to load module /usr/lib/x.so\n",
        "rsyslogd ignores /etc/rsyslog.d/s.conf: could not load module 'imjornal'",
    ),
    Said(
        "rsyslogd", "/etc/rsyslog.d/s.conf",
        "rsyslogd: error during parsing file /etc/rsyslog.d/s.conf, on or before line 1: parameter "
        "'target' required but not specified - fix config [v8.2504.0 try https://x.example/e/2 ]\n"
        "rsyslogd: error during parsing file /etc/rsyslog.d/s.conf, on or before line 1: errors "
        "occurred in file '/etc/rsyslog.d/s.conf' around line 1 [v8.2504.0 try https://x.example ]",
        "rsyslogd ignores line 1 of /etc/rsyslog.d/s.conf: parameter 'target' required but not "
        "specified - fix config",
    ),
    Said(
        "logrotate", "/etc/logrotate.d/site",
        "considering log /var/log/wtmp\nwarning: site:2 unknown option 'dailyy' -- ignoring line\n",
        "logrotate ignores line 2 of /etc/logrotate.d/site: unknown option 'dailyy' -- ignoring "
        "line",
    ),
    Said(
        "apparmor_parser", "/etc/apparmor.d/x",
        "Cache read/write disabled: interface file missing.\nAppArmor parser error for "
        "/etc/apparmor.d/x in profile /etc/apparmor.d/x at line 3: syntax error, unexpected "
        "TOK_CLOSE\n",
        "apparmor_parser refuses line 3 of /etc/apparmor.d/x: syntax error, unexpected TOK_CLOSE",
    ),
    Said(
        "fail2ban", "/etc/fail2ban/jail.d/s.conf",
        "2026-11-28 17:59:50,835 fail2ban  [3]: ERROR   Failed during configuration: File contains "
        "no section headers.\nfile: '/etc/fail2ban/jail.d/s.conf', line: 1\n'[sshd\\n'\n",
        "fail2ban refuses line 1 of /etc/fail2ban/jail.d/s.conf: File contains no section headers.",
    ),
    Said(
        "fail2ban", "/etc/fail2ban/jail.d/s.conf",
        "2026-11-28 17:59:51 fail2ban.jailreader [3]: ERROR   Unable to read the filter 'nosuch'\n",
        "fail2ban refuses /etc/fail2ban/jail.d/s.conf: Unable to read the filter 'nosuch'",
    ),
    Said(
        "sssd", "/etc/sssd/sssd.conf",
        "Issues identified by validators: 1\n[rule/allowed_domain_options]: Attribute 'ldap_ury' "
        "is not allowed in section 'domain/x'. Check for typos.\n",
        "sssd ignores /etc/sssd/sssd.conf: Attribute 'ldap_ury' is not allowed in section "
        "'domain/x'. Check for typos.",
    ),
    Said(
        "prometheus", "/etc/prometheus/prometheus.yml",
        "Checking /etc/prometheus/prometheus.yml\n\n  FAILED: parsing YAML file "
        "/etc/prometheus/prometheus.yml: yaml: unmarshal errors:\n  line 1: field scrape_config "
        "not found in type config.plain\n",
        "prometheus refuses /etc/prometheus/prometheus.yml: parsing YAML file "
        "/etc/prometheus/prometheus.yml: yaml: unmarshal errors: line 1: field scrape_config not "
        "found in type config.plain",
    ),
    Said(
        "smartd", "/etc/smartd.conf",
        "File /etc/smartd.conf line 1 (drive /dev/sda): Invalid argument to -o Directive: onn\n",
        "smartd refuses line 1 of /etc/smartd.conf: Invalid argument to -o Directive: onn",
    ),
    Said(
        "lvm", "/etc/lvm/lvmlocal.conf",
        "  Parse error at byte 29 (line 3): unexpected token\n"
        "  Failed to load config file /etc/lvm/lvmlocal.conf\n",
        "lvm refuses line 3 of /etc/lvm/lvmlocal.conf: unexpected token",
    ),
)  # fmt: skip
# What these programs print where nothing is wrong with the image.
QUIET = (
    Said(
        "nginx", "/etc/nginx/conf.d/s.conf",
        '[emerg] 22#22: host not found in upstream "head" in /etc/nginx/conf.d/s.conf:3\n', "",
    ),
    Said(
        "nginx", "/etc/nginx/conf.d/s.conf",
        '[emerg] 24#24: cannot load certificate "/etc/x.pem": BIO_new_file() failed\n', "",
    ),
    Said(
        "nginx", "/etc/nginx/conf.d/s.conf",
        '[emerg] 3#3: unknown directive "a" in /etc/nginx/nginx.conf:3\n', "",
    ),
    Said(
        "systemd-tmpfiles", "/etc/tmpfiles.d/s.conf",
        "/etc/tmpfiles.d/s.conf:3: Failed to resolve user 'compute': Unknown user\n"
        "/etc/tmpfiles.d/s.conf:4: Line references path below legacy directory /var/run/\n", "",
    ),
    Said("systemd-tmpfiles", "/etc/tmpfiles.d/s.conf", "unrecognized option '--dry-run'\n", ""),
    Said(
        "nft", "/etc/nftables.conf",
        "/etc/nftables.conf:1:1-7: Error: Could not process rule: Operation not permitted\n", "",
    ),
    Said(
        "keepalived", "/etc/keepalived/keepalived.conf",
        "(/etc/keepalived/keepalived.conf: Line 11) WARNING - interface eno1 for vrrp_instance A "
        "doesn't exist\n", "",
    ),
    Said(
        "logrotate", "/etc/logrotate.d/site", "error: site:6 unknown user 'slurm'\n", "",
    ),
    Said(
        "apache2", "/etc/apache2/sites-enabled/s.conf",
        "AH00526: Syntax error on line 2 of /etc/apache2/sites-enabled/s.conf:\n"
        "SSLCertificateFile: file '/etc/x.pem' does not exist or is empty\n", "",
    ),
    Said(
        "caddy", "/etc/caddy/Caddyfile",
        "Error: /etc/caddy/Caddyfile:1: unrecognized directive: x\n", "", "{$SITE} {\n}\n",
    ),
    Said(
        "dockerd", "/etc/docker/daemon.json",
        "unable to configure the Docker daemon with file /etc/docker/daemon.json: invalid "
        "character '}' looking for beginning of object key string\n", "",
    ),
    Said("chronyd", "/etc/chrony/conf.d/s.conf", "Timeout reached\nchronyd exiting\n", ""),
    Said(
        "haproxy", "/etc/haproxy/haproxy.cfg",
        "[ALERT] (3) : config : [/etc/haproxy/haproxy.cfg:9] : 'server b/a' : could not resolve "
        "address 'node1'.\n", "",
    ),
)  # fmt: skip


def asked(folder: Path, said: Said, *, shipped: bool = False, late: bool = False) -> list[str]:
    """What is found if the program prints that."""
    root = make_tree(folder, {PROGRAMS[said.name]: Program(), said.path: said.text})
    done = Completed(1, "", said.output, late=late)
    about = subject(root, run=Sandbox({"sh -c": done}))
    about.__dict__["shipped"] = {said.path: ()} if shipped else {}
    return [each.what for each in prove_dry_runs(about)]


@pytest.mark.parametrize("said", FOUND, ids=lambda said: said.name)
def test_a_complaint_about_a_file_of_the_site_is_told(tmp_path: Path, said: Said) -> None:
    assert asked(tmp_path, said) == [said.found]


@pytest.mark.parametrize("said", QUIET, ids=lambda said: said.name)
def test_a_complaint_about_anything_else_is_not(tmp_path: Path, said: Said) -> None:
    assert asked(tmp_path, said) == []


def test_every_program_of_the_table_has_a_complaint_here() -> None:
    assert {said.name for said in FOUND} == {each.name for each in DRY_RUNS}


@pytest.mark.parametrize(
    "more", [{"shipped": True}, {"late": True}], ids=["the file of a package", "no end"]
)
def test_nothing_is_told_of(tmp_path: Path, more: dict[str, bool]) -> None:
    assert asked(tmp_path, FOUND[0], **more) == []


def test_a_program_is_not_asked_without_a_file_of_the_site(tmp_path: Path) -> None:
    run = Sandbox()
    about = subject(make_tree(tmp_path, {PROGRAMS["nginx"]: Program()}), run=run)
    about.__dict__["shipped"] = {}
    assert not [*prove_dry_runs(about)]
    assert not run.asked


def test_few_complaints_of_one_program_are_told_and_long_lines_are_cut(tmp_path: Path) -> None:
    line = "/etc/sysctl.d/s.conf:{}: " + "x" * 2 * LONGEST_LINE
    many = "\n".join(line.format(number) for number in range(1, 100))
    found = asked(tmp_path, Said("systemd-sysctl", "/etc/sysctl.d/s.conf", many, ""))
    assert len(found) == MOST_TOLD
    assert all(len(what) < LONGEST_LINE + 100 for what in found)


def test_the_hint_is_the_command_of_a_person() -> None:
    commands = {each.name: each.command(each.programs[0].rpartition("/")[2]) for each in DRY_RUNS}
    assert commands["apache2"] == "apache2ctl -t"
    assert commands["iptables-restore"] == "iptables-restore -t FILE"
    assert commands["unbound"] == "unbound-checkconf"
