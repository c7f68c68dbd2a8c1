# SPDX-License-Identifier: Apache-2.0
"""Made-up nights as a small cluster has them: quiet ones, updates, failures, ends of power."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from imagebuilder.errors import Fault
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage, ProfileRun, Pruned

PROFILES = (
    "minimal", "generic", "rx7600xt", "ryzen-ai-max", "arc-b580", "rtx5090", "slurm-controller",
    "generic.ubuntu-noble", "generic.debian-trixie.mkosi", "inference-head-with-a-rather-long-name",
)  # fmt: skip
FIRST = datetime(2026, 10, 24, 2, 30, tzinfo=UTC)
FAULTS = {
    NightlyStage.LOCK: Fault(
        "debian-security",
        "the mirror does not answer: Connection refused",
        "imagebuilder doctor asks every mirror; builds go on with the lock of the night before",
    ),
    NightlyStage.BUILD: Fault(
        "overlays/llama-cpp/scripts/10-link",
        "10-link failed (exit status 1)\n    ln: failed to create symbolic link: File exists",
        "the command was: sh scripts/10-link",
    ),
    NightlyStage.PROVE: Fault(
        "rx7600xt@20261118024101-0badc0de", "no code object for gfx1102 in libggml"
    ),
    NightlyStage.TEST: Fault(
        "rx7600xt@20261119024101-1c2d3e4f",
        "failed in stage root: mount.nfs4: mounting 10.77.0.1:/root/rx7600xt failed: "
        "No such file or directory",
        "imagebuilder report rx7600xt shows the console",
    ),
}
# Seconds of each stage.
SPENT = (9.0, 0.5, 312.0, 41.0, 24.0, 181.0, 0.6, 1450.0)
PACKAGES = ("openssl", "libssl3t64", "linux-image-amd64", "systemd", "curl", "libexpat1", "zlib1g")
HOSTILE = "\x1b[31m</script><img src=x onerror=alert(1)>\u202e\"'&\n"


def night_id(started: datetime, pid: int = 4711) -> str:
    """The id of a night that began then."""
    return f"{started:%Y%m%dT%H%M%SZ}-{pid}"


def version_of(started: datetime, number: int) -> str:
    """A version as images have them."""
    return f"{started:%Y%m%d%H%M%S}-{(number * 2654435761) % (1 << 32):08x}"


def changes(random: Random, many: int) -> tuple[PackageChange, ...]:
    """Packages that moved; those of a security pocket among them."""
    found = []
    for number in range(many):
        name = PACKAGES[number] if number < len(PACKAGES) else f"libexample{number}-0"
        urgent = random.random() < 0.3
        suite = "trixie-security" if urgent else "trixie"
        new = "3.5.1-1+deb13u2" if urgent else "3.5.1-2"
        old = "" if random.random() < 0.1 else "3.5.1-1"
        found.append(PackageChange(name, old, new, urgent, suite))
    return tuple(found)


def unchanged(profile: str = "generic", stable: str = "20261101023000-aaaaaaaa") -> ProfileRun:
    """Nothing new."""
    return ProfileRun(
        profile, Ending.UNCHANGED, NightlyStage.PLAN,
        {NightlyStage.LOCK: 2.1, NightlyStage.PLAN: 0.4},
        version=stable, previous=stable, candidate=stable, stable=stable, size=966_000_000,
    )  # fmt: skip


def fresh(
    profile: str, started: datetime, random: Random, *, before: str, promote: bool = True
) -> ProfileRun:
    """A new release that passed."""
    version = version_of(started, len(profile))
    seconds = {
        stage: round(random.uniform(0.7, 1.3) * time, 1)
        for stage, time in zip(NightlyStage, SPENT, strict=True)
    }
    stable = version if promote else before
    return ProfileRun(
        profile, Ending.PROMOTED if promote else Ending.FRESH,
        NightlyStage.PROMOTE if promote else NightlyStage.TEST, seconds,
        version=version, previous=before, candidate=version, stable=stable,
        changes=changes(random, random.randint(1, 30)),
        reasons=("the lock changed: 12 packages",), published=random.randint(20, 900) * 1_000_000,
        size=6_401_234_567, proof="proved for gfx1102: 41 answers, no fault",
        report=f"{started:%Y%m%dT%H%M%SZ}-812",
    )  # fmt: skip


def failed(profile: str, stage: NightlyStage, *, stable: str = "", log: str = "") -> ProfileRun:
    """It ended badly in `stage`."""
    seconds = {one: 11.5 for one in list(NightlyStage)[: list(NightlyStage).index(stage) + 1]}
    return ProfileRun(
        profile, Ending.FAILED, stage, seconds, fault=FAULTS[stage], log=log,
        previous=stable, candidate=stable, stable=stable,
    )  # fmt: skip


def night(
    *done: ProfileRun, started: datetime = FIRST, finished: bool = True, planned: int = 0
) -> NightlyRun:
    """A night of these profiles; `planned` more were to come."""
    names = [one.profile for one in done]
    more = [name for name in PROFILES if name not in names][:planned]
    return NightlyRun(
        id=night_id(started),
        started=started.isoformat(),
        host="builder-1, Debian 13, 16 processors",
        tool="0.1.0",
        seconds=round(sum(sum(one.seconds.values()) for one in done) + 3, 1),
        finished=finished,
        planned=(*names, *more),
        profiles=done,
    )


def make_nights(
    count: int, profiles: tuple[str, ...] = PROFILES, last: datetime | None = None, log: str = ""
) -> list[NightlyRun]:
    """So many plausible nights, oldest first, the same ones every time."""
    random = Random(6)
    start = (last or FIRST + timedelta(days=29)) - timedelta(days=count - 1)
    stables = dict.fromkeys(profiles, "20260901023000-aaaaaaaa")
    made = []
    for number in range(count):
        started = start + timedelta(days=number, minutes=random.randint(0, 29))
        done = []
        for place, profile in enumerate(profiles):
            # Some days nothing happens, some days everything; one profile is in trouble for a week.
            luck = random.random()
            trouble = place == 2 and count - 9 < number < count - 2
            if trouble or luck < 0.03:
                stage = NightlyStage.TEST if trouble else random.choice(list(FAULTS))
                one = failed(profile, stage, stable=stables[profile], log=log)
            elif luck < 0.25 + 0.5 * (number % 6 == 0):
                promote = random.random() < 0.8
                one = fresh(profile, started, random, before=stables[profile], promote=promote)
            else:
                one = unchanged(profile, stables[profile])
            stables[profile] = one.stable
            done.append(one)
        cut = number % 11 == 5
        kept = done[: len(done) // 2] if cut else done
        one_night = night(*kept, started=started, finished=not cut, planned=len(done) - len(kept))
        made.append(one_night)
    return made


def with_pruning(one: NightlyRun) -> NightlyRun:
    """Afterwards old things went, and the locks were committed."""
    from dataclasses import replace

    gone = Pruned(
        ("generic@20261001023000-aaaaaaaa",), ("generic@20260920023000-bbbbbbbb",), 7 << 30
    )
    return replace(one, pruned=gone, committed="1f0c2ab", warnings=("forky: Release expired",))
