# SPDX-License-Identifier: Apache-2.0
"""The site's key for kernel modules, as the site file names it."""

from __future__ import annotations

from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import Fault
from imagebuilder.files import read_plain
from imagebuilder.recipe.places import find_key_file
from imagebuilder.recipe.read import LoadedSite
from imagebuilder.recipe.types import ModuleSigning
from imagebuilder.settings import Settings

HOW = (
    "make both with: openssl req -new -x509 -newkey rsa:4096 -noenc -days 3650 "
    "-subj '/CN=Kernel modules' -keyout module-signing.key -out module-signing.pem"
)


def load_signing(site: LoadedSite, settings: Settings, faults: list[Fault]) -> ModuleSigning | None:
    """The key and its certificate; None if the site file does not name them.

    Reads only the certificate: the key may be readable by root alone, and only a build needs it.
    """
    model = site.file.module_signing
    if model is None or site.document is None:
        return None
    key = find_key_file(model.key, site.home, settings.site)
    certificate = find_key_file(model.certificate, site.home, settings.site)
    path = ("module-signing", "certificate")
    if key is None or certificate is None:
        what = "a key and its certificate go together: one of them is empty"
        faults.append(site.document.fault(("module-signing",), what, HOW, of_key=True))
        return None
    import ssl  # loads OpenSSL, for the few sites that sign modules

    try:
        der = ssl.PEM_cert_to_DER_cert(read_plain(certificate).decode("ascii"))
    except OSError as error:
        what = f"cannot read {certificate}: {error.strerror}"
        faults.append(site.document.fault(path, what, HOW))
        return None
    except ValueError:
        what = f"{certificate} is not an X.509 certificate in PEM form"
        faults.append(site.document.fault(path, what, HOW))
        return None
    return ModuleSigning(key, certificate, digest_of_bytes(der))
