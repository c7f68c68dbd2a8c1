# SPDX-License-Identifier: Apache-2.0
"""ssh to nodes: the host keys of the tree and nothing else, and equal output together."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.fleet.ssh import LINE, Heard, Said, group_output, render_ssh_config, run_on
from imagebuilder.nodes.types import Node
from imagebuilder.process import run
from imagebuilder.ssh import HOST_OPTIONS, option_words
from imagebuilder.tree import Tree


def test_the_config_trusts_the_tree_alone() -> None:
    nodes = [Node("n1", ("52:54:00:00:00:01",), "gpu"), Node("n2", (), "gpu", login="root")]
    text = render_ssh_config(
        Path("/srv/x/known_hosts"), nodes, {"n1": "10.0.0.1", "n2": "10.0.0.2"}
    )
    assert "Host n1\n  HostName 10.0.0.1\n  HostKeyAlias n1\n  User compute\n" in text
    assert "Host n2\n  HostName 10.0.0.2\n  HostKeyAlias n2\n  User root\n" in text
    assert "StrictHostKeyChecking yes" in text
    assert 'UserKnownHostsFile "/srv/x/known_hosts"' in text
    # The first value counts in ssh_config(5), so a person's own settings cannot loosen these.
    for word in ("StrictHostKeyChecking", "ForwardAgent no", "ForwardX11 no", "UpdateHostKeys no"):
        assert text.index(word) < text.index("Include ~/.ssh/config")


# What people have for their own machines.
PERSON = """\
Host *
  ControlMaster auto
  ControlPath ~/.ssh/%C
  ControlPersist 10m
  StrictHostKeyChecking no
  KnownHostsCommand /usr/local/bin/keys %H
  ForwardAgent yes
  GSSAPIAuthentication yes
  GSSAPIDelegateCredentials yes
  SendEnv AWS_* GITHUB_TOKEN
  RequestTTY force
  RemoteCommand tmux attach
  SetEnv LD_PRELOAD=/tmp/x.so PYTHONPATH=/tmp
  SessionType none
  StdinNull yes
  ForkAfterAuthentication yes
  PermitLocalCommand yes
  LocalCommand echo connected
  LocalForward 8080 localhost:80
  Tunnel yes
  IdentityFile ~/.ssh/nodes
"""


def test_what_a_person_wants_of_other_hosts_is_not_for_nodes(tmp_path: Path) -> None:
    (tmp_path / "person").write_text(PERSON)
    node = Node("n1", (), "gpu")
    text = render_ssh_config(Path("/srv/x/known_hosts"), [node], {"n1": "10.0.0.1"})
    (tmp_path / "config").write_text(text.replace("~/.ssh/config", f"{tmp_path}/person"))
    said = run(["ssh", "-G", "-F", tmp_path / "config", "n1", "true"]).stdout.splitlines()
    found = dict(line.partition(" ")[::2] for line in said)
    assert found["identityfile"] == "~/.ssh/nodes"
    assert found["stricthostkeychecking"] in ("true", "yes")
    check_session(said)
    for word in (
        "controlmaster", "controlpath", "forwardagent", "gssapidelegatecredentials",
        "knownhostscommand", "remotecommand", "requesttty", "sendenv",
    ):  # fmt: skip
        assert found.get(word, "none") in ("none", "no", "false"), word


def check_session(said: list[str]) -> None:
    """The command, its variables and its bytes are ours."""
    assert [line for line in said if line.startswith("setenv")] == ["setenv IMAGEBUILDER=1"]
    found = dict(line.partition(" ")[::2] for line in said)
    assert found["sessiontype"] == "default"
    for word in (
        "stdinnull", "forkafterauthentication", "permitlocalcommand", "localforward", "tunnel",
        "forwardx11", "remotecommand", "requesttty", "controlmaster",
    ):  # fmt: skip
        assert found.get(word, "none") in ("none", "no", "false"), word


def test_a_person_reaches_their_machines_but_does_not_change_what_a_command_does(
    tmp_path: Path,
) -> None:
    (tmp_path / "person").write_text(f"{PERSON}  ProxyJump gate\n")
    words = ["ssh", "-G", "-F", str(tmp_path / "person"), *option_words(HOST_OPTIONS), "nuc"]
    said = run(words).stdout.splitlines()
    assert {"proxyjump gate", "identityfile ~/.ssh/nodes", "forwardagent yes"} <= {*said}
    check_session(said)


@pytest.mark.parametrize("name", ["a b", "50%h", "$HOME"])
def test_a_tree_may_have_an_odd_name(tmp_path: Path, name: str) -> None:
    config = tmp_path / "config"
    node = Node("n1", (), "gpu")
    config.write_text(render_ssh_config(tmp_path / name / "keys", [node], {"n1": "10.0.0.1"}))
    said = run(["ssh", "-G", "-F", config, "n1"]).stdout.splitlines()
    assert f"userknownhostsfile {tmp_path / name / 'keys'}" in said


@pytest.mark.parametrize(
    "name", ['a"\n  ProxyCommand id\n  User "x', "a\nb", 'a"', "${HOME}", "\\"]
)
def test_a_tree_is_no_setting_of_ssh(name: str) -> None:
    node = Node("n1", (), "gpu")
    with pytest.raises(InputError, match="characters that ssh"):
        render_ssh_config(Path("/srv") / name / "keys", [node], {"n1": "10.0.0.1"})


def test_equal_answers_stand_together() -> None:
    said = [Said("n1", 0, "a\n"), Said("n3", 0, "a\n"), Said("n2", 1, "a\n"), Said("n10", 0, "a\n")]
    assert [names for names, _ in group_output(said)] == ["n[1,3,10]", "n2"]


@pytest.mark.parametrize(
    ("stream", "limit"),
    [
        pytest.param("exec yes ''", f"{(1 << 20) // LINE} lines", id="lines"),
        pytest.param("exec cat /dev/zero", "1048576 bytes", id="no-lines"),
        pytest.param("head -c 1050000 /dev/zero; exit 0", "1048576 bytes", id="ends"),
    ],
)
def test_a_node_that_sends_without_end_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str, limit: str
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\n'
                   f'case "$*" in *n1*) {stream} ;; *) echo fine ;; esac\n')  # fmt: skip
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    nodes = [Node(f"n{i}", (), "gpu", address=f"10.0.0.{i}") for i in (1, 2)]
    began = time.monotonic()
    tracemalloc.start()
    bad, good = run_on(Tree(tmp_path), nodes, ["true"], 60, most=1 << 20, merged=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20  # with an object for each line it was 30 times as much
    assert time.monotonic() - began < 30  # far from the time limit: the amount ended it
    assert not bad.succeeded
    assert bad.output.endswith(f"more than {limit}: cut off\n")
    assert len(bad.output) < 2 << 20
    assert (good.status, good.output) == (0, "fine")


def test_an_ssh_that_closes_its_streams_and_goes_on_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.fleet.ssh.END_S", 0.5)
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho begun\nexec sleep 60 > /dev/null 2>&1\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    began = time.monotonic()
    (said,) = run_on(Tree(tmp_path), [Node("n1", (), "gpu", address="10.0.0.1")], ["true"], 60)
    assert time.monotonic() - began < 30
    assert (said.succeeded, said.output) == (False, "begun")


def test_all_nodes_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagebuilder.fleet.ssh.MOST_TOGETHER", 100)
    heard = Heard(most=60)
    assert heard.take("n1", "stdout", b"x" * 50)
    assert heard.take("n2", "stderr", b"x" * 50)
    assert not heard.take("n1", "stderr", b"x" * 11)
    assert not heard.take("n3", "stdout", b"x")
    assert heard.cut == {
        "n1": "more than 60 bytes: cut off",
        "n3": "more than 100 bytes of all nodes together: cut off",
    }


def test_lines_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is an object once output is shown: 64 MB of newlines took 1.5 GB."""
    monkeypatch.setattr("imagebuilder.fleet.ssh.MOST_TOGETHER", 10 * LINE)
    heard = Heard(most=6 * LINE)
    assert heard.take("n1", "stdout", b"\n" * 6)
    assert not heard.take("n1", "stderr", b"\n")
    assert heard.take("n2", "stdout", b"x\n" * 3)
    assert not heard.take("n3", "stdout", b"\n")
    assert heard.cut == {
        "n1": "more than 6 lines: cut off",
        "n3": "more than 10 lines of all nodes together: cut off",
    }


def test_output_is_text_with_its_lines() -> None:
    heard = Heard(most=100)
    heard.take("n1", "stdout", b"a\r")
    heard.take("n1", "stdout", b"\nb\xff\n\n")
    assert (heard.text("n1", "stdout"), heard.text("n1", "stderr")) == ("a\nb\ufffd\n", "")


def test_what_a_login_shell_prints_first_is_no_part_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_id = "0c1f6a3e-5f9e-4d3c-8b67-5a2f7d1c9e10"
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho Welcome\necho {boot_id}\n"
                   "echo 'warning: setlocale' >&2\necho answer\n")  # fmt: skip
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node = Node("n1", (), "gpu", address="10.0.0.1")

    def ask(*, merged: bool) -> Said:
        return run_on(Tree(tmp_path), [node], ["true"], 60, merged=merged)[0]

    apart = ask(merged=False)
    assert (apart.from_boot_id, apart.errors) == (f"{boot_id}\nanswer", "warning: setlocale")
    assert apart.last_words == "warning: setlocale"
    assert "warning: setlocale" in ask(merged=True).output
