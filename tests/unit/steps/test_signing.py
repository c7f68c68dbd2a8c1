# SPDX-License-Identifier: Apache-2.0
"""Modules signed with the site's key: what is appended, that it verifies, and which keys do not."""

from __future__ import annotations

import os
import ssl
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import HostError, WorkError
from imagebuilder.process import Word, run
from imagebuilder.recipe.types import ModuleSigning
from imagebuilder.steps.signing import CERTIFICATE, MAGIC, check_signing, sign_modules

MODULE = b"\x7fELF module " * 100


def make_signing(folder: Path, name: str = "site", algorithm: str = "rsa:2048") -> ModuleSigning:
    """A key and its certificate, as the site file's hint makes them."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    more = ["-pkeyopt", "ec_paramgen_curve:P-256"] if algorithm == "ec" else []
    run(
        [
            "openssl", "req", "-new", "-x509", "-newkey", algorithm, *more, "-noenc",
            "-subj", "/CN=Kernel modules", "-keyout", key, "-out", certificate,
        ]
    )  # fmt: skip
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    return ModuleSigning(key, certificate, digest_of_bytes(der))


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> ModuleSigning:
    return make_signing(tmp_path_factory.mktemp("keys"))


def make_result(folder: Path) -> Path:
    place = folder / "out/usr/lib/modules/6.12/updates/dkms"
    place.mkdir(parents=True)
    (place / "nic.ko").write_bytes(MODULE)
    return folder / "out"


def test_a_signed_module_is_the_module_and_a_signature_that_verifies(
    tmp_path: Path, signing: ModuleSigning
) -> None:
    out = make_result(tmp_path)
    assert sign_modules(out, signing) == 1
    content = next(out.rglob("nic.ko")).read_bytes()
    assert content.startswith(MODULE)
    assert content.endswith(MAGIC)
    head = content[-len(MAGIC) - 12 : -len(MAGIC)]
    algorithm, digest, kind, signer, key, length = struct.unpack(">5B3xI", head)
    assert (algorithm, digest, kind, signer, key) == (0, 0, 2, 0, 0)
    (tmp_path / "module").write_bytes(MODULE)
    (tmp_path / "signature").write_bytes(content[len(MODULE) : len(MODULE) + length])
    assert len(content) == len(MODULE) + length + 12 + len(MAGIC)
    verify: list[Word] = [
        "openssl", "cms", "-verify", "-binary", "-inform", "DER", "-noverify",
        "-certfile", signing.certificate, "-in", tmp_path / "signature",
        "-content", tmp_path / "module", "-out", os.devnull,
    ]  # fmt: skip
    assert run(verify, check=False).status == 0
    (tmp_path / "module").write_bytes(MODULE + b"changed")
    assert run(verify, check=False).status != 0
    der = (out / CERTIFICATE).read_bytes()
    assert der == ssl.PEM_cert_to_DER_cert(signing.certificate.read_text())


def test_equal_modules_stay_equal(tmp_path: Path, signing: ModuleSigning) -> None:
    contents = []
    for name in ("a", "b"):
        out = make_result(tmp_path / name)
        sign_modules(out, signing)
        contents.append(next(out.rglob("nic.ko")).read_bytes())
    assert contents[0] == contents[1]


def test_what_is_signed_already_and_what_a_link_leads_to_stay_as_they_are(
    tmp_path: Path, signing: ModuleSigning
) -> None:
    out = make_result(tmp_path)
    module = next(out.rglob("nic.ko"))
    module.write_bytes(MODULE + MAGIC)
    outside = tmp_path / "outside.ko"
    outside.write_bytes(MODULE)
    (module.parent / "link.ko").symlink_to(outside)
    assert sign_modules(out, signing) == 0
    assert module.read_bytes() == MODULE + MAGIC
    assert outside.read_bytes() == MODULE
    assert not (out / CERTIFICATE).exists()


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, signing: ModuleSigning) -> None:
    check_signing(signing)
    other = make_signing(tmp_path, "other")
    mixed = ModuleSigning(other.key, signing.certificate, signing.digest)
    with pytest.raises(HostError, match="is not the key of the certificate"):
        check_signing(mixed)


def test_a_key_that_would_sign_differently_each_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="not a readable RSA key"):
        check_signing(make_signing(tmp_path, algorithm="ec"))


def test_a_key_with_a_password_is_refused_without_asking(
    tmp_path: Path, signing: ModuleSigning
) -> None:
    locked = tmp_path / "locked.key"
    run(["openssl", "rsa", "-aes256", "-passout", "pass:x", "-in", signing.key, "-out", locked])
    with pytest.raises(HostError, match="without a password"):
        check_signing(ModuleSigning(locked, signing.certificate, signing.digest))


@pytest.mark.parametrize("link", ["usr/share", "usr/share/imagebuilder"])
def test_a_folder_of_the_host_gets_no_certificate(
    tmp_path: Path, signing: ModuleSigning, link: str
) -> None:
    out, host = make_result(tmp_path), tmp_path / "host"
    host.mkdir()
    (out / link).parent.mkdir(parents=True, exist_ok=True)
    (out / link).symlink_to(host)
    with pytest.raises(WorkError, match=f"has left /{link}, which is not a folder"):
        sign_modules(out, signing)
    assert [*host.iterdir()] == []


def test_a_file_of_the_host_does_not_become_the_certificate(
    tmp_path: Path, signing: ModuleSigning
) -> None:
    out, host = make_result(tmp_path), tmp_path / "host"
    host.write_text("shadow")
    (out / CERTIFICATE).parent.mkdir(parents=True)
    (out / CERTIFICATE).symlink_to(host)
    assert sign_modules(out, signing) == 1
    assert host.read_text() == "shadow"
    assert not (out / CERTIFICATE).is_symlink()


def test_a_certificate_that_changed_since_the_plan_is_an_error(
    tmp_path: Path, signing: ModuleSigning
) -> None:
    with pytest.raises(WorkError, match=r"site\.pem: has changed since this build read it"):
        sign_modules(make_result(tmp_path), replace(signing, digest="d" * 64))
