# SPDX-License-Identifier: Apache-2.0
"""The user's ssh keys, and the OpenPGP certificates that sign a vendor's packages."""

from __future__ import annotations

import base64
import binascii
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder import process
from imagebuilder.errors import Fault, InputError
from imagebuilder.files import read_plain
from imagebuilder.phrases import quote
from imagebuilder.plain import is_special
from imagebuilder.recipe.positions import Document
from imagebuilder.recipe.types import Source

KEYS_VAR = "ssh_authorized_keys"
SSH_TYPES = (
    "ssh-ed25519", "ssh-rsa",
    "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip
KEY_FORM = "a public key is one line: `ssh-ed25519 AAAA... name`"
BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = b"-----END PGP PUBLIC KEY BLOCK-----"


def ssh_key_problem(line: str) -> str:
    """What is wrong with a line of authorized_keys(5) without options; empty if nothing is."""
    words = line.split()
    if "PRIVATE KEY" in line:
        return "is a private key"
    if not words or words[0] not in SSH_TYPES:
        return "is not an ssh public key"
    if "\n" in line.strip():
        return "has more than one line"
    try:
        blob = base64.b64decode(words[1] if len(words) > 1 else "", validate=True)
    except (binascii.Error, ValueError):
        return "is damaged: its second word is not base64"
    # RFC 4253 6.6: the blob starts with the length and name of its type.
    name = words[0].encode()
    if blob[:4] != len(name).to_bytes(4, "big") or blob[4 : 4 + len(name)] != name:
        return f"is damaged: it does not contain a key of type {words[0]}"
    return "" if len(blob) > len(name) + 4 + 32 else "is damaged: it is truncated"


def load_site_keys(
    site: Document | None, entries: list[str], home: Path, faults: list[Fault]
) -> list[str]:
    """The keys of the site file's `ssh-keys`, or else those of ~/.ssh/id_*.pub."""
    if site is None or not entries:
        paths = sorted((home / ".ssh").glob("id_*.pub")) if (home / ".ssh").is_dir() else []
        return [key for path in paths for key in load_key_file(path, faults)]
    keys: list[str] = []
    for index, entry in enumerate(entries):
        if not entry.startswith(("/", "~")):
            keys.append(entry.strip())
            if problem := ssh_key_problem(entry):
                faults.append(site.fault(("ssh-keys", index), problem, KEY_FORM))
            continue
        path = home / entry[2:] if entry.startswith("~/") else Path(entry)
        if path.is_file():
            keys.extend(load_key_file(path, faults))
        else:
            what = "is not a file" if is_special(path) else "does not exist"
            faults.append(site.fault(("ssh-keys", index), f"the file {path} {what}"))
    return keys


def load_key_file(path: Path, faults: list[Fault]) -> Iterator[str]:
    """The keys in a file, one per line, without comments and empty lines."""
    try:
        lines = read_plain(path).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        faults.append(Fault(str(path), "cannot be read as text", KEY_FORM))
        return
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if problem := ssh_key_problem(line):
            faults.append(Fault(f"{path}:{number}", problem, KEY_FORM))
            return
        yield line.strip()


def certificate_problem(
    path: Path, shown: str, pinned: Sequence[str], owner: str
) -> tuple[str, str, str] | None:
    """Key, what and hint unless the file has exactly the certificates with these fingerprints."""
    found = find_fingerprints(path)
    if not found:
        what = f"{shown} is not an OpenPGP certificate"
        return "key", what, "gpg --show-keys FILE must list it, and no secret key"
    if found == tuple(sorted(pinned)):
        return None
    what = f"{shown} has {', '.join(map(quote, found))}"
    return "fingerprints", what, f"compare with what {owner} publishes before changing either"


def find_fingerprints(path: Path) -> tuple[str, ...]:
    """fingerprints_of() a file, armoured or not; empty if it cannot be read."""
    try:
        return fingerprints_of(dearmoured(read_plain(path)))
    except OSError:
        return ()


def fingerprints_of(content: bytes) -> tuple[str, ...]:
    """Fingerprints of binary certificates (primary keys), sorted; may be empty.

    Takes the bytes that will be trusted, never the file: gpg and dearmoured() may find different
    blocks in a text.

    Reads what `gpg --with-colons` prints (doc/DETAILS of GnuPG): the `fpr` record after a `pub`
    record is the primary key's, those after `sub` are subkeys'.  Content with a secret key counts
    as having none.  Raises HostError when gpg is not installed.
    """
    if not content:
        return ()
    with tempfile.TemporaryDirectory(prefix="imagebuilder-gpg-") as home:
        done = process.run(
            ["gpg", "--batch", "--no-options", "--homedir", home, "--no-armor", "--show-keys",
             "--with-colons"],
            stdin=content,
            check=False,
        )  # fmt: skip
    if done.status != 0:
        return ()
    records = [line.split(":") for line in done.stdout.splitlines()]
    if any(record[0] in {"sec", "ssb"} for record in records):
        return ()
    found = [
        after[9]
        for record, after in itertools.pairwise(records)
        if record[0] == "pub" and after[0] == "fpr"
    ]
    return tuple(sorted(found))


def load_key(source: Source) -> bytes:
    """The certificates of a vendor's source, binary.

    Raises InputError if the file is missing, is not a certificate, or does not have exactly the
    fingerprints that the recipe pins.
    """
    where = f"source {source.id}: key {source.key}"
    try:
        content = dearmoured(read_plain(source.key))
        found = set(fingerprints_of(content))
    except OSError as error:
        raise InputError(f"{error.strerror}", where=where) from error
    if not found:
        raise InputError(
            "not an OpenPGP certificate",
            where=where,
            hint="save the vendor's key file there unchanged, armoured or binary",
        )
    wanted = set(source.fingerprints)
    if wanted and found != wanted:
        has, pinned = (", ".join(sorted(each)) for each in (found, wanted))
        raise InputError(
            f"the file has {has}, but the overlay pins {pinned}",
            where=where,
            hint="compare with what the vendor publishes elsewhere before changing either",
        )
    return content


def dearmoured(content: bytes) -> bytes:
    """`content` without ASCII armour; several blocks are joined; empty if one is damaged."""
    if BEGIN not in content:
        return content
    joined = b""
    for block in content.split(BEGIN)[1:]:
        lines = block.partition(END)[0].replace(b"\r", b"").partition(b"\n\n")[2].splitlines()
        # The last line may be a CRC-24, which starts with "=" and is not needed.
        text = b"".join(line for line in lines if not line.startswith(b"="))
        try:
            joined += base64.b64decode(text, validate=True)
        except binascii.Error:
            return b""
    return joined
