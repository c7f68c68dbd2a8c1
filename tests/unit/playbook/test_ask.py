# SPDX-License-Identifier: Apache-2.0
"""Which packages a task asks for, by its arguments."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from imagebuilder.lock.types import Lock
from imagebuilder.playbook.package_requests import facts_of
from imagebuilder.recipe.types import Base


@pytest.fixture(scope="module")
def plugin() -> ModuleType:
    """The callback.

    Ansible replaces sys.intern(), which pathlib calls for each part of a path: every test after
    this one would be slower.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "intern", sys.intern)
        from imagebuilder.playbook.plugins.callback import imagebuilder_ask
    return imagebuilder_ask


@pytest.mark.parametrize(
    ("kind", "arguments", "packages"),
    [
        ("apt", {"name": "nginx"}, ["nginx"]),
        ("apt", {"pkg": ["a=1.2*", "b:amd64", "c>=3"]}, ["a", "b", "c"]),
        ("package", {"package": "a, b"}, ["a", "b"]),
        ("apt", {"name": "linux-headers-*"}, []),
        ("apt", {"name": ["a"], "state": "absent"}, []),
        ("apt", {"update_cache": True}, []),
        ("apt", {"deb": "https://example/x.deb"}, []),
        ("shell", {"_raw_params": "apt-get -y install aa bb && echo install c"}, ["aa", "bb"]),
        ("command", {"argv": ["apt", "install", "--yes", "aa"]}, ["aa"]),
        ("command", {"_raw_params": "install -d /srv"}, []),
        (
            "dnf",
            {"name": ["NetworkManager", "@Development tools", "b-1.2"]},
            ["NetworkManager", "b-1.2"],
        ),
        ("yum", {"name": "a", "state": "latest"}, ["a"]),
        ("shell", {"_raw_params": "dnf -y install mod_ssl R && dnf clean all"}, ["mod_ssl"]),
        ("command", {"_raw_params": "dnf module install -y nodejs:20"}, []),
        ("pip", {"name": "a"}, []),
    ],
)
def test_packages_of_a_task(
    plugin: ModuleType, kind: str, arguments: dict[str, object], packages: list[str]
) -> None:
    assert list(plugin.packages_of(kind, arguments)) == packages


def test_why_a_task_is_unknown(plugin: ModuleType) -> None:
    found = {"results": [{"item": 1}, {"failed": True, "msg": "Task failed: no rc\nmore"}]}
    assert plugin.reason_of(found) == "no rc"


def test_loading_it_leaves_the_interpreter_alone(plugin: ModuleType) -> None:
    assert plugin
    assert sys.intern.__module__ == "sys"


def test_facts_are_those_of_the_image() -> None:
    def base(suite: str) -> Base:
        return Base("b", "debian", suite, "amd64", "e", "apt", (), "linux-image-amd64", ())

    lock = Lock("p", "amd64", "b", 0, (), ())
    facts = facts_of(base("trixie"), "p", lock)
    assert facts["ansible_distribution_major_version"] == "13"
    assert (facts["ansible_os_family"], facts["ansible_architecture"]) == ("Debian", "x86_64")
    assert "ansible_kernel" not in facts  # the lock has none
    assert "ansible_distribution_version" not in facts_of(base("forky"), "p", lock)


def test_facts_of_rocky_linux() -> None:
    base = Base("b", "rocky", "9", "amd64", "rpm", "rpm", (), "kernel", ())
    facts = facts_of(base, "p", Lock("p", "amd64", "b", 0, (), ()))
    assert (facts["ansible_distribution"], facts["ansible_os_family"]) == ("Rocky", "RedHat")
    assert (facts["ansible_distribution_major_version"], facts["ansible_pkg_mgr"]) == ("9", "dnf")
    # The name of a minor release, which a suite does not tell.
    assert "ansible_distribution_release" not in facts
