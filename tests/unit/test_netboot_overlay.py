# SPDX-License-Identifier: Apache-2.0
"""What the initrd of the overlay netboot reports: its shell on a folder as PCI has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imagebuilder.checks.initrd import NIC_DRIVERS
from imagebuilder.detect import PciDevice
from imagebuilder.nodes.evidence.seen import PCI
from imagebuilder.process import run
from imagebuilder.share import SHARE
from tests.unit.test_detect import ASPEED, HALO, MI300X, NIC, NPU, put_devices

OVERLAY = SHARE / "overlays/netboot"
MODULE = OVERLAY / "files/usr/lib/dracut/modules.d/99imagebuilder"
# Modules beside those of NICs: the buses that these hang on.
BUSES = {"virtio_pci", "xhci_hcd", "xhci_pci", "xhci_pci_renesas", "ehci_pci", "hostonly"}
# The hook with a folder of ours for PCI's, and for the library what shows what it would report.
TRIAL = """\
ib_run=$1
stage() { echo "$1 $2"; }
busybox() { "$@"; }
"""


def report_of(folder: Path, devices: list[PciDevice]) -> str:
    """What the hook reports on a machine with these devices."""
    (folder / "run").mkdir()
    (folder / "run/nic").write_text("lo\n")
    (folder / "pci").mkdir()
    hook = (MODULE / "keep-network.sh").read_text()
    assert "/sys/bus/pci/devices" in hook
    script = hook.replace("/sys/bus/pci/devices", str(put_devices(folder / "pci", devices)))
    script = script.replace(". /lib/imagebuilder-lib.sh", TRIAL)
    script = script.replace("/run/systemd", str(folder / "systemd"))
    script = script.replace("/proc/sys/kernel/hostname", str(folder / "hostname"))
    return run(["sh", "-euc", script, "sh", folder / "run"]).stdout


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ([NIC], "none"),
        ([], "none"),
        ([HALO, NIC, NPU], "1002:1586,1022:17f0"),
        ([MI300X, ASPEED], "1002:74a1,1a03:2000"),
        ([MI300X, PciDevice("0000:06:00.0", MI300X.pci, MI300X.kind)], "1002:74a1"),
    ],
)
def test_the_last_report_of_the_initrd_has_the_cards(
    tmp_path: Path, devices: list[PciDevice], told: str
) -> None:
    assert report_of(tmp_path, devices) == f"switch-root pci={told}\n"
    assert PCI.fullmatch(told)


def test_many_cards_fit_a_record(tmp_path: Path) -> None:
    devices = [PciDevice(f"0000:{n:02x}:00.0", f"10de:{n:04x}", "0x030200") for n in range(40)]
    told = report_of(tmp_path, devices).strip().removeprefix("switch-root pci=")
    assert PCI.fullmatch(told)
    assert len(told.split(",")) == 16


# Programs of the initrd as functions: what they are asked, and a wire with a router on it.
WIRE = """\
say() { echo "said $1"; }
modprobe() { echo "modprobe $*"; return "${FAILS:-0}"; }
busybox() { :; }
getarg() { [ "$1" = imagebuilder.netconsole= ] && [ -n "$WANTED" ] && echo "$WANTED"; }
ip() {
    case $* in
        *"route get 10.77.0.1") echo "10.77.0.1 dev enp1s0 src 10.77.0.50 uid 0 \\\\ cache" ;;
        *"route get 10.9.0.1") echo "10.9.0.1 via 10.77.0.254 dev enp1s0 src 10.77.0.50 uid 0" ;;
        *"to 10.77.0.1 dev enp1s0") echo "10.77.0.1 lladdr 52:54:00:00:00:01 REACHABLE" ;;
        *"to 10.77.0.254 dev enp1s0") echo "10.77.0.254 lladdr 52:54:00:00:02:54 STALE" ;;
        *"to "*) echo "10.77.0.9 FAILED" ;;
        *) echo "10.77.0.9 dev enp1s0 src 10.77.0.50" ;;
    esac
}
ib_nic=enp1s0
"""


@pytest.mark.parametrize(
    ("server", "mac"),
    [
        ("10.77.0.1", "52:54:00:00:00:01"),
        ("10.9.0.1", "52:54:00:00:02:54"),  # behind a router
        ("10.77.0.9", "ff:ff:ff:ff:ff:ff"),
    ],
)
def test_the_console_is_sent_to_the_boot_server(server: str, mac: str) -> None:
    target = f"netconsole=+6666@10.77.0.50/enp1s0,6666@{server}/{mac}"
    assert sends(server, WANTED="6666") == f"modprobe netconsole {target}\n"


def test_a_console_that_cannot_be_sent_fails_no_boot() -> None:
    assert "said the console is not sent" in sends("10.77.0.1", WANTED="6666", FAILS="1")
    assert sends("10.77.0.1", WANTED="") == ""


def sends(server: str, **env: str) -> str:
    """What the initrd does about its console, whose library ends well."""
    library = (MODULE / "imagebuilder-lib.sh").read_text().replace("command -v getarg", "true")
    script = f"{library}\n{WIRE}\nsend_console {server}"
    return run(["sh", "-uc", script], env=env).stdout


def test_a_stage_without_more_is_reported_as_before(tmp_path: Path) -> None:
    library = (MODULE / "imagebuilder-lib.sh").read_text().replace("/run/imagebuilder", "$1")
    library = library.replace("command -v getarg", "true")
    script = (
        f'{library}\nreport() {{ echo "$1"; }}\nsay() {{ :; }}\nstage root\nstage end pci=none\n'
    )
    lines = run(["sh", "-euc", script, "sh", tmp_path / "run"]).stdout.splitlines()
    assert [line.rpartition("uptime=")[0] for line in lines] == ["stage=root&", "stage=end&"]
    assert lines[1].endswith("&pci=none")
    assert "pci" not in lines[0]


# A server that does not answer in time for the requests whose numbers are in SLOW.
SERVER = """\
getarg() { [ "$1" = imagebuilder.report= ] && echo http://10.77.0.1/report/boot; }
busybox() { echo "${5#*\\?}"; asked=$((asked + 1)); }
timeout() {
    shift
    "$@"
    case " $SLOW " in *" $asked "*) return 124 ;; esac
}
asked=0
"""
BOOT = """\
mkdir "$1/run"
report stage=initrd
report stage=network
echo 52:54:00:00:00:01 > "$1/run/node"
report stage=root
report stage=overlay
report stage=switch-root
"""
STAGES = ["initrd", "network", "root", "overlay", "switch-root"]


def stages_told(folder: Path, slow: str, programs: str = "") -> list[str]:
    """The stages that the server is told of; `slow` are requests that it is too slow for, and
    `programs` functions in the place of others.
    """
    library = (MODULE / "imagebuilder-lib.sh").read_text().replace("/run/imagebuilder", "$1/run")
    script = f"{library.replace('command -v getarg', 'true')}\n{SERVER}\n{programs}\n{BOOT}"
    lines = run(["sh", "-uc", script, "sh", folder], env={"SLOW": slow}).stdout.splitlines()
    assert all(line.endswith("&node=52:54:00:00:00:01") for line in lines)
    return [line.removeprefix("stage=").partition("&")[0] for line in lines]


@pytest.mark.parametrize(
    ("slow", "told"),
    [
        ("", STAGES),
        ("1", ["initrd", *STAGES]),
        ("2", ["initrd", "network", "network", "root", "overlay", "switch-root"]),
        ("2 3", ["initrd", "network", "network", "network", "root", "overlay", "switch-root"]),
        # Nobody is there: the boot waits no longer.
        ("1 2 3 4 5 6", ["initrd", "initrd", "initrd"]),
    ],
)
def test_what_a_slow_server_has_not_taken_is_told_again(
    tmp_path: Path, slow: str, told: list[str]
) -> None:
    assert stages_told(tmp_path, slow) == told


def test_a_boot_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    told = stages_told(tmp_path, "", "sed() { return 4; }")
    assert told == ["initrd"] * 3, "the same report before each of the others"


def test_the_drivers_of_nics_are_the_same_everywhere() -> None:
    setup = MODULE.parent / "05kernel-network-modules/module-setup.sh"
    groups = re.findall(r"    # \d\. (\w+).*\n((?:    [^#].*\n)+)", setup.read_text())
    words = {word for name, text in groups if name in ("Boards", "USB") for word in text.split()}
    drivers = {word for word in words if re.fullmatch(r"[a-z]\w+", word)} - BUSES - {"instmods"}
    assert drivers == set(NIC_DRIVERS)
    readme = (OVERLAY / "README.md").read_text()
    assert [name for name in NIC_DRIVERS if not re.search(rf"\b{name}\b", readme)] == []
