# SPDX-License-Identifier: Apache-2.0
"""Profiles of TuneD that it does not find: it runs, and tunes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.site import services_of
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

ACTIVE = "/etc/tuned/active_profile"
# Since 2.23 in folders of their own (redhat-performance/tuned, tuned/consts.py: LOAD_DIRECTORIES).
NEW = ("/etc/tuned/profiles", "/usr/lib/tuned/profiles")
OLD = ("/etc/tuned", "/usr/lib/tuned")
INCLUDE = re.compile(r"^[ \t]*include[ \t]*=[ \t]*(?P<names>[^#\n]+)", re.MULTILINE)
MOST = 20  # profiles that include each other


def prove_tuning(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings of the active profile, and of those that it includes."""
    folders = profile_folders(subject.root)
    root = subject.root
    todo = root.text(ACTIVE).split()
    where = Evidence(ACTIVE, said=" ".join(todo))
    service = next(services_of(subject, startup, "tuned"), None)
    if service is None or not folders:
        return
    seen: set[str] = set()
    places = {name: where for name in todo}
    while todo and len(seen) < MOST:
        name = todo.pop(0)
        if name in seen or "$" in name:
            continue
        seen.add(name)
        paths = (f"{folder}/{name}/tuned.conf" for folder in folders)
        path = next(filter(root.is_file, paths), "")
        for found in INCLUDE.finditer(root.text(path)) if path else ():
            more = [each.lstrip("-") for each in re.split(r"[,;\s]+", found["names"].strip())]
            optional = re.findall(r"-(\S+?)(?=[,;\s]|$)", found["names"])
            more = [each for each in more if each and each not in optional]
            places |= {each: Evidence(path, said=found[0].strip()) for each in more}
            todo += more
        if not path:
            others = (f"{folder}/{name}/tuned.conf" for folder in {*OLD, *NEW} - {*folders})
            other = next(filter(root.is_file, others), "")
            what = f"{service.name} tunes nothing: the profile {name} is not in "
            what += " or ".join(folders)
            what += f", but {other} is in a folder of other releases of TuneD" if other else ""
            hint = f"put it into {folders[0]}/{name}" if other else "install or correct the profile"
            yield SAY.warning(what, places[name], hint=hint)


def profile_folders(root: Root) -> tuple[str, ...]:
    """Where this TuneD looks for profiles, by its own ones; none if it has none."""
    for folders in (NEW, OLD):
        if root.glob(f"{folders[1]}/*/tuned.conf"):
            return folders
    return ()
