# SPDX-License-Identifier: Apache-2.0
"""What a service's account may not reach, and what systemd does not start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import Complaint, LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.network.firewall import prove_firewall
from imagebuilder.proof.system.programs.scripts import prove_shell_words
from imagebuilder.proof.system.units.reach import prove_reach
from imagebuilder.proof.system.units.start import listened_port, prove_lines, prove_listeners
from tests.unit.proof.trees import Content, Program, faults, make_tree, running, subject

UNIT = "/etc/systemd/system/a.service"
OWN = {
    "/etc/passwd": "me:x:1000:1000::/home/me:/bin/sh\nother:x:1001:1001::/:/bin/sh\n",
    "/etc/group": "me:x:1000:\nother:x:1001:\nshared:x:1002:\n",
}


def prepare(root: Path, files: dict[str, Content]) -> Subject:
    given = subject(make_tree(root, {UNIT: "[Service]\n", **OWN, **files}), listens=())
    given.__dict__["shipped"] = {}
    return given


def starting(*words: str, **values: str) -> Startup:
    settings = {"Unit Load State": ("loaded",), **{k: (v,) for k, v in values.items()}}
    unit = LoadedUnit("a.service", (UNIT,), settings, {"ExecStart": (words,)} if words else {})
    return Startup(frozenset(("a.service", "ufw.service")), {}, {"a.service": unit}, ())


@pytest.mark.root
@pytest.mark.parametrize(
    ("user", "values", "closed"),
    [
        ("other", {"Environment": "MODELS=/home/me/models"}, "/home/me"),
        ("other", {"WorkingDirectory": "/home/me/models"}, "/home/me"),
        ("me", {"Environment": "MODELS=/home/me/models"}, ""),
        ("other", {"Environment": "MODELS=/srv/models"}, ""),
        ("other", {"Environment": "HOME=/home/me"}, ""),
        ("other", {"Environment": "MODELS=/gone/models"}, ""),
        ("other", {"Environment": "MODELS=/srv/shared/x"}, "/srv/shared"),
        ("other", {"Environment": "MODELS=/srv/shared/x", "Group": "shared"}, ""),
        ("root", {"Environment": "MODELS=/home/me/models"}, ""),
    ],
)
def test_a_folder_that_an_account_may_not_enter(
    user: str, values: dict[str, str], closed: str, tmp_path: Path
) -> None:
    folders = {"/home/me/": "", "/srv/models/": "", "/srv/shared/": ""}
    given = prepare(tmp_path, dict(folders))
    for path, uid, gid, mode in (("home/me", 1000, 1000, 0o700), ("srv/shared", 0, 1002, 0o770)):
        os.chown(tmp_path / path, uid, gid)
        (tmp_path / path).chmod(mode)
    found = faults(prove_reach(running(given, starting("/usr/bin/serve", User=user, **values))))
    said = f"a.service runs as {user}, who may not enter {closed} "
    assert [what.startswith(said) for what in found] == ([True] if closed else [])


@pytest.mark.root
def test_a_file_that_an_account_may_not_read(tmp_path: Path) -> None:
    given = prepare(tmp_path, {"/etc/serve.conf": "x", "/opt/serve": Program()})
    (tmp_path / "etc/serve.conf").chmod(0o600)
    startup = starting("/opt/serve", "--config=/etc/serve.conf", User="other")
    (found,) = faults(prove_reach(running(given, startup)))
    assert "who may not read /etc/serve.conf (mode 0600)" in found
    (tmp_path / UNIT.lstrip("/")).write_text("[Service]\nExecStart=+/opt/serve\n")
    assert faults(prove_reach(running(given, startup))) == []
    given.__dict__["shipped"] = {UNIT: ShippedFile("a")}
    assert faults(prove_reach(running(given, startup))) == []


@pytest.mark.parametrize(
    ("words", "port"),
    [
        ("x --ip=0.0.0.0 --port=8888", "8888"),
        ("x --host 0.0.0.0 --port 8188", "8188"),
        ("x --host 127.0.0.1 --port 8188", ""),
        ("x --port 8188", ""),
        ("x --remote-host 10.0.0.1 --port 5432", ""),
    ],
)
def test_an_address_beside_its_port(words: str, port: str) -> None:
    assert listened_port(words.split()) == port


@pytest.mark.parametrize(
    ("variable", "port"),
    [
        ("OLLAMA_HOST=0.0.0.0:11434", "11434"),
        ("LISTEN=:9100", "9100"),
        ("BIND_ADDR=http://0.0.0.0:8000", "8000"),
        ("OLLAMA_HOST=127.0.0.1:11434", ""),
        ("OLLAMA_HOST=0.0.0.0", ""),
        ("TIME=:9100", ""),
    ],
)
def test_an_address_in_a_variable(variable: str, port: str, tmp_path: Path) -> None:
    given = prepare(tmp_path, {})
    found = faults(
        prove_listeners(running(given, starting("/usr/bin/serve", Environment=variable)))
    )
    said = f"a.service listens on {port}/tcp ({variable}), which no overlay declares"
    assert found == ([said] if port else [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("/usr/bin/a", "&&", "/usr/bin/b"), "&& becomes an argument"),
        (("/usr/bin/a", ">", "/x"), "> becomes an argument"),
        (("/usr/bin/a", "2>&1"), "2>&1 becomes an argument"),
        (("cd", "/opt"), "cd is not a program"),
        (("/bin/sh", "-c", "a && b"), ""),
        (("/usr/bin/env", "a", "&&"), ""),
        (("/usr/bin/a", "a&&b"), ""),
    ],
)
def test_lines_for_a_shell(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    found = faults(prove_shell_words(running(prepare(tmp_path, {}), starting(*words))))
    whole = f"systemd starts ExecStart= of a.service without a shell: {said}"
    assert found == ([whole] if said else [])


def test_a_unit_that_systemd_refuses(tmp_path: Path) -> None:
    given = prepare(tmp_path, {"/etc/systemd/system/data.mount": "[Mount]\n"})
    what = "Where= setting doesn't match unit name. Refusing."
    startup = Startup(frozenset(), {}, {}, (Complaint("data.mount", what),))
    assert faults(prove_lines(running(given, startup))) == [f"systemd refuses data.mount: {what}"]
    given.__dict__["shipped"] = {"/etc/systemd/system/data.mount": ShippedFile("a")}
    assert faults(prove_lines(running(given, startup))) == []


TCP = "-A ufw-user-input -p tcp"
RULE = f"{TCP} --dport {{}} -j ACCEPT\n"


@pytest.mark.parametrize(
    ("rules", "config", "policy", "port", "is_fault"),
    [
        (RULE.format(8080), "yes", "DROP", "", True),
        ("", "yes", "DROP", "", True),
        (RULE.format(22), "yes", "DROP", "2222", True),
        ("-A ufw-user-input -p udp --dport 22 -j ACCEPT\n", "yes", "DROP", "", True),
        (RULE.format(22), "yes", "DROP", "", False),
        (RULE.format("2222"), "yes", "DROP", "2222", False),
        (f"{TCP} -m multiport --dports 22,80 -j ACCEPT\n", "yes", "DROP", "", False),
        (f"{TCP} --dport 20:30 -j ACCEPT\n", "yes", "DROP", "", False),
        ("-A ufw-user-input -s 10.0.0.0/8 -j ACCEPT\n", "yes", "DROP", "", False),
        (f"{TCP} --dport 22 -j ufw-user-limit-accept\n", "yes", "DROP", "", False),
        ("", "no", "DROP", "", False),
        ("", "yes", "ACCEPT", "", False),
    ],
)  # fmt: skip
def test_ufw_without_ssh(
    rules: str,
    config: str,
    policy: str,
    port: str,
    is_fault: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    files: dict[str, Content] = {
        "/etc/ufw/ufw.conf": f"ENABLED={config}\n",
        "/etc/default/ufw": f'DEFAULT_INPUT_POLICY="{policy}"\n',
        "/etc/ufw/user.rules": rules,
        "/etc/ssh/sshd_config.d/port.conf": f"Port {port}\n" if port else "",
    }
    found = faults(prove_firewall(running(prepare(tmp_path, files), starting())))
    assert len(found) == is_fault


@pytest.mark.root
@pytest.mark.parametrize(
    ("line", "values", "closed"),
    [
        ("d /run/pipes 0700 root root", {}, "/run/pipes"),
        ("d /run/pipes 0750 root shared", {}, "/run/pipes"),
        ("d /run/pipes 0750 root shared", {"Group": "shared"}, ""),
        ("d /run/pipes 0700 other other", {}, ""),
        ("d /run/pipes 0755 root root", {}, ""),
        ("d /run/pipes - root root", {}, ""),
        ("d /run/pipes/mps 0700 root root", {}, ""),
        # Another service's folder, which systemd gives to that service.
        ("d /run/pipes 0700 root root", {"RuntimeDirectory": "pipes"}, ""),
        ("z /run/pipes 0700 root root", {}, ""),
        ("z /srv 0700 root root", {"Environment": "DATA=/srv/data/x"}, "/srv"),
    ],
)
def test_a_folder_that_is_closed_at_boot(
    line: str, values: dict[str, str], closed: str, tmp_path: Path
) -> None:
    conf = {"/usr/lib/tmpfiles.d/a.conf": f"{line} -\n", "/run/": "", "/srv/data/": ""}
    given = prepare(tmp_path, dict(conf))
    values = {"User": "other", "Environment": "PIPES=/run/pipes/mps", **values}
    found = list(prove_reach(running(given, starting("/usr/bin/serve", **values))))
    said = f"a.service runs as other, who may not enter {closed} (mode 07"
    assert [(each.level, each.what.startswith(said)) for each in found] == (
        [(Level.WARNING, True)] if closed else []
    )
