# SPDX-License-Identifier: Apache-2.0
"""Whether OpenSSL works with the settings in the image.

openssl.cnf(5) applies to every program with libcrypto: sshd, curl, Python.  If it asks for
providers or properties that are not there, none of them has a hash or a random number.  The image's
own openssl(1) tells; it also runs without that file, so that only the file can be the cause.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.process import Completed
from imagebuilder.proof.say import prove_answered
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

OPENSSL = "/usr/bin/openssl"
# What fails without each command.  The last one makes a context for TLS.
NEEDED = {
    "random numbers": ("rand", "-hex", "8"),
    "hashes": ("dgst", "-sha256", "/dev/null"),
    "TLS": ("ciphers",),
}
WITHOUT = "OPENSSL_CONF=/dev/null"
FOLDER = re.compile(r'^OPENSSLDIR: "(/[^"]+)"', re.MULTILINE)
SETTINGS = "openssl.cnf"
# PROCESS:error:CODE:LIBRARY:FUNCTION:REASON:FILE:LINE:DATA (ERR_print_errors(3)).
ERROR = re.compile(
    r"^[^:\n]+:error:[0-9A-F]+:[^:\n]*:(?P<where>[^:\n]*):(?P<why>[^:\n]*):[^:\n]*:\d+:(?P<data>.*)",
    re.MULTILINE,
)
# Which algorithms programs get, if they do not ask for others (fips_module(7)).
PROPERTIES = re.compile(r"^[ \t]*default_properties\s*=\s*(?P<value>[^#\n]*[^#\s])", re.MULTILINE)
# Modules of others may look for their device when they load, and there is none in the sandbox.
MODULES = ("/usr/lib/*/ossl-modules/*.so", "/usr/lib/*/engines-*/*.so")
OWN = frozenset(("legacy", "fips", "afalg", "capi", "loader_attic", "padlock"))
# Statuses of sh(1) and env(1): not executable, not found.
BROKEN = (126, 127)


def prove_openssl(subject: Subject) -> Iterator[Finding]:
    """A fault if OpenSSL fails with its settings, and works without them."""
    if not subject.root.is_file(OPENSSL):
        return
    answers = {what: subject.run([OPENSSL, *words]) for what, words in NEEDED.items()}
    for done in answers.values():
        if done.late:
            yield from prove_answered(SAY, done, "whether OpenSSL works", Evidence(OPENSSL))
    failed = {what: done for what, done in answers.items() if fails(done)}
    alone = [subject.run(["env", WITHOUT, OPENSSL, *NEEDED[what]]) for what in failed]
    path = settings_of(subject) if failed else None
    if path is None or any(done.status for done in alone) or names_others(subject.root, path):
        return
    why = next((found for done in failed.values() if (found := error_of(done))), "no error")
    properties = PROPERTIES.search(subject.root.text(path))
    asks = f", which asks for {properties['value']}" if properties else ""
    yield SAY.fault(
        f"OpenSSL fails with {path}{asks}: sshd and every other program that uses it have no "
        f"{', no '.join(failed)}: {why}",
        Evidence(path, said=properties[0].strip() if properties else why),
        hint="correct that file, or install the provider that it names; `openssl list -providers` "
        "lists the active ones",
    )


def fails(done: Completed) -> bool:
    """Whether a command ran to its end, and failed."""
    return done.status != 0 and done.status not in BROKEN and not done.late


def settings_of(subject: Subject) -> str | None:
    """The file that this OpenSSL reads, None if there is none."""
    folder = FOLDER.search(subject.run(["env", WITHOUT, OPENSSL, "version", "-d"]).stdout)
    return subject.root.resolve(f"{folder[1]}/{SETTINGS}") if folder else None


def error_of(done: Completed) -> str:
    """OpenSSL's first error, "" if it printed none: function, reason and data."""
    if match := ERROR.search(done.stderr):
        return ": ".join(filter(None, (match["where"], match["why"], match["data"].strip())))
    return next(iter(done.stderr.strip().splitlines()), "")


def names_others(root: Root, path: str) -> bool:
    """Whether the settings name a module in the image that is not OpenSSL's own."""
    found = set(map(posixpath.basename, root.glob(*MODULES)))
    words = set(re.findall(r"[\w-]+", root.text(path)))
    return bool(({name.removesuffix(".so") for name in found} - OWN) & words)
