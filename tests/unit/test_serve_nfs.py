# SPDX-License-Identifier: Apache-2.0
"""Which NFS server exports the roots; the kernel's with a false exportfs that records its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.serve import nfs
from imagebuilder.serve.nfs import choose_nfs, kernel_export, wants_rpcbind
from imagebuilder.serve.options import Nfs
from imagebuilder.serve.ports import Holder
from imagebuilder.serve.prepare import check_host
from tests.unit.test_serve_render import FULL

EXPORTFS = '#!/bin/sh\necho "$*" >>"$(dirname "$0")/said"\n'


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the path programs are looked for on, and a kernel without NFS."""
    monkeypatch.setattr("imagebuilder.environment.SBIN", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nfs, "KERNEL_THREADS", tmp_path / "threads")
    return tmp_path


def add(folder: Path, *names: str) -> None:
    """Programs that record their words."""
    for name in names:
        (folder / name).write_text(EXPORTFS)
        (folder / name).chmod(0o755)


def test_the_kernels_server_is_taken_where_it_runs(tools: Path) -> None:
    add(tools, "exportfs", "ganesha.nfsd", "rpcbind")
    (tools / "threads").write_text("8\n")
    assert choose_nfs(Nfs.AUTO) is choose_nfs(Nfs.KERNEL) is Nfs.KERNEL
    assert choose_nfs(Nfs.GANESHA) is Nfs.GANESHA
    (tools / "threads").write_text("0\n")
    assert choose_nfs(Nfs.AUTO) is Nfs.GANESHA


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Nfs.AUTO, "this host has no NFS server"),
        (Nfs.KERNEL, "the kernel's NFS server is not running"),
        (Nfs.GANESHA, "nfs-ganesha is not installed"),
    ],
)
@pytest.mark.usefixtures("tools")
def test_what_is_missing_is_said(wanted: Nfs, said: str) -> None:
    with pytest.raises(HostError, match=said) as caught:
        choose_nfs(wanted)
    assert "sudo apt-get install" in caught.value.faults[0].hint


@pytest.mark.usefixtures("tools")
def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(HostError, match="ip, ss, dnsmasq, nginx are not installed") as caught:
        check_host()
    assert "imagebuilder setup --serve" in caught.value.faults[0].hint


@pytest.mark.usefixtures("tools")
def test_serving_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostError, match="serving nodes needs root"):
        check_host()


def test_the_export_is_withdrawn_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, "exportfs")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    config = replace(FULL, nfs=Nfs.KERNEL)
    with pytest.raises(KeyboardInterrupt), kernel_export(config):
        raise KeyboardInterrupt
    export = "10.0.0.0/24:/srv/netboot/roots"
    options = f"ro,no_root_squash,no_subtree_check,fsid={config.export_id},sec=sys"
    assert (tmp_path / "said").read_text().splitlines() == [
        f"-o {options} {export}",
        f"-u {export}",
    ]


def test_rpcbind_is_started_when_nobody_did() -> None:
    theirs = (Holder("tcp", 111, "0.0.0.0"),)
    assert wants_rpcbind(FULL, ())
    assert not wants_rpcbind(FULL, theirs)
    assert not wants_rpcbind(replace(FULL, nfs=Nfs.KERNEL), ())


def test_threads_that_only_root_may_count_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "nfsd"
    monkeypatch.setattr(nfs, "KERNEL_THREADS", Path("/sys/bus/platform/drivers_probe"))
    monkeypatch.setattr(nfs, "KERNEL_COUNTS", counts)
    with pytest.raises(PermissionError):  # nobody may read this one, not even root
        nfs.KERNEL_THREADS.read_text()
    assert nfs.kernel_serves() is False
    for text, wanted in (("rc 0 0 1\nth 8 0 0.0\n", True), ("th 0 0 0.0\n", False), ("", None)):
        counts.write_text(text)
        assert nfs.kernel_serves() is wanted
    monkeypatch.setattr(nfs, "KERNEL_COUNTS", nfs.KERNEL_THREADS)
    assert nfs.kernel_serves() is None, "a look that failed is no absence"
