# SPDX-License-Identifier: Apache-2.0
"""Whether packages are signed with the key of their source, by rpm's own judgement.

rpmkeys(8) calls a package without a signature as good as its digests, so what it says of each
signature and digest is read.  The lock has the sha256 of every file; this is about who made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.families.hints import distrusted
from imagebuilder.families.rpm.header import read_package_header
from imagebuilder.families.rpm.keys import armour, load_certificates
from imagebuilder.files import scratch
from imagebuilder.lock.types import LockedPackage
from imagebuilder.process import Completed, run
from imagebuilder.recipe.types import Source
from imagebuilder.untrusted import fit

# What an rpm that uses Sequoia may accept (rpm-sequoia, "Configuration").  The certificates of
# Enterprise Linux 9 bind their own user IDs by SHA-1, which is safe: it takes a second preimage to
# forge that.  Signatures of packages by SHA-1 are refused below, whoever reads them.
POLICY = '[hash_algorithms]\nsha1.second_preimage_resistance = "always"\n'
# A signature and a digest must be there and right: `all` of RPM's levels (macros.in of rpm).
LEVEL = ("_pkgverify_level all", "_pkgverify_flags 0x0")
BATCH, AT_ONCE = 64, 2
# Lines below a file's name; rpm 4.20 and 6 say more words.
LINE = re.compile(r"    (\S.*): ([A-Z]+(?: [A-Z]+)*)(?: \(.*\))?")
SIGNED = re.compile(
    r"(Header )?(?:Legacy )?(?:OpenPGP )?V\d \w+/(\w+) signature, key (?:ID|fingerprint):? \w+",
    re.IGNORECASE,
)
PAYLOAD = re.compile(r"Payload SHA(?:256|512|3-256|3-512) digest", re.IGNORECASE)
# What a line may say: NOTFOUND is of kinds of signatures that nobody makes any more.
HARMLESS = frozenset(("OK", "NOTFOUND"))
UNSAFE = frozenset(("MD5", "SHA1", "RIPEMD160"))
REASONS = {
    "NOKEY": "it is signed with another key",
    "NOTTRUSTED": "its key is not trusted",
    "BAD": "it was changed after it was signed",
}


@dataclass(frozen=True)
class RpmKeyring:
    """A keyring of rpm with the certificates of one source, and what rpm reads beside it."""

    folder: Path

    @property
    def words(self) -> list[str]:
        """What every command begins with."""
        defines = (f"_keyringpath {self.folder}/pubkeys/", *LEVEL)
        options = [word for define in defines for word in ("--define", define)]
        return ["rpmkeys", *options, "--dbpath", f"{self.folder}/db"]

    @property
    def environment(self) -> dict[str, str]:
        """No macros of a user; rpm on Debian needs to be told that it is meant."""
        return {
            "HOME": f"{self.folder}",
            "RPM_FORCE_DEBIAN": "1",
            "RPM_SEQUOIA_CRYPTO_POLICY": f"{self.folder}/sequoia.config",
        }

    def run(self, *words: str | Path) -> Completed:
        return run([*self.words, *words], env=self.environment, check=False)


@contextmanager
def make_keyring(source: Source, top: Path) -> Iterator[RpmKeyring]:
    """A keyring of `source` below `top`, gone at the end.

    Raises HostError if rpm is not installed and as load_certificates(), InputError for a
    certificate that rpm does not accept.
    """
    certificates = load_certificates(source)
    with scratch(top, "rpmkeys-") as folder:
        made = RpmKeyring(folder)
        (folder / "sequoia.config").write_text(POLICY)
        key = folder / "key.asc"
        key.write_bytes(armour(certificates))
        done = made.run("--import", key)
        if done.status != 0:
            said = "".join(f"\n    {fit(line)}" for line in done.stderr.splitlines()[-4:])
            raise InputError(
                f"rpm does not accept the key{said}",
                where=f"source {source.id}: key {source.key}",
                hint="use a newer key of the vendor, or a newer rpm on this host",
            )
        yield made


def check_signed(
    files: Sequence[tuple[Path, LockedPackage]], sources: Mapping[str, Source], top: Path
) -> None:
    """Raise WorkError for faults of signatures; otherwise as signature_faults()."""
    if faults := signature_faults(files, sources, top):
        raise WorkError.of(faults.values())


def signature_faults(
    files: Sequence[tuple[Path, LockedPackage]], sources: Mapping[str, Source], top: Path
) -> dict[Path, Fault]:
    """Files that are not signed by their source, or are not the locked package, and why.

    `sources` are those of the recipe by id; keyrings are made below `top`.  An index that nobody
    signs may call an old package new: so the name and version in the signed header count.
    Signatures by keys that have expired since are valid, as for every other package manager: old
    packages keep theirs.  Raises as make_keyring(), and WorkError for what is no package.
    """
    faults: dict[Path, Fault] = {}
    for name in dict.fromkeys(package.source for _, package in files):
        of_source = [(path, package) for path, package in files if package.source == name]
        with make_keyring(sources[name], top) as keyring:
            problems = find_problems(keyring, [path for path, _ in of_source])
        for path, package in of_source:
            if problem := problems.get(path):
                what = f"{package.nevra} is not a package of its source: {problem}"
                faults[path] = Fault(f"source {name}", what, distrusted(sources[name]))
            elif fault := misnamed(path, package):
                faults[path] = fault
    return faults


def find_problems(keyring: RpmKeyring, paths: Sequence[Path]) -> dict[Path, str]:
    """What is wrong with the signatures of files, by their paths."""
    batches = [paths[at : at + BATCH] for at in range(0, len(paths), BATCH)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(lambda batch: problems_of(keyring, batch), batches)
        return {path: problem for problems in found for path, problem in problems.items()}


def problems_of(keyring: RpmKeyring, paths: Sequence[Path]) -> dict[Path, str]:
    """The same of some files, in one process if all are right.

    A wrong file may print lines about another: then each is verified on its own.
    """
    done = keyring.run("--checksig", "--verbose", "--", *paths)
    if done.status == 0 and not any(problem_in(done.stdout, path) for path in paths):
        return {}
    each = {path: keyring.run("--checksig", "--verbose", "--", path) for path in paths}
    problems = {path: problem_of(path, one) for path, one in each.items()}
    return {path: problem for path, problem in problems.items() if problem}


def problem_of(path: Path, done: Completed) -> str:
    """What is wrong with a file that was verified on its own; "" if nothing is."""
    problem = problem_in(done.stdout, path)
    if done.status == 0 or problem:
        return problem
    return f"rpm refuses it: {fit((done.stderr.splitlines() or ['no reason given'])[-1])}"


def problem_in(said: str, path: Path) -> str:
    """What is wrong with a file according to what rpmkeys said; "" if nothing is."""
    lines = said.splitlines()
    if lines.count(f"{path}:") != 1:
        return "it is not a package" if lines.count(f"{path}:") == 0 else "it is damaged"
    verdicts = list(verdicts_of(lines[lines.index(f"{path}:") + 1 :]))
    if not verdicts:
        return "it is damaged"
    bad = [verdict for _, verdict in verdicts if verdict not in HARMLESS]
    for verdict in (*REASONS, *bad):
        if verdict in bad:
            return REASONS.get(verdict, f"rpm says {verdict}")
    right = [what for what, verdict in verdicts if verdict == "OK"]
    signed = [match for what in right if (match := SIGNED.fullmatch(what))]
    if not signed:
        return "it is not signed"
    if weak := [match[2] for match in signed if match[2].upper() in UNSAFE]:
        return f"it is signed by means of {weak[0]}, which can be forged"
    # A signature of the header covers the payload by a digest in the header.
    if all(match[1] for match in signed) and not any(map(PAYLOAD.fullmatch, right)):
        return "its signature does not cover its content"
    return ""


def verdicts_of(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What was verified and the verdict, of the lines up to the next file."""
    for line in lines:
        match = LINE.fullmatch(line)
        if not match:
            return
        yield match[1], match[2]


def misnamed(path: Path, package: LockedPackage) -> Fault | None:
    """The fault of a file whose header names another package than the lock."""
    where = f"source {package.source}"
    header = read_package_header(path)
    try:
        found = (header.name, header.evr, header.architecture)
    except ValueError as error:
        return Fault(where, f"{package.nevra} has a damaged header: {error}")
    if found == (package.name, package.version.removeprefix("0:"), package.architecture):
        return None
    return Fault(
        where,
        f"the file of {package.nevra} is the package {fit(f'{found[0]}={found[1]}:{found[2]}')}",
        "the index of the repository is wrong, or somebody offers an old package as a new one: "
        "use another mirror, and lock again",
    )
