# SPDX-License-Identifier: Apache-2.0
"""The host scripts, in a copy of the checkout with a table of invented tools and a false apt."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.doctor.host import is_present
from imagebuilder.process import Completed, run

CHECKOUT = Path(__file__).parent.parent.parent
TABLE = """\
# a comment
build frobnicate      frob          2.0 frobnicates
build defrobnicate    frob          -   undoes it
build module:os       python3-os    -   is always there
build /etc/frob/*.gpg frob-keyring  -   keys of frob
dev   frobcheck       frob-check    -   checks
"""
# Records its arguments; "installs" the programs of the table; does not know frob-check.
APT_GET = """\
#!/bin/sh
echo "apt-get $*" >>"$LOG"
echo "Setting up frob"
case " $* " in
*" update "*) touch "$LISTS" ;;
*" install "*) [ -z "${APT_FAILS:-}" ] || { echo "E: no space"; exit 100; }
    for tool in frobnicate defrobnicate; do ln -sf /bin/true "$BIN/$tool"; done ;;
esac
"""
APT_CACHE = """\
#!/bin/sh
echo "  Installed: (none)"
if [ -e "$LISTS" ] && [ "$2" != frob-check ]; then echo "  Candidate: 2.0"
else echo "  Candidate: (none)"; fi
"""
# Keeps nothing but what it is told to keep, as sudo does.
SUDO = """\
#!/bin/sh
echo "sudo $*" >>"$LOG"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
COREUTILS = (
    "sh", "env", "cat", "cut", "dirname", "dpkg", "grep", "head", "ln", "mkdir", "mktemp", "printf",
    "rm", "sed", "ssh-keygen", "touch", "true",
)  # fmt: skip


class Checkout:
    """A copy of scripts/ with its own table, and a PATH that has nothing but what we put there."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.home = folder / "home"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.lists = folder / "lists"
        shutil.copytree(CHECKOUT / "scripts", self.root / "scripts")
        (self.root / "imagebuilder").mkdir()
        for path in (self.home, self.bin):
            path.mkdir()
        self.log.touch()
        self.os_release = folder / "os-release"
        self.os_release.write_text("ID=debian\nVERSION_ID=12\nVERSION_CODENAME=noodle\n")
        self.table(TABLE.replace("/etc/frob", str(folder)))
        (folder / "a.gpg").touch()
        for tool in COREUTILS:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        (self.bin / "python3").symlink_to(sys.executable)
        self.tool("apt-get", APT_GET)
        self.tool("apt-cache", APT_CACHE)
        self.tool("sudo", SUDO)
        self.tool("id", "#!/bin/sh\necho 1000\n")

    def table(self, text: str) -> None:
        """Replace the table of host packages."""
        (self.root / "scripts/host-packages.txt").write_text(text)

    def tool(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def said(self) -> list[str]:
        """The commands that apt-get and sudo were given."""
        return self.log.read_text().splitlines()

    def run(self, script: str, *words: str, env: Mapping[str, str] | None = None) -> Completed:
        """Run a script of the copy in the closed world."""
        world = {
            "PATH": os.fspath(self.bin), "HOME": os.fspath(self.home),
            "BIN": os.fspath(self.bin), "LOG": os.fspath(self.log), "LISTS": os.fspath(self.lists),
            "IMAGEBUILDER_OS_RELEASE": os.fspath(self.os_release), **(env or {}),
        }  # fmt: skip
        named = [f"{name}={value}" for name, value in world.items()]
        return run(["env", "-i", *named, self.root / "scripts" / script, *words], check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout on a Debian 12 where frob is missing, for a user with sudo."""
    return Checkout(tmp_path)


def test_missing_packages_are_named_once_with_their_purpose(checkout: Checkout) -> None:
    assert checkout.run("host-missing", "build", "dev").stdout.splitlines() == [
        "frob                     frobnicates",
        "frob-check               checks",
    ]


@pytest.mark.parametrize("there", ["one", "other", "third"])
def test_a_file_may_be_at_one_of_several_places(
    checkout: Checkout, tmp_path: Path, there: str
) -> None:
    (tmp_path / f"{there}.rom").touch()
    missing = there == "third"
    tool = f"{tmp_path}/on*.rom|{tmp_path}/other.rom"
    checkout.table(f"boot {tool} frob-rom - boots\nboot frobnicate frob - frobs\n")
    listed = checkout.run("host-missing", "boot").stdout.split()
    assert ("frob-rom" in listed, "frob" in listed) == (missing, True)
    assert is_present(tool, "") != missing


def test_setup_shows_the_list_reads_the_lists_and_installs_through_sudo(checkout: Checkout) -> None:
    done = checkout.run("host-setup")
    assert done.status == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        "Host: these packages are missing",
        "  frob                     frobnicates",
    ]
    assert lines[2:4] == ["Host: installing them with apt", "Host: installed 1 package"]
    commands = [line for line in checkout.said() if line.startswith("apt-get")]
    assert commands[0] == "apt-get -qq update"
    assert commands[1].endswith("--no-install-recommends install -- frob")
    assert sum(line.startswith("sudo") for line in checkout.said()) == 2


def test_a_second_run_says_one_line_and_does_nothing(checkout: Checkout) -> None:
    assert checkout.run("host-setup").status == 0
    checkout.log.write_text("")
    done = checkout.run("host-setup")
    assert (done.status, done.stderr) == (0, "Host: nothing is missing\n")
    assert checkout.said() == []
    assert checkout.run("host-setup", "--quiet").stderr == ""


def test_each_option_adds_what_it_is_for(checkout: Checkout) -> None:
    groups = ("rpm", "serve", "nfs", "boot", "dev", "tests")
    checkout.table("".join(f"{name} x-{name} for-{name} - for {name}\n" for name in groups))
    wanted = {
        "--rpm": {"rpm"},
        "--serve": {"serve", "nfs"},
        "--boot": {"serve", "boot"},
        "--dev": {"rpm", "dev"},
        "--tests": {"rpm", "dev", "serve", "boot", "tests"},
    }
    for option, names in wanted.items():
        listed = checkout.run("host-setup", "--check", option).stderr.splitlines()[1:]
        assert {line.split()[-1] for line in listed} == names
    both = checkout.run("host-setup", "--check", "--boot", "--dev").stderr.splitlines()[1:]
    assert {line.split()[-1] for line in both} == {"rpm", "serve", "boot", "dev"}


@pytest.mark.parametrize("candidate", ["1.119", "(none)"])
def test_keys_of_rocky_linux_come_from_the_distribution_or_not_at_all(
    checkout: Checkout, tmp_path: Path, candidate: str
) -> None:
    script = checkout.root / "scripts/host-setup"
    place = f"keys={tmp_path}/keys"
    script.write_text(script.read_text().replace("keys=/usr/share/distribution-gpg-keys", place))
    checkout.table("")
    checkout.tool("apt-cache", f"#!/bin/sh\necho '  Candidate: {candidate}'\n")
    done = checkout.run("host-setup", "--rpm")
    assert done.status == 0
    asked = [line for line in checkout.said() if line.startswith("apt-get")]
    if candidate == "(none)":
        assert done.stderr.splitlines()[-1] == (
            "Host: not in this host's apt sources: distribution-gpg-keys; "
            "docs/rocky.md says what to do"
        )
        assert asked == []
    else:
        assert asked[-1].endswith("-- distribution-gpg-keys")
    (tmp_path / "keys").mkdir()
    before = checkout.said()
    assert checkout.run("host-setup", "--rpm").stderr == "Host: nothing is missing\n"
    assert checkout.said() == before
    assert checkout.run("host-setup", "--build").status == 0
    assert checkout.said() == before


def test_engines_are_asked_for_apart(checkout: Checkout) -> None:
    checkout.table("")
    assert checkout.run("host-setup", "--check").status == 0
    done = checkout.run("host-setup", "--check", "--engines")
    assert done.status == 3
    assert done.stderr.splitlines()[-1] == "Host: mkosi 24 or newer is missing"
    checkout.tool("mkosi", "#!/bin/sh\necho mkosi 14\n")
    done = checkout.run("host-setup", "--check", "--engines")
    assert done.stderr.splitlines()[-1] == "Host: mkosi 24 or newer is missing (mkosi 14 is here)"
    checkout.tool("mkosi", "#!/bin/sh\necho mkosi 24.3\n")
    assert checkout.run("host-setup", "--check", "--engines").status == 0


def test_mkosi_comes_from_the_distribution_if_that_is_new_enough(checkout: Checkout) -> None:
    checkout.lists.touch()
    checkout.tool("apt-cache", "#!/bin/sh\necho '  Candidate: 25.3-7'\n")
    done = checkout.run("mkosi-setup")
    assert done.status == 0, done.stderr
    assert [line for line in checkout.said() if line.startswith("apt-get")][-1].endswith("-- mkosi")


def test_where_no_mkosi_is_new_enough_nothing_is_changed(checkout: Checkout) -> None:
    checkout.lists.touch()
    checkout.tool("apt-cache", "#!/bin/sh\necho '  Candidate: 14-2'\n")
    done = checkout.run("mkosi-setup")
    assert done.status == 3
    assert done.stderr.splitlines()[-1] == (
        "mkosi-setup: neither noodle nor noodle-backports has it: put a newer mkosi on PATH"
    )
    asked = [line for line in checkout.said() if line.startswith("apt-get")]
    assert not any(" install " in line for line in asked)
    checkout.table("")
    done = checkout.run("host-setup", "--tests")
    assert done.status == 0
    assert "Host: tests that need mkosi will be skipped" in done.stderr.splitlines()


@pytest.mark.parametrize("candidate", ["156.0", "(none)"])
def test_a_browser_for_tests_comes_from_the_distribution_or_not_at_all(
    checkout: Checkout, candidate: str
) -> None:
    checkout.table("")
    checkout.tool("mkosi", "#!/bin/sh\necho mkosi 25\n")
    checkout.tool("apt-cache", f"#!/bin/sh\necho '  Candidate: {candidate}'\n")
    done = checkout.run("host-setup", "--tests")
    assert done.status == 0
    asked = [line for line in checkout.said() if line.startswith("apt-get")]
    if candidate == "(none)":
        assert "Host: tests that need a browser will be skipped" in done.stderr.splitlines()
        assert asked == []
    else:
        assert asked[-1].endswith("-- chromium-headless-shell")
    checkout.tool("chromium-headless-shell", "#!/bin/sh\n")
    before = checkout.said()
    assert checkout.run("host-setup", "--tests").status == 0
    assert checkout.said() == before


def test_root_needs_no_sudo(checkout: Checkout) -> None:
    checkout.tool("id", "#!/bin/sh\necho 0\n")
    (checkout.bin / "sudo").unlink()
    assert checkout.run("host-setup").status == 0
    assert len(checkout.said()) == 2


def test_without_root_and_sudo_it_says_so(checkout: Checkout) -> None:
    (checkout.bin / "sudo").unlink()
    done = checkout.run("host-setup")
    assert done.status == 3
    assert done.stderr.count("root is needed and sudo is not installed") == 1
    assert "installing" not in done.stderr


def test_check_lists_and_changes_nothing(checkout: Checkout) -> None:
    done = checkout.run("host-setup", "--check")
    assert done.status == 3
    assert "frob" in done.stderr
    assert checkout.said() == []
    assert list(checkout.home.iterdir()) == []


def test_another_distribution_gets_the_list(checkout: Checkout) -> None:
    checkout.os_release.write_text('ID="opensuse-leap"\nVERSION_ID="15.6"\n')
    done = checkout.run("host-setup")
    assert done.status == 3
    assert "  frob                     frobnicates" in done.stderr
    assert "cannot install packages on opensuse-leap 15.6" in done.stderr
    assert checkout.said() == []


def test_an_untried_release_is_said_and_tried(checkout: Checkout) -> None:
    checkout.os_release.write_text("ID=debian\n")
    done = checkout.run("host-setup")
    assert done.status == 0
    assert "not tried on debian" in done.stderr


def test_what_apt_does_not_have_is_named(checkout: Checkout) -> None:
    done = checkout.run("host-setup", "--dev")
    assert done.status == 3
    assert done.stderr.splitlines()[-1] == (
        "host-setup: not in this host's apt sources: frob-check"
    )


def test_a_failed_installation_is_tried_again_with_fresh_lists(checkout: Checkout) -> None:
    checkout.lists.touch()
    done = checkout.run("host-setup", env={"APT_FAILS": "1"})
    assert done.status == 3
    assert [line.split()[-1] for line in checkout.said() if line.startswith("apt-get")] == [
        "frob", "update", "frob",
    ]  # fmt: skip
    assert done.stderr.splitlines()[-2:] == [
        "E: no space", "host-setup: apt could not install the packages above",
    ]  # fmt: skip


def test_what_apt_installed_without_effect_is_noticed(checkout: Checkout) -> None:
    checkout.table("build never-there never - is never there\n")
    done = checkout.run("host-setup")
    assert done.status == 3
    assert "still missing after the installation: never" in done.stderr


def test_unknown_options_are_refused(checkout: Checkout) -> None:
    assert checkout.run("host-setup", "--all").status == 2


def test_a_person_without_key_and_site_gets_both_once(checkout: Checkout) -> None:
    done = checkout.run("site-setup")
    config = checkout.home / ".config/imagebuilder"
    assert done.status == 0
    assert done.stderr.count("\n") == 1
    assert (
        '\nssh-keys: ["~/.config/imagebuilder/ssh/id_ed25519.pub"]\n'
        in (config / "site.yaml").read_text()
    )
    assert (config / "ssh/id_ed25519").stat().st_mode & 0o777 == 0o600
    before = {path: path.read_bytes() for path in config.rglob("*") if path.is_file()}
    assert len(before) == 3
    assert checkout.run("site-setup").stderr == ""
    assert {path: path.read_bytes() for path in config.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("there", [".ssh/id_rsa.pub", ".config/imagebuilder/site.yaml"])
def test_a_person_with_a_key_or_a_site_keeps_them(checkout: Checkout, there: str) -> None:
    path = checkout.home / there
    path.parent.mkdir(parents=True)
    path.write_text("mine\n")
    assert checkout.run("site-setup").stderr == ""
    assert [found for found in checkout.home.rglob("*") if found.is_file()] == [path]
    assert path.read_text() == "mine\n"


def test_a_site_elsewhere_is_the_person_s_own_business(checkout: Checkout) -> None:
    assert checkout.run("site-setup", env={"IMAGEBUILDER_SITE": "/srv/site.yaml"}).stderr == ""
    assert list(checkout.home.iterdir()) == []


def test_sudo_keeps_our_settings_and_not_the_rest(checkout: Checkout) -> None:
    world = {
        "IMAGEBUILDER_STATE": "/srv/state", "http_proxy": "http://p", "PIP_INDEX_URL": "x",
        "XDG_CONFIG_HOME": "/c", "SECRET": "s",
    }  # fmt: skip
    checkout.run("as-root", "true", "a b", env=world)
    (line,) = checkout.said()
    kept = line.removeprefix("sudo --preserve-env=").split(" ")[0].split(",")
    assert sorted(kept) == [
        "IMAGEBUILDER_OS_RELEASE", "IMAGEBUILDER_STATE", "PIP_INDEX_URL", "TERM",
        "XDG_CONFIG_HOME", "http_proxy",
    ]  # fmt: skip


def test_as_root_ends_with_the_status_of_the_command(checkout: Checkout) -> None:
    assert checkout.run("as-root", "sh", "-c", "exit 7").status == 7
