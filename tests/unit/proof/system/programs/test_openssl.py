# SPDX-License-Identifier: Apache-2.0
"""Settings with which OpenSSL fails, on answers of openssl(1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.process import Completed
from imagebuilder.proof.system.programs.helpers import OPENSSL, prove_openssl
from tests.unit.proof.trees import Content, Link, Program, Sandbox, faults, make_tree, subject

CONF = "/etc/ssl/openssl.cnf"
FILES: Mapping[str, Content] = {
    OPENSSL: Program(),
    "/usr/lib/ssl/openssl.cnf": Link(CONF),
    CONF: "[provider_sect]\ndefault = default_sect\n",
}
RAND, DGST, CIPHERS = f"{OPENSSL} rand", f"{OPENSSL} dgst", f"{OPENSSL} ciphers"
GOOD: Mapping[str, Completed | str] = {
    RAND: "fad7203d59c8b504\n",
    DGST: "SHA2-256(/dev/null)= e3b0c442\n",
    CIPHERS: "TLS_AES_256_GCM_SHA384\n",
    **{
        f"env OPENSSL_CONF=/dev/null {OPENSSL} {word}": "good\n"
        for word in ("rand", "dgst", "ciphers")
    },
    f"env OPENSSL_CONF=/dev/null {OPENSSL} version -d": 'OPENSSLDIR: "/usr/lib/ssl"\n',
}
NO_DRBG = Completed(
    1,
    "",
    "40A726C4FB7F0000:error:0308010C:digital envelope routines:inner_evp_generic_fetch:unsupported:"
    "../crypto/evp/evp_fetch.c:376:Global default library context, Algorithm (CTR-DRBG : 0), "
    "Properties (fips=yes)\n"
    "40A726C4FB7F0000:error:12000090:random number generator:rand_new_drbg:unable to fetch drbg:"
    "../crypto/rand/rand_lib.c:664:\n",
)
NO_CONTEXT = Completed(
    1,
    "",
    "40378838E87F0000:error:0A000180:SSL routines:SSL_CONF_cmd:bad value:../ssl/ssl_conf.c:999:"
    "cmd=MinProtocol, value=TLSv1.9\n",
)
NO_START = Completed(1, "", "FATAL: Startup failure\n")
ALL_FAIL = {RAND: NO_DRBG, DGST: NO_DRBG, CIPHERS: NO_DRBG}
# The sandbox does not let it work, whatever the settings say.
ALONE = {f"env OPENSSL_CONF=/dev/null {OPENSSL} rand": NO_START}


@pytest.mark.parametrize(
    ("answers", "files", "said"),
    [
        ({}, {}, ""),
        (
            ALL_FAIL,
            {},
            f"OpenSSL fails with {CONF}: sshd and every other program that uses it have no random "
            "numbers, no hashes, no TLS: inner_evp_generic_fetch: unsupported: Global default "
            "library context, Algorithm (CTR-DRBG : 0), Properties (fips=yes)",
        ),
        (
            {CIPHERS: NO_CONTEXT},
            {},
            f"OpenSSL fails with {CONF}: sshd and every other program that uses it have no TLS: "
            "SSL_CONF_cmd: bad value: cmd=MinProtocol, value=TLSv1.9",
        ),
        (
            {RAND: NO_DRBG},
            {CONF: "[a]\n# default_properties = x\ndefault_properties = fips=yes # strict\n"},
            f"with {CONF}, which asks for fips=yes: sshd and every other program that uses it have "
            "no random numbers: inner_evp",
        ),
        ({RAND: NO_START}, {}, "no random numbers: FATAL: Startup failure"),
        # Not in the image, not executable, or too slow.
        ({RAND: Completed(127, "", ""), DGST: Completed(126, "", "")}, {}, ""),
        ({RAND: Completed(124, "", "", late=True)}, {}, ""),
        (ALL_FAIL | ALONE, {}, ""),
        # A provider of somebody else, which may look for its device.
        (
            ALL_FAIL,
            {
                "/usr/lib/x86_64-linux-gnu/ossl-modules/tpm2.so": "",
                CONF: "[provider_sect]\ntpm2 = tpm2_sect\n",
            },
            "",
        ),
        (
            ALL_FAIL,
            {
                "/usr/lib/x86_64-linux-gnu/ossl-modules/fips.so": "",
                "/usr/lib/x86_64-linux-gnu/ossl-modules/tpm2.so": "",
                CONF: "[provider_sect]\nfips = fips_sect\n",
            },
            "no hashes",
        ),
        # Nobody has settings to blame.
        (ALL_FAIL, {"/usr/lib/ssl/openssl.cnf": Link("/etc/ssl/gone.cnf")}, ""),
    ],
)
def test_settings_with_which_nothing_works(
    answers: Mapping[str, Completed | str],
    files: Mapping[str, Content],
    said: str,
    tmp_path: Path,
) -> None:
    given = subject(make_tree(tmp_path, {**FILES, **files}), run=Sandbox({**GOOD, **answers}))
    found = faults(prove_openssl(given))
    assert any(said in what for what in found) if said else not found


def test_an_image_without_openssl_is_not_asked(tmp_path: Path) -> None:
    sandbox = Sandbox(ALL_FAIL)
    assert not list(prove_openssl(subject(make_tree(tmp_path, {CONF: ""}), run=sandbox)))
    assert not sandbox.asked
