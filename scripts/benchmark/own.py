# SPDX-License-Identifier: Apache-2.0
"""What only imagebuilder is measured by: one function a row, from a bed to figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.pipeline import settled_lock
from imagebuilder.steps.placed import is_boot_file
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.bed import ADDED, Asked, Bed, Place, add_package
from scripts.benchmark.compare import (
    another_environment,
    differing_parts,
    differing_paths,
    on_another,
)
from scripts.benchmark.figures import Figure
from scripts.benchmark.fleet import measure_run, measure_status, measure_status_memory

SHORT_RUNS, VERSIONS, SHOWN = 10, 10, 10


def measure_plan(bed: Bed, asked: Asked) -> list[Figure]:
    """A plan."""
    place = bed.first(asked.small).place
    with bed.ui.step(f"plan {asked.small}, {SHORT_RUNS} times"):
        # Once before, so that bytecode and caches are as ever.
        place("plan", asked.small)
        seconds = tuple(place.seconds("plan", asked.small) for _ in range(SHORT_RUNS))
    return [Figure("plan", asked.small, seconds)]


def measure_file(bed: Bed, asked: Asked) -> list[Figure]:
    """A changed file until there is a new image."""
    profile = asked.largest
    place = bed.copy(bed.first(profile).place, "file")
    seconds: list[float] = []
    for number in range(asked.runs):
        with bed.ui.step(f"{profile} with a changed file, run {number + 1}"):
            seconds.append(build_changed(place, profile, number))
    return [Figure("file", profile, tuple(seconds))]


def build_changed(place: Place, profile: str, number: int) -> float:
    """Change one file of the last overlay and build; seconds.  Raises WorkError."""
    path = changing_file(place, profile)
    path.write_text(f"{path.read_text()}# version {number} of the benchmark\n")
    os.sync()
    before = {image.name for image in place.store.images()}
    seconds = place.seconds("build", profile, "--locked")
    if len({image.name for image in place.store.images()} - before) != 1:
        raise WorkError(f"{path.name} was changed, and no new image of {profile} was made")
    return seconds


def changing_file(place: Place, profile: str) -> Path:
    """A file in the last overlay of a profile that its root has and its initrd does not."""
    overlay = place.recipe(profile).overlays[-1]
    for target in sorted(f.target for f in overlay.files if not is_boot_file(f.target)):
        path = overlay.path / f"files{target}"
        for candidate in (path, path.with_name(f"{path.name}.j2")):
            if candidate.is_file():
                return candidate
    raise WorkError(f"overlay {overlay.name} places no file")


def measure_package(bed: Bed, asked: Asked) -> list[Figure]:
    """A package more in the middle overlay: which steps are planned anew."""
    place = bed.copy(bed.first(asked.small).place, "package")
    overlays = place.recipe(asked.small).overlays
    middle = overlays[len(overlays) // 2]
    add_package(middle.path / "overlay.yaml", ADDED)
    with bed.ui.step(f"lock {asked.small} with {ADDED} in {middle.name}"):
        settled_lock(place.recipe(asked.small), place.settings, bed.ui, refresh=True)
    steps = place.ask("plan", asked.small)["steps"]
    assert isinstance(steps, list)
    wrong = planned_wrongly(steps, f"packages {middle.name}")
    with bed.ui.step(f"{asked.small} with a package more"):
        seconds = place.seconds("build", asked.small, "--locked")
    return [
        Figure(
            "package", asked.small, (float(len(wrong)),),
            parts={"build, with fetching the package, s": (seconds,)},
            note=f"{ADDED} in {middle.name}"
            + (f"; planned wrongly: {', '.join(wrong)}" if wrong else ""),
        )
    ]  # fmt: skip


def planned_wrongly(steps: Sequence[Mapping[str, Json]], changed: str) -> list[str]:
    """The titles of steps below `changed` that are built, and of those from it on that are not."""
    titles = [str(step["title"]) for step in steps]
    if changed not in titles:
        return [changed]
    first = titles.index(changed)
    return [
        title
        for number, (title, step) in enumerate(zip(titles, steps, strict=True))
        if step["action"] != ("BUILD" if number >= first else "REUSE")
    ]


def measure_publish(bed: Bed, asked: Asked) -> list[Figure]:
    """A first release in an empty tree on the store's filesystem."""
    profile = asked.largest
    place, tree = bed.first(profile).place, bed.top / "work/tree"
    seconds: list[float] = []
    for number in range(asked.runs):
        remove_tree(tree)
        os.sync()
        with bed.ui.step(f"publish {profile}, run {number + 1}"):
            seconds.append(place.seconds("publish", profile, "--tree", os.fspath(tree)))
    remove_tree(tree)
    return [Figure("publish", profile, tuple(seconds))]


def measure_promote(bed: Bed, asked: Asked) -> list[Figure]:
    """A channel moved to and fro between two releases."""
    place, tree = bed.copy(bed.first(asked.small).place, "promote"), bed.top / "work/tree"
    remove_tree(tree)
    words = ("--tree", os.fspath(tree))
    place("publish", asked.small, *words)
    untested = ("--untested", "a benchmark boots nothing")
    place("promote", asked.small, *untested, *words)
    build_changed(place, asked.small, 0)
    place("publish", asked.small, *words)
    with bed.ui.step(f"promote and rollback {asked.small}, {SHORT_RUNS} times"):
        moves = [
            place.seconds(*verb, asked.small, *words)
            for _ in range(SHORT_RUNS)
            for verb in (("promote", *untested), ("rollback",))
        ]
    remove_tree(tree)
    return [Figure("promote", asked.small, tuple(moves))]


def measure_memory(bed: Bed, asked: Asked) -> list[Figure]:
    """Peaks of the first builds."""
    firsts = {profile: bed.first(profile) for profile in asked.profiles}
    return [
        Figure(
            "memory", profile, ((first.program + first.sandboxes) / 1e6,),
            parts={
                "the program, MB": (first.program / 1e6,),
                "first processes of sandboxes, MB": (first.sandboxes / 1e6,),
            },
        )
        for profile, first in firsts.items()
    ]  # fmt: skip


def measure_size(bed: Bed, asked: Asked) -> list[Figure]:
    """Ten versions against one."""
    place = bed.copy(bed.first(asked.small).place, "size")
    one = place.store.size()
    with bed.ui.step(f"{VERSIONS - 1} more versions of {asked.small}"):
        for number in range(1, VERSIONS):
            build_changed(place, asked.small, number)
    ten = place.store.size()
    sizes = {"one, MB": (one / 1e6,), "ten, MB": (ten / 1e6,)}
    return [Figure("size", asked.small, (ten / one,), parts=sizes)]


def measure_same(bed: Bed, asked: Asked) -> list[Figure]:
    """The same lock as another builder would build it."""
    return [build_on_another(bed, profile) for profile in asked.profiles]


def build_on_another(bed: Bed, profile: str) -> Figure:
    """What differs between the first build of a profile and one under other conditions."""
    first = bed.first(profile).place.image(profile)
    place = bed.fresh("another")
    with bed.ui.step(f"{profile} as another builder makes it"):
        argv = on_another(place.argv("build", profile, "--locked"))
        place.run(argv, **another_environment(bed.top / "states/another.tmp"))
    other = place.image(profile)
    different = differing_parts(first.manifest, other.manifest)
    paths = differing_paths(first, other) if "root" in different else ()
    note = f"root {first.root[:16]}" if not different else f"{', '.join(different)} differ"
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    place.drop()
    return Figure(
        "same", profile, (float(len(different)),),
        note=note + (f": {', '.join(paths[:SHOWN])}{more}" if paths else ""),
    )  # fmt: skip


ROWS: Mapping[str, Callable[[Bed, Asked], list[Figure]]] = {
    "plan": measure_plan,
    "size": measure_size,
    "package": measure_package,
    "memory": measure_memory,
    "file": measure_file,
    "publish": measure_publish,
    "promote": measure_promote,
    "same": measure_same,
    "status": measure_status,
    "status-memory": measure_status_memory,
    "run": measure_run,
}


def clean(bed: Bed, name: str) -> None:
    """Drop the copy that a row worked in."""
    for folder in (name, f"{name}.project", "another", "another.tmp"):
        remove_tree(bed.top / "states" / folder)


# Seconds of a row, by earlier runs on two cores; of the large profile, its first build besides.
ROW_SECONDS: Mapping[str, float] = {
    "size": 40, "package": 30, "same": 50, "memory": 40, "status": 90, "run": 300,
}  # fmt: skip
FIRST_SECONDS, LARGE_SECONDS = 45, 240


def estimate(rows: Sequence[str], runs: int, *, large: bool) -> float:
    """Seconds that `rows` take."""
    seconds = sum(ROW_SECONDS.get(name, 8.0 * runs) for name in rows)
    return seconds + FIRST_SECONDS + LARGE_SECONDS * large
