# SPDX-License-Identifier: Apache-2.0
"""Packages that nobody signed, that others signed, and that were changed afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError, WorkError
from imagebuilder.families.rpm.keys import armour, split_certificates
from imagebuilder.families.rpm.signatures import (
    BATCH,
    check_signed,
    find_problems,
    make_keyring,
    problem_in,
)
from imagebuilder.lock.types import LockedPackage
from imagebuilder.process import run
from imagebuilder.recipe.keys import dearmoured, fingerprints_of
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import SigningKey, gpg, keyring, make_key
from tests.fixtures.rpm_repository import Rpm, armoured, make_rpm

pytestmark = pytest.mark.slow

Keys = tuple[SigningKey, SigningKey, SigningKey]
HELLO = Rpm("hello", epoch=2, files={"/usr/share/hello": "hello " * 2000})


def source_of(key: SigningKey, name: str = "tools") -> Source:
    pins = (key.fingerprint,)
    return Source(name, ("/",), (), key.certificate, uri="https://v.example", fingerprints=pins)


def locked(path: Path, name: str = "hello", source: str = "tools") -> LockedPackage:
    size = path.stat().st_size
    sha256 = digest_of_file(path)
    return LockedPackage(name, "2:1.0-1.el9", "noarch", sha256, size, path.name, source)


def check(paths: Sequence[Path], key: SigningKey, top: Path) -> None:
    check_signed([(path, locked(path)) for path in paths], {"tools": source_of(key)}, top)


@pytest.fixture
def good(rpm_keys: Keys, tmp_path: Path) -> Path:
    path = tmp_path / "good.rpm"
    make_rpm(HELLO, path, rpm_keys[1])
    return path


def test_a_package_of_its_source_is_accepted(good: Path, rpm_keys: Keys, tmp_path: Path) -> None:
    check([good], rpm_keys[1], tmp_path)
    assert not list(tmp_path.glob("rpmkeys-*"))


def test_a_keyring_of_a_distribution_is_armoured(rpm_keys: Keys, tmp_path: Path) -> None:
    keyring, path = tmp_path / "RPM-GPG-KEY", tmp_path / "base.rpm"
    keyring.write_bytes(armoured(rpm_keys[0]))
    make_rpm(HELLO, path, rpm_keys[0])
    rocky = Source("tools", ("9",), ("BaseOS",), keyring, mirror="rocky")
    check_signed([(path, locked(path))], {"tools": rocky}, tmp_path)


def test_each_source_has_its_own_key(good: Path, rpm_keys: Keys, tmp_path: Path) -> None:
    sources = {"tools": source_of(rpm_keys[1]), "other": source_of(rpm_keys[0], "other")}
    files = [(good, locked(good)), (good, locked(good, source="other"))]
    with pytest.raises(WorkError, match="signed with another key") as caught:
        check_signed(files, sources, tmp_path)
    assert [fault.where for fault in caught.value.faults] == ["source other"]


def test_a_revoked_certificate_is_no_key(rpm_keys: Keys, tmp_path: Path) -> None:
    """rpm 4.18 as Debian has it accepts what such a key signed; gpgv(1) does not."""
    path, keys = tmp_path / "base.rpm", tmp_path / "RPM-GPG-KEY"
    with keyring() as home:
        made = make_key(home, "Revoked")
        make_rpm(HELLO, path, made)
        rocky = Source("tools", ("9",), ("BaseOS",), keys, mirror="rocky")
        keys.write_bytes(armoured(rpm_keys[0]) + armoured(made))
        check_signed([(path, locked(path))], {"tools": rocky}, tmp_path)
        revocation = home / "openpgp-revocs.d" / f"{made.fingerprint}.rev"
        revocation.write_text(revocation.read_text().replace(":-----BEGIN", "-----BEGIN"))
        gpg(home, "--import", revocation)
        revoked = armoured(made)
    keys.write_bytes(armoured(rpm_keys[0]) + revoked)
    with pytest.raises(WorkError, match="signed with another key"):
        check_signed([(path, locked(path))], {"tools": rocky}, tmp_path)
    keys.write_bytes(revoked)
    with pytest.raises(InputError, match="does not accept the key"):
        check_signed([(path, locked(path))], {"tools": rocky}, tmp_path)


def flip(at: bytes | int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        place = at if isinstance(at, int) else content.index(at)
        changed = bytearray(content)
        changed[place] ^= 1
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (flip(-20), "it was changed after it was signed"),  # payload
        (flip(b"hello for tests"), "it was changed after it was signed"),  # header
        (lambda content: content + b"more", "it was changed after it was signed"),
        (lambda content: content[: len(content) // 2], "it is"),
        (lambda _: b"<html>please log in</html>" * 100, "it is"),
        (lambda _: b"", "it is"),
    ],
)
def test_a_changed_package_is_refused(
    good: Path, rpm_keys: Keys, tmp_path: Path, change: Callable[[bytes], bytes], what: str
) -> None:
    bad = tmp_path / "bad.rpm"
    bad.write_bytes(change(good.read_bytes()))
    with pytest.raises(WorkError, match=what) as caught:
        check([good, bad], rpm_keys[1], tmp_path)
    assert len(caught.value.faults) == 1  # the other one is right
    assert rpm_keys[1].fingerprint in caught.value.faults[0].hint


def test_an_unsigned_package_is_refused(rpm_keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "unsigned.rpm"
    make_rpm(HELLO, path)
    assert run(["rpmkeys", "--checksig", path]).status == 0  # rpm's own judgement
    with pytest.raises(WorkError, match=r"hello=2:1\.0-1\.el9:noarch .* it is not signed"):
        check([path], rpm_keys[1], tmp_path)


def test_another_key_is_refused(good: Path, rpm_keys: Keys, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="it is signed with another key"):
        check([good], rpm_keys[2], tmp_path)


def test_a_signature_by_sha1_is_refused(rpm_keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "weak.rpm"
    make_rpm(HELLO, path)
    key = rpm_keys[1]
    defines = (
        f"_gpg_name {key.fingerprint}",
        f"_gpg_path {key.home}",
        "_gpg_digest_algo sha1",
        "__gpg /usr/bin/gpg",
        "_gpg_sign_cmd_extra_args --allow-weak-digest-algos",
    )
    words = [word for define in defines for word in ("--define", define)]
    run(["rpmsign", "--addsign", *words, path])
    with pytest.raises(WorkError, match="it is signed by means of SHA1, which can be forged"):
        check([path], key, tmp_path)


def test_another_package_under_a_name_is_refused(
    good: Path, rpm_keys: Keys, tmp_path: Path
) -> None:
    wrong = locked(good, name="bash")
    with pytest.raises(WorkError, match=r"bash=2:1.*is the package hello=2:1\.0-1"):
        check_signed([(good, wrong)], {"tools": source_of(rpm_keys[1])}, tmp_path)
    newer = replace(locked(good), version="2:1.1-1.el9")
    with pytest.raises(WorkError, match="offers an old package as a new one"):
        check_signed([(good, newer)], {"tools": source_of(rpm_keys[1])}, tmp_path)


def test_a_key_file_has_what_is_pinned_and_no_more(
    good: Path, rpm_keys: Keys, tmp_path: Path
) -> None:
    both = tmp_path / "both.gpg"
    both.write_bytes(b"".join(key.certificate.read_bytes() for key in rpm_keys[1:]))
    source = replace(source_of(rpm_keys[1]), key=both)
    with pytest.raises(InputError, match="but the overlay pins"):
        check_signed([(good, locked(good))], {"tools": source}, tmp_path)
    pinned = replace(source, fingerprints=tuple(key.fingerprint for key in rpm_keys[1:]))
    check_signed([(good, locked(good))], {"tools": pinned}, tmp_path)


def test_an_expired_key_signed_what_it_signed(tmp_path: Path, rpm_keys: Keys) -> None:
    home = rpm_keys[0].home
    words = ("Old <old@example.org>", "ed25519", "sign", "seconds=2")
    gpg(home, "--quick-generate-key", *words)
    shown = gpg(home, "--with-colons", "--list-keys", "old@example.org")
    fingerprint = next(line for line in shown.splitlines() if line.startswith("fpr:")).split(":")[9]
    certificate = home / "old.gpg"
    gpg(home, "--output", certificate, "--export", fingerprint)
    old, path = SigningKey(home, fingerprint, certificate), tmp_path / "old.rpm"
    make_rpm(HELLO, path, old)
    time.sleep(2.5)
    check([path], old, tmp_path)


def test_many_packages_are_verified_in_batches(good: Path, rpm_keys: Keys, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.rpm" for number in range(BATCH + 3)]
    for path in paths:
        path.hardlink_to(good)
    paths[-1].unlink()
    paths[-1].write_bytes(flip(-20)(good.read_bytes()))
    with make_keyring(source_of(rpm_keys[1]), tmp_path) as keyring:
        found = find_problems(keyring, paths)
    assert found == {paths[-1]: "it was changed after it was signed"}


def test_macros_of_the_user_do_not_count(
    rpm_keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "unsigned.rpm"
    make_rpm(HELLO, path)
    (tmp_path / ".rpmmacros").write_text("%_pkgverify_level none\n%_pkgverify_flags -1\n")
    monkeypatch.setenv("HOME", f"{tmp_path}")
    with pytest.raises(WorkError, match="it is not signed"):
        check([path], rpm_keys[1], tmp_path)


# What rpm 4.18 says of packages of Enterprise Linux 9, 4.20, and 6.
EL9 = """\
/p/a.rpm:
    Header V4 RSA/SHA256 Signature, key ID 350d275d: OK
    Header SHA256 digest: OK
    Header SHA1 digest: OK
    Payload SHA256 digest: OK
    V4 RSA/SHA256 Signature, key ID 350d275d: OK
    MD5 digest: OK
"""
NEWER = """\
/p/a.rpm:
    Header OpenPGP V4 RSA/SHA256 signature, key ID 702d426d350d275d: OK
    Header SHA256 digest: OK
    Payload SHA256 digest: OK
"""
NEWEST = """\
/p/a.rpm:
    Header OpenPGP V4 EdDSA/SHA512 signature, key fingerprint: 771b18d3d7baa28734333c4243445: OK
    Header SHA256 digest: OK
    Payload SHA3-256 digest: OK
    Legacy OpenPGP V4 RSA/SHA256 signature, key ID 999f7cbf38ab71f4: OK
"""


@pytest.mark.parametrize("said", [EL9, NEWER, NEWEST])
def test_every_rpm_is_understood(said: str) -> None:
    path = Path("/p/a.rpm")
    assert problem_in(said, path) == ""
    assert problem_in(said, Path("/p/b.rpm")) == "it is not a package"
    assert problem_in(f"{said}{said}", path) == "it is damaged"
    lines = said.splitlines(keepends=True)
    assert problem_in(lines[0], path) == "it is damaged"
    unsigned = "".join(line for line in lines if "ignature" not in line)
    assert problem_in(unsigned, path) == "it is not signed"
    assert "another key" in problem_in(said.replace(": OK", ": NOKEY", 1), path)
    assert "rpm says NOT OK" in problem_in(said.replace(": OK", ": NOT OK", 1), path)
    assert "rpm says NOVERDICT" in problem_in(said.replace(": OK", ": NOVERDICT", 1), path)
    weak = said.replace("SHA256 S", "SHA1 S").replace("SHA256 s", "SHA1 s").replace("512 s", "1 s")
    assert "SHA1, which can be forged" in problem_in(weak, path)
    header = "".join(lines[:2])
    assert problem_in(header, path) == "its signature does not cover its content"


def test_armour_is_what_gnupg_makes(rpm_keys: Keys) -> None:
    certificates = b"".join(key.certificate.read_bytes() for key in rpm_keys)
    made = armour(certificates)
    assert made.count(b"BEGIN") == 3
    assert dearmoured(made) == certificates
    assert [fingerprints_of(each) for each in split_certificates(certificates)] == [
        (key.fingerprint,) for key in rpm_keys
    ]
    first = armour(rpm_keys[0].certificate.read_bytes())
    assert [line for line in first.splitlines() if line.startswith(b"=")] == [
        line for line in armoured(rpm_keys[0]).splitlines() if line.startswith(b"=")
    ]


@pytest.mark.parametrize("cut", [1, 10, 50])
def test_a_damaged_certificate_is_refused(rpm_keys: Keys, cut: int) -> None:
    with pytest.raises(WorkError, match="damaged"):
        armour(rpm_keys[0].certificate.read_bytes()[:-cut])
    with pytest.raises(WorkError, match="damaged"):
        armour(b"\x00" * cut)
