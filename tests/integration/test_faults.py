# SPDX-License-Identifier: Apache-2.0
"""Builds that fail: the words say where, what and what next, and nothing of them is left."""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.process import Completed, paste
from tests.integration.changes import (
    add_file,
    add_script,
    change_overlay,
    leftovers,
    linked,
    masked,
    refs,
)
from tests.integration.started import command_lines
from tests.workshop import Workshop

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def shared(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """A state for the faults of this module, which is as it was when all are over."""
    made = linked(workshop, tmp_path_factory.mktemp("faults"))
    yield made
    assert "intact: " in made("fsck").stdout
    assert "nothing changed" in made("build", "generic", "--locked").stdout


@pytest.fixture
def shop(shared: Workshop, tmp_path: Path) -> Iterator[Workshop]:
    """The shared state with a project to be broken; checks that nothing of the fault is left."""
    before = refs(shared.state)
    yield shared.with_project(tmp_path / "project")
    after = refs(shared.state)
    assert images_of(after) == images_of(before)
    # What was finished below the fault is worth keeping; nothing that was there may change.
    assert {ref: after[ref] for ref in before} == before
    assert leftovers(shared.state) == []


def images_of(found: dict[str, str]) -> set[str]:
    """The images among refs."""
    return {ref for ref in found if ref.startswith("image/")}


def build(shop: Workshop, *words: str) -> Completed:
    """Build `generic` from its lock."""
    return shop("build", "generic", "--locked", *words, check=False)


def hide(tool: str) -> str:
    """Shell that takes a program away, in the mount namespace it runs in."""
    return "; ".join(
        f"if [ -e {place} ]; then mount --bind /dev/null {place}; fi"
        for place in (f"/usr/bin/{tool}", f"/usr/sbin/{tool}")
    )


def assert_fails(done: Completed, code: int, *said: str) -> None:
    """The program ended with `code` and said each regular expression of `said`."""
    assert done.status == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for pattern in said:
        assert re.search(pattern, done.stderr), f"{pattern!r} is not in\n{done.stderr}"


# Scripts of overlays.


def test_failing_script_shows_its_last_lines_and_its_log(shop: Workshop) -> None:
    name = add_script(
        shop.project, "llama-cpp", "seq 1000; echo the disk of dreams is full; exit 9"
    )
    done = build(shop)
    assert_fails(
        done, 1, rf"error: overlays/llama-cpp/{name}: .*exit status 9\)",
        r"\n    1000\n    the disk of dreams is full\n", r"configure llama-cpp: failed after",
    )  # fmt: skip
    assert "\n    988\n" not in done.stderr, "only the last lines are shown"
    log = re.search(r"whole log: (/\S+)", done.stderr)
    assert log
    assert Path(log[1]).read_text().count("\n") > 1000
    assert str(shop.state) in log[1]


def test_failed_build_is_kept_on_request_and_can_be_looked_into(shop: Workshop) -> None:
    add_script(shop.project, "llama-cpp", "echo half > /etc/half-done; rm /etc/issue; false")
    done = build(shop, "--keep-failed")
    assert_fails(done, 1, r"exit status 1")
    told = re.search(r"to look into it, run imagebuilder (shell --failed [\w-]+)", done.stderr)
    assert told
    look = told[1].split()
    script = "cat /etc/half-done; ls /etc/issue || echo gone; touch /etc/mine; getent passwd 1000"
    seen = shop(*look, "-c", script, check=False)
    assert seen.stdout.startswith("half\ngone\ncompute:x:1000:")
    again = shop(*look, "-c", "ls /etc/mine", check=False)
    assert again.status != 0, "what the first look wrote is thrown away"
    assert "there are: generic-" in shop("shell", "--failed", "nope", check=False).stderr
    assert "1 kept build\n" in shop("gc", "--keep", "9").stdout


def test_gc_keeps_what_a_failed_build_finished(shop: Workshop) -> None:
    add_file(shop.project, "netboot", "etc/early", "a layer of its own")
    script = add_script(shop.project, "llama-cpp", "false")
    assert_fails(build(shop), 1, r"configure llama-cpp: failed after")
    shop("gc", "--keep", "9")
    (shop.project / "overlays/llama-cpp" / script).write_text("#!/bin/sh\n")
    steps = json.loads(shop("plan", "generic", "--json").stdout)["steps"]
    said = {step["title"]: (step["action"], step["reason"]) for step in steps}
    assert said["configure netboot"] == ("REUSE", "already in the store")
    assert said["configure llama-cpp"][0] == "BUILD"


def test_installing_behind_the_locks_back_is_refused(shop: Workshop) -> None:
    control = r"Package: sneaky\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
    add_script(
        shop.project, "llama-cpp",
        f"mkdir -p /tmp/p/DEBIAN; printf '{control}' > /tmp/p/DEBIAN/control; "
        "dpkg-deb --build /tmp/p /tmp/p.deb; dpkg --install /tmp/p.deb",
    )  # fmt: skip
    assert_fails(
        build(shop), 1,
        r"finalise: the root differs from its lock: sneaky:all 1 is not in the lock",
        "hint: .*list them under `packages:`",
    )  # fmt: skip
    add_script(shop.project, "ssh", "dpkg --force-depends --purge wget")
    assert_fails(build(shop), 1, "wget:amd64 .* is missing")


def test_daemon_of_a_script_does_not_survive(shop: Workshop) -> None:
    nap = f"sleep {10_000_000 + os.getpid()}"  # as long as nobody else does
    add_script(
        shop.project, "llama-cpp",
        f"(setsid {nap} > /dev/null 2>&1 &); setsid sh -c 'trap : TERM; {nap}' & exit 3",
    )  # fmt: skip
    start = time.monotonic()
    assert_fails(build(shop), 1, r"exit status 3")
    assert time.monotonic() - start < 60
    left = nap.replace(" ", "\0").encode()
    assert not [words for words in command_lines().values() if left in words]


CONNECT = """\
python3 - <<'END'
import os, socket
print("interfaces", sorted(name for _, name in socket.if_nameindex()))
for kind, address in ((socket.AF_UNIX, "\\0%s"), (socket.AF_INET, ("127.0.0.1", %d))):
    try:
        socket.socket(kind).connect(address)
        print("reached", kind.name)
    except OSError as error:
        print("refused", kind.name, error.strerror)
END
cat /etc/resolv.conf || true
false
"""


@pytest.mark.parametrize("network", [False, True], ids=["undeclared", "declared"])
def test_network_is_for_scripts_that_declare_it(shop: Workshop, *, network: bool) -> None:
    with socket.socket(socket.AF_UNIX) as local, socket.create_server(("127.0.0.1", 0)) as server:
        local.bind(f"\0{shop.project}")
        local.listen()
        script = CONNECT % (shop.project, server.getsockname()[1])
        add_script(shop.project, "llama-cpp", script, network=network)
        said = build(shop).stderr
    if network:
        assert "reached AF_UNIX" in said
        assert "reached AF_INET" in said
        assert f"    {Path('/etc/resolv.conf').read_text().splitlines()[-1]}\n" in said
    else:
        assert "interfaces ['lo']" in said
        assert "refused AF_UNIX" in said
        assert "refused AF_INET" in said


# Files, links, accounts and units that do not fit the root.


def test_file_through_a_planted_link_into_a_mount_is_refused(shop: Workshop) -> None:
    add_script(shop.project, "ssh", "ln -s /run /opt/planted")
    add_file(shop.project, "llama-cpp", "opt/planted/x", "lost\n")
    assert_fails(
        build(shop), 1,
        r"error: /opt/planted: files for /opt/planted would not be part of the root "
        r"\(a symlink of the root leads to /run\)",
        "hint: put them below /usr or /etc",
    )  # fmt: skip


@pytest.mark.parametrize("made", [True, False], ids=["target in the root", "dangling"])
def test_planted_link_does_not_lead_to_the_host(shop: Workshop, *, made: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        canary = Path(name, "canary")
        canary.write_text("alive")
        make = f"mkdir -p {name}; " if made else ""
        script = f"{make}ln -s ../../../../../..{name} /opt/planted; ln -s {name} /etc/planted.d"
        add_script(shop.project, "ssh", script)
        for folder in ("opt/planted", "etc/planted.d"):
            add_file(shop.project, "llama-cpp", f"{folder}/canary", "dead\n")
            add_file(shop.project, "llama-cpp", f"{folder}/new", "dead\n")
        add_script(shop.project, "llama-cpp", f"ls -l /opt/planted {name}; exit 4")
        build(shop)
        assert canary.read_text() == "alive"
        assert list(Path(name).iterdir()) == [canary]


def test_names_that_nothing_brings_are_told_before_anything_is_built(shop: Workshop) -> None:
    add_file(shop.project, "llama-cpp", "etc/owned", "x")
    change_overlay(
        shop.project,
        "llama-cpp",
        units={"enable": ["lama-server.service"]},
        users=[{"name": "tester", "groups": ["wheels"]}],
        files={"/etc/owned": {"owner": "nobody-here"}},
    )
    done = build(shop)
    assert_fails(
        done, 2,
        r'llama-cpp/overlay.yaml:\d+:\d+: units.enable\[0\]: .* the unit "lama-server.service"\n'
        '  hint: did you mean "llama-server.service"',
        r'users\[0\].groups\[0\]: no package makes the group "wheels"',
        r'files\["/etc/owned"\].owner: no package makes the user "nobody-here"',
    )  # fmt: skip
    assert "configure" not in done.stderr


def test_what_a_script_may_make_is_told_where_it_is_missing(shop: Workshop) -> None:
    add_script(shop.project, "ssh", "true")
    name = "configure llama-cpp: "
    for changes, told in (
        ({"units": {"enable": ["x.service"]}}, "systemctl failed(?s:.*)x.service does not exist"),
        ({"files": {"/etc/owned": {"owner": "z"}}}, "files belong to z, which is not in the root"),
        (
            {"users": [{"name": "x", "groups": ["y"]}]},
            "user x should be in group y, which the root",
        ),
    ):
        add_file(shop.project, "llama-cpp", "etc/owned", "x")
        change_overlay(shop.project, "llama-cpp", **changes)
        assert_fails(build(shop), 1, f"error: {name}{told}")


def test_prune_rule_that_matches_nothing(shop: Workshop) -> None:
    rule = "/usr/share/no such $(thing)"
    change_overlay(shop.project, "llama-cpp", prune=[rule])
    assert_fails(
        build(shop),
        1,
        rf"error: prune: nothing matches {re.escape(rule)}\n  hint: correct",
    )


@pytest.mark.parametrize("rule", ["/usr/*", "/lib"])
def test_prune_rule_that_would_remove_the_system(shop: Workshop, rule: str) -> None:
    change_overlay(shop.project, "llama-cpp", prune=[rule])
    assert_fails(
        build(shop), 1, rf"error: prune: .*{re.escape(rule)} would remove the system",
        "hint: name what to remove below",
    )  # fmt: skip


# The host.


@pytest.mark.parametrize("tool", ["ostree", "unshare", "setpriv"])
def test_missing_tool(shop: Workshop, tool: str) -> None:
    add_file(shop.project, "llama-cpp", "etc/changed", "x")
    done = masked(shop, hide(tool), "build", "generic", "--locked")
    assert_fails(done, 3, rf"error: {tool} is not installed", "hint: run imagebuilder setup")


@pytest.mark.parametrize("engine", ["mmdebstrap", "debootstrap"])
def test_missing_engine_is_told_before_the_first_step(shop: Workshop, engine: str) -> None:
    base = shop.project / "recipes/bases/debian-forky.yaml"
    base.write_text(base.read_text().replace("engine: mmdebstrap", f"engine: {engine}"))
    empty = f"mount -t tmpfs -o mode=755 none {shop.state}/store"
    done = masked(shop, f"{hide(engine)}; {empty}", "build", "generic", "--locked")
    assert_fails(
        done,
        3,
        rf"engine: {engine}`, but {engine} is not installed",
        "hint: run imagebuilder setup",
    )
    assert "base debian" not in done.stderr


def test_state_that_cannot_be_written(shop: Workshop, tmp_path: Path) -> None:
    mount = f"mkdir {tmp_path}/ro; mount -t tmpfs -o ro,mode=755 none {tmp_path}/ro"
    for state, script, *said in (
        ("/dev/null/state", "true", "cannot make the state directory: ", "hint: name another"),
        (
            str(tmp_path / "ro"),
            mount,
            "is on a read-only file system",
            "hint: see the mount",
        ),
    ):
        done = masked(shop, script, "--state", state, "build", "generic", "--locked")
        assert_fails(done, 3, *said)


def test_store_that_became_read_only(shop: Workshop) -> None:
    add_file(shop.project, "llama-cpp", "etc/changed", "x")
    again = f"mount --bind {shop.state} {shop.state}; mount -o remount,ro,bind {shop.state}"
    done = masked(shop, again, "build", "generic", "--locked")
    assert_fails(done, 3, rf"error: {shop.state}\S*: .*[Rr]ead-only file system", "hint: ")


FULL = """
mkdir {top}
mount -t tmpfs -o mode=755 none {top}
cp -a {state}/store {state}/layers {state}/debs {state}/wheels {top}
used=$(df --output=used --block-size=1M {top} | tail -n 1)
mount -o remount,size=$((used + 100))M {top}
for left in {levels}; do
  free=$(df --output=avail --block-size=1K {top} | tail -n 1)
  fallocate -l $((free - left))K {top}/filler
  status=0
  {build} > {said}/$left.out 2> {said}/$left || status=$?
  echo "$status" > {said}/$left.status
  rm {top}/filler
done
"""


def test_disk_full(shop: Workshop, tmp_path: Path) -> None:
    """At whatever point the disk is full, the store stays whole and the next build works."""
    big = add_file(shop.project, "llama-cpp", "usr/share/big", "x")
    big.write_bytes(bytes(range(256)) * 4096 * 10)
    state, said = tmp_path / "full", tmp_path / "said"
    said.mkdir()
    words = ("--state", str(state), "build", "generic", "--locked", "--json")
    levels = (0, 40, 5_000, 15_000, 20_480, 20_700)
    script = FULL.format(
        top=state, state=shop.state, build=paste(shop.argv(*words)), said=said,
        levels=" ".join(map(str, levels)),
    )  # fmt: skip
    check = f"{paste(shop.argv('--state', str(state), 'fsck'))}; ls {state}/work"
    done = masked(shop, f"{script}{check}", *words)
    assert done.status == 0, done.stderr
    whole, _, built = done.stdout.partition("\n")
    assert whole.startswith("intact: 1 image, ")
    # Proved: no layer was committed without the one below it.
    assert json.loads(built)["new"]
    assert json.loads(built)["proved"]
    for left in levels:
        told = (said / str(left)).read_text()
        assert (said / f"{left}.status").read_text() == "3\n", told
        assert "Traceback" not in told
        assert re.search(r"error: \S.*(\n .*)*(No space left|the disk is full)", told), told
        assert "imagebuilder gc frees what no image needs" in told
        assert (said / f"{left}.out").read_text() == ""
