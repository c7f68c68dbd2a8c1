# SPDX-License-Identifier: Apache-2.0
"""Shared memory that logind takes from services."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.login.limits import prove_shared_memory
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from tests.unit.proof.trees import Content, Link, Sandbox, make_tree, running, subject, warnings

MODULE = "/usr/lib/x86_64-linux-gnu/security/pam_systemd.so"
PAM = "/etc/pam.d/common-session"
FILES: Mapping[str, Content] = {
    "/usr/lib/systemd/systemd-logind": "",
    MODULE: "",
    PAM: "session\toptional\tpam_systemd.so\n",
    "/etc/passwd": "compute:x:1000:1000::/home/compute:/bin/bash\n"
    "service:x:990:990::/:/bin/bash\nnobody:x:1001:1001::/:/usr/sbin/nologin\n",
    "/etc/group": "compute:x:1000:\n",
}
YES, NO = "[Login]\nRemoveIPC=yes\n", "[Login]\nRemoveIPC=no\n"


def told(
    tree: Path,
    config: str,
    files: Mapping[str, Content],
    *,
    engine: str = "",
    **values: str,
) -> list[str]:
    shown = f"# /etc/systemd/logind.conf\n{config}"
    expected = Expectations(engines=(ExpectedEngine(engine, unit="a.service"),) if engine else ())
    about = subject(
        make_tree(tree, {**FILES, **files}),
        expectations=expected,
        run=Sandbox({"systemd-analyze cat-config systemd/logind.conf": shown}),
    )
    about.__dict__["shipped"] = {}
    settings = {"Unit Load State": "loaded", "User": "compute"} | values
    loaded = {key: (value,) for key, value in settings.items()}
    path = "/etc/systemd/system/a.service"
    unit = LoadedUnit("a.service", (path,), loaded, {"ExecStart": (("/usr/bin/a",),)})
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    return warnings(prove_shared_memory(running(about, startup)))


@pytest.mark.parametrize(
    ("config", "values", "count"),
    [
        (YES, {}, 1),
        (NO, {}, 0),
        (YES + NO, {}, 0),
        # By default, only of engines whose processes share tensors.
        ("", {}, 0),
        ("", {"engine": "vllm"}, 1),
        ("", {"engine": "llama.cpp"}, 0),
        (NO, {"engine": "vllm"}, 0),
        (YES, {"User": "service"}, 0),
        (YES, {"User": "nobody"}, 0),
        (YES, {"User": "root"}, 0),
        (YES, {"User": ""}, 0),
        (YES, {"TemporaryFileSystem": "/dev/shm"}, 0),
    ],
)
def test_services_that_lose_it(
    config: str, values: dict[str, str], count: int, tmp_path: Path
) -> None:
    found = told(tmp_path, config, {}, **values)
    said = "RemoveIPC=yes takes the shared memory from a.service whenever the last session of comp"
    assert [what.startswith(said) for what in found] == [True] * count


@pytest.mark.parametrize(
    "files",
    [
        {PAM: "session optional pam_unix.so\n", "/etc/pam.d/runuser-l":
         "-session optional pam_systemd.so\n"},
        {PAM: "#session optional pam_systemd.so\n"},
        {"/var/lib/systemd/linger/compute": ""},
    ],
)  # fmt: skip
def test_images_that_keep_it(files: Mapping[str, Content], tmp_path: Path) -> None:
    assert told(tmp_path, YES, files) == []


def test_an_image_without_the_module(tmp_path: Path) -> None:
    assert told(tmp_path, YES, {MODULE: Link("/gone")}) == []
