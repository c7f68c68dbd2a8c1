# SPDX-License-Identifier: Apache-2.0
"""Settings of the kernel that the network of pods needs, and that a file of sysctl.d turns off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.site import services_of
from imagebuilder.proof.reading.sysctl import name_of, read_sysctl
from imagebuilder.proof.reading.systemd import Startup, read_config
from imagebuilder.proof.subject import Subject


@dataclass(frozen=True)
class PodSetting:
    """Names of one setting of the kernel, of which the last assignment counts, and what follows
    if it is 0.
    """

    names: tuple[str, ...]
    effect: str


# kubeadm tests both before it joins a node (its "preflight" checks); some network plugins set the
# first by themselves, such as Calico's.
NEEDED = (
    PodSetting(
        ("net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"),
        "pods of this node reach neither those of other nodes nor anything outside",
    ),
    PodSetting(
        ("net.bridge.bridge-nf-call-iptables",),
        "pods do not reach services of the cluster whose pods are on the same node",
    ),
)


def prove_forwarding(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings of settings that are off beside a kubelet, which does not change them."""
    kubelet = next(services_of(subject, startup, "kubelet"), None)
    if kubelet is None:
        return
    lines = list(read_config(subject, "sysctl.d"))
    settings = read_sysctl(subject)
    for needed in NEEDED:
        last = [name for name in settings if name in needed.names][-1:]
        if not last or settings[last[0]].value != "0":
            continue
        one = settings[last[0]]
        on = [line for line in lines if name_of(line.key) in needed.names and line.value == "1"]
        what = (
            f"{last[0]}=0 of {one.where.path}: {kubelet.name} does not change it, and unless its "
        )
        what += f"network plugin does, {needed.effect}"
        what += f" ({on[-1].path} sets 1, but is read before)" if on else ""
        hint = "remove that line, or set 1 in a file that sorts after it"
        yield SAY.warning(what, one.where, *(line.evidence for line in on[-1:]), hint=hint)
