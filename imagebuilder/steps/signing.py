# SPDX-License-Identifier: Apache-2.0
"""Sign the kernel modules that a build made with the site's key, outside of the sandbox.

The format is that of scripts/sign-file.c and include/linux/module_signature.h of Linux: the module,
a detached CMS signature without attributes, 12 bytes that describe it, and a magic line.  An RSA
signature of this form contains neither a time nor a random number, so equal modules stay equal.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import HostError, WorkError
from imagebuilder.files import read_text, write_file
from imagebuilder.process import check_tools, run
from imagebuilder.recipe.types import ModuleSigning
from imagebuilder.steps.placed import changed
from imagebuilder.store.upper import walk

MAGIC = b"~Module signature appended~\n"
PKCS7 = 2  # PKEY_ID_PKCS7; the other fields of struct module_signature are zero for it
# Built into every kernel that verifies modules: distributions sign theirs with it or a longer one.
HASH = "sha256"
# A key with a password would wait for somebody to type it.
NO_PASSWORD = ("-passin", "pass:")
CERTIFICATE = "usr/share/imagebuilder/module-signing.der"


def check_signing(signing: ModuleSigning) -> None:
    """Raise HostError unless this host can sign with the key, and the key is the certificate's."""
    check_tools("openssl")
    where = os.fspath(signing.key)
    private = run(["openssl", "rsa", "-in", signing.key, *NO_PASSWORD, "-pubout"], check=False)
    if private.status != 0:
        raise HostError(
            "cannot sign modules: it is not a readable RSA key without a password",
            where=where,
            hint="it is `module-signing: key` of the site file; keys of other kinds sign "
            "differently each time, so no build could be reproduced",
        )
    public = run(["openssl", "x509", "-in", signing.certificate, "-noout", "-pubkey"])
    if public.stdout.strip() != private.stdout.strip():
        raise HostError(
            f"is not the key of the certificate {signing.certificate}",
            where=where,
            hint="name the key and the certificate that were made together",
        )


def sign_modules(result: Path, signing: ModuleSigning) -> int:
    """Sign every uncompressed module below `result` that has no signature; how many were signed.

    Beside them it puts the certificate, in the form that mokutil(1) takes.
    """
    import ssl  # loads OpenSSL, and every plan imports this module

    with TemporaryDirectory() as scratch:
        signed = sum(sign(path, signing, Path(scratch)) for path in find_modules(result))
    if signed:
        place = result / CERTIFICATE
        check_folders(result, place.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        der = ssl.PEM_cert_to_DER_cert(read_text(signing.certificate))
        if digest_of_bytes(der) != signing.digest:
            raise changed(signing.certificate)
        write_file(place, der)
    return signed


def check_folders(result: Path, folder: Path) -> None:
    """Raise WorkError if a link of the build lies on the way from `result` to `folder`.

    It would lead to a folder of the host.
    """
    for path in (folder, *folder.parents):
        if path == result:
            return
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
            raise WorkError(
                f"the build has left /{path.relative_to(result)}, which is not a folder",
                hint="its program must make folders there, and no links",
            )


def find_modules(result: Path) -> Iterator[Path]:
    """The modules below `result`: regular files, so that no link leads out of it."""
    for path, status in walk(result):
        if path.name.endswith(".ko") and stat.S_ISREG(status.st_mode):
            yield path


def sign(path: Path, signing: ModuleSigning, scratch: Path) -> bool:
    """Append a signature to one module; False where it has one."""
    module = path.read_bytes()
    if module.endswith(MAGIC):
        return False
    signature = scratch / "signature"
    run(
        [
            "openssl", "cms", "-sign", "-binary", "-noattr", "-nocerts", "-md", HASH,
            "-signer", signing.certificate, "-inkey", signing.key, *NO_PASSWORD,
            "-in", path, "-outform", "DER", "-out", signature,
        ]
    )  # fmt: skip
    content = signature.read_bytes()
    path.write_bytes(module + content + struct.pack(">2xB5xI", PKCS7, len(content)) + MAGIC)
    return True
