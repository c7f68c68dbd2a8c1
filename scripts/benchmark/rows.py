# SPDX-License-Identifier: Apache-2.0
"""One function a row: from a bed to figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import monotonic

from ruamel.yaml import YAML

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.pipeline import settled_lock
from imagebuilder.steps.generated import is_boot_file
from imagebuilder.store.workplace import remove_tree
from scripts.benchmark.bed import Asked, Bed, Place
from scripts.benchmark.compare import (
    another_environment,
    differing_parts,
    differing_paths,
    find,
    on_another,
)
from scripts.benchmark.figures import Figure, ratios
from scripts.benchmark.plain import (
    Order,
    Outcome,
    check_same_work,
    make_order,
    outcome_of,
    run_plain,
)

SMALL, LARGE = "generic", "rx7600xt"
PLAIN = ("mmdebstrap", "debootstrap")
SHORT_RUNS, VERSIONS, SHOWN = 10, 10, 10
# A package of no dependencies that no overlay names.
ADDED = "tree"


@dataclass(frozen=True)
class Spent:
    """What something took: seconds on the clock, and of all processors (ours and its programs')."""

    wall: float
    cpu: float


def measure_cold(bed: Bed, asked: Asked, engines: Sequence[str]) -> list[Figure]:
    """Cold builds and plain engines in turns."""
    main = bed.fresh("main")
    order_folder = bed.top / "work/order"
    remove_tree(order_folder)
    order = make_order(main.recipe(SMALL), main.lock(SMALL), main.state / "debs", order_folder)
    ours: list[Spent] = []
    plain: dict[str, list[Spent]] = {engine: [] for engine in engines}
    faults: dict[str, str] = {}
    for number in range(1, asked.runs + 1):
        with bed.ui.step(f"cold build of {SMALL}, run {number}"):
            spent, outcome = cold_build(bed)
        ours.append(spent)
        for engine in [name for name in engines if name not in faults]:
            with bed.ui.step(f"plain {engine} and dracut, run {number}"):
                try:
                    plain[engine].append(plain_build(bed, engine, order, outcome))
                except WorkError as error:
                    faults[engine] = str(error)
    return [compare(engine, ours, plain[engine], faults.get(engine, "")) for engine in engines]


def compare(engine: str, ours: Sequence[Spent], plain: Sequence[Spent], fault: str) -> Figure:
    """Cold builds against a plain engine, by the clock; processor time tells noise from work."""
    walls = {
        "imagebuilder": tuple(spent.wall for spent in ours),
        engine: tuple(spent.wall for spent in plain),
    }
    cpus = {
        "imagebuilder": tuple(spent.cpu for spent in ours),
        engine: tuple(spent.cpu for spent in plain),
    }
    return Figure(
        row=engine,
        subject=SMALL,
        values=ratios(walls["imagebuilder"][: len(plain)], walls[engine]),
        parts={f"{name}, s": values for name, values in walls.items()}
        | {f"{name}, processor s": values for name, values in cpus.items()},
        fault=fault,
    )


def cold_build(bed: Bed) -> tuple[Spent, Outcome]:
    """What a build into an empty store takes, and what it made."""
    place = bed.fresh("cold")
    # What was written before is written to disk on nobody's time.
    os.sync()
    spent = timed(lambda: place("build", SMALL, "--locked"))
    manifest = place.image(SMALL).manifest
    packages, size = manifest["packages"], find(manifest, ("kernel", "initrd", "size"))
    assert isinstance(packages, list)
    assert isinstance(size, int)
    vmlinuz = str(find(manifest, ("kernel", "vmlinuz", "sha256")))
    place.drop()
    return spent, Outcome(len(packages), vmlinuz, size)


def plain_build(bed: Bed, engine: str, order: Order, ours: Outcome) -> Spent:
    """What the same work takes without us."""
    root = bed.top / "work" / engine
    remove_tree(root)
    os.sync()
    spent = timed(lambda: run_plain(engine, order, root, bed.top / "logs" / f"{engine}.log"))
    check_same_work(ours, outcome_of(root), engine)
    remove_tree(root)
    return spent


def timed(work: Callable[[], object]) -> Spent:
    """Do the work, with the programs it starts and waits for."""
    start, before = monotonic(), getrusage(RUSAGE_CHILDREN)
    work()
    wall, after = monotonic() - start, getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu)


def measure_unchanged(bed: Bed, asked: Asked) -> list[Figure]:
    """A build that has nothing to do."""
    del asked
    return [repeat(bed, "unchanged", "build", SMALL, "--locked")]


def measure_plan(bed: Bed, asked: Asked) -> list[Figure]:
    """A plan."""
    del asked
    return [repeat(bed, "plan", "plan", SMALL)]


def repeat(bed: Bed, row: str, *words: str) -> Figure:
    """A quick command many times; once before, so that bytecode and caches are as ever."""
    place = bed.first(SMALL).place
    with bed.ui.step(f"{' '.join(words)}, {SHORT_RUNS} times"):
        place(*words)
        seconds = tuple(place.seconds(*words) for _ in range(SHORT_RUNS))
    return Figure(row, SMALL, seconds)


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
    del asked
    place = bed.copy(bed.first(SMALL).place, "package")
    overlays = place.recipe(SMALL).overlays
    middle = overlays[len(overlays) // 2]
    add_package(middle.path / "overlay.yaml", ADDED)
    with bed.ui.step(f"lock {SMALL} with {ADDED} in {middle.name}"):
        settled_lock(place.recipe(SMALL), place.settings, bed.ui, refresh=True)
    steps = place.ask("plan", SMALL)["steps"]
    assert isinstance(steps, list)
    wrong = planned_wrongly(steps, f"packages {middle.name}")
    with bed.ui.step(f"{SMALL} with a package more"):
        seconds = place.seconds("build", SMALL, "--locked")
    return [
        Figure(
            "package", SMALL, (float(len(wrong)),),
            parts={"build, with fetching the package, s": (seconds,)},
            note=f"{ADDED} in {middle.name}"
            + (f"; planned wrongly: {', '.join(wrong)}" if wrong else ""),
        )
    ]  # fmt: skip


def add_package(path: Path, name: str) -> None:
    """Add a package to an overlay.yaml."""
    yaml = YAML()
    overlay = yaml.load(path.read_text())
    overlay["packages"].append(name)
    with path.open("w") as stream:
        yaml.dump(overlay, stream)


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
    del asked
    place, tree = bed.copy(bed.first(SMALL).place, "promote"), bed.top / "work/tree"
    remove_tree(tree)
    words = ("--tree", os.fspath(tree))
    place("publish", SMALL, *words)
    untested = ("--untested", "a benchmark boots nothing")
    place("promote", SMALL, *untested, *words)
    build_changed(place, SMALL, 0)
    place("publish", SMALL, *words)
    with bed.ui.step(f"promote and rollback {SMALL}, {SHORT_RUNS} times"):
        moves = [
            place.seconds(*verb, SMALL, *words)
            for _ in range(SHORT_RUNS)
            for verb in (("promote", *untested), ("rollback",))
        ]
    remove_tree(tree)
    return [Figure("promote", SMALL, tuple(moves))]


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
    del asked
    place = bed.copy(bed.first(SMALL).place, "size")
    one = place.store.size()
    with bed.ui.step(f"{VERSIONS - 1} more versions of {SMALL}"):
        for number in range(1, VERSIONS):
            build_changed(place, SMALL, number)
    ten = place.store.size()
    sizes = {"one, MB": (one / 1e6,), "ten, MB": (ten / 1e6,)}
    return [Figure("size", SMALL, (ten / one,), parts=sizes)]


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
    "unchanged": measure_unchanged,
    "plan": measure_plan,
    "size": measure_size,
    "package": measure_package,
    "memory": measure_memory,
    "file": measure_file,
    "publish": measure_publish,
    "promote": measure_promote,
    "same": measure_same,
}


def clean(bed: Bed, name: str) -> None:
    """Drop the copy that a row worked in."""
    for folder in (name, f"{name}.house", "another", "another.tmp"):
        remove_tree(bed.top / "states" / folder)
