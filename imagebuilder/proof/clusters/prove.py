# SPDX-License-Identifier: Apache-2.0
"""Every finding about agents of clusters and programs that run on several nodes."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.clusters.container_devices import prove_container_devices
from imagebuilder.proof.clusters.detached import prove_detached
from imagebuilder.proof.clusters.engines import prove_bridges, prove_storage
from imagebuilder.proof.clusters.growth import prove_growth
from imagebuilder.proof.clusters.kubernetes import prove_forwarding, prove_kubernetes
from imagebuilder.proof.clusters.peers import prove_peers, prove_shares
from imagebuilder.proof.clusters.ranks import prove_mpi, prove_ranks
from imagebuilder.proof.clusters.slurm import prove_gres, prove_slurm
from imagebuilder.proof.clusters.state import prove_disks, prove_state
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject


def prove_clusters(subject: Subject, startup: Startup) -> Iterator[Finding]:
    yield from prove_storage(subject, startup)
    yield from prove_container_devices(subject, startup)
    yield from prove_kubernetes(subject, startup)
    yield from prove_forwarding(subject, startup)
    yield from prove_state(subject, startup)
    yield from prove_disks(subject, startup)
    yield from prove_slurm(subject, startup)
    yield from prove_gres(subject, startup)
    yield from prove_shares(subject, startup)
    yield from prove_bridges(subject, startup)
    yield from prove_ranks(subject, startup)
    yield from prove_mpi(subject, startup)
    yield from prove_detached(subject, startup)
    yield from prove_peers(subject, startup)
    yield from prove_growth(subject, startup)
