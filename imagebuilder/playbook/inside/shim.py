# SPDX-License-Identifier: Apache-2.0
"""Replaces programs in the root that need a running system, while a playbook runs.

The program itself does, offline, what is possible in a tree (enable a unit).  What only a running
node can do (start a service, load a module, reboot) is recorded, one JSON object per line, and
counts as done: the node does it when it boots.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NoReturn

REAL = Path("/run/imagebuilder/real")
SKIPPED = Path("/run/imagebuilder/skipped")
BOOT = Path("/run/imagebuilder/boot_id")
SETTINGS = Path("/run/imagebuilder/ansible/settings.json")

# Verbs of systemctl(1) by their effect.
RUNNING = frozenset((
    "start", "stop", "restart", "try-restart", "condrestart", "reload", "force-reload",
    "reload-or-restart", "try-reload-or-restart", "reload-or-try-restart", "isolate", "kill",
))  # fmt: skip
POWER = frozenset((
    "reboot", "poweroff", "halt", "kexec", "soft-reboot", "suspend", "hibernate", "rescue",
    "emergency", "default", "shutdown", "telinit",
))  # fmt: skip
OF_MEMORY = frozenset(("daemon-reload", "daemon-reexec", "reset-failed", "set-environment"))
LISTS = frozenset(("list-units", "list-sockets", "list-timers", "list-jobs"))
VALUED = frozenset(("-t", "--type", "-p", "--property", "-P", "--root", "-n", "-o", "--state"))
UNIT_PLACES = tuple(
    Path(place, "systemd/system") for place in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
)
SUFFIXES = (
    ".service", ".socket", ".target", ".timer", ".path", ".mount", ".automount", ".swap", ".slice",
    ".scope", ".device",
)  # fmt: skip
# The initrd and the kernel's command line are not part of the root.
OF_BOOT = frozenset((
    "update-initramfs", "dracut", "update-grub", "grub-install", "grub-mkconfig", "grub2-install",
    "grub2-mkconfig", "grubby",
))  # fmt: skip
ZONES, LOCALTIME = Path("/usr/share/zoneinfo"), Path("/etc/localtime")
TIMEZONE, LINGER = Path("/etc/timezone"), Path("/var/lib/systemd/linger")
TUNED = Path("/etc/tuned")
TUNED_PLACES = tuple(
    Path(place) for place in ("/usr/lib/tuned/profiles", "/etc/tuned/profiles", "/usr/lib/tuned")
)
NETWORK_FILES = frozenset(("nfs", "nfs4", "cifs", "ceph", "lustre", "glusterfs", "beegfs"))


def skip(kind: str, what: str, verb: str = "") -> None:
    """Record what was skipped."""
    row = json.dumps({"kind": kind, "what": what, "verb": verb}) + "\n"
    with SKIPPED.open("a") as sink:
        sink.write(row)


def real(name: str, arguments: list[str]) -> NoReturn:
    """Execute the program itself, offline."""
    real_of(Path(os.path.realpath(sys.argv[0])).name, [*arguments], name)


def real_of(file: str, arguments: list[str], name: str = "") -> NoReturn:
    """Execute a program that the shim replaces."""
    os.environ["SYSTEMD_OFFLINE"] = "1"
    os.execv(REAL / file, [name or file, *arguments])


def kernel() -> str:
    """The release of the image's kernel; "" without one."""
    return str(json.loads(SETTINGS.read_text())["kernel"])


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The options, and the other words."""
    options: list[str] = []
    words: list[str] = []
    valued = False
    for argument in arguments:
        (options if valued or argument.startswith("-") else words).append(argument)
        valued = not valued and argument in VALUED
    return options, words


def full_name(unit: str) -> str:
    """The unit's name with its kind."""
    return unit if unit.endswith(SUFFIXES) else f"{unit}.service"


def load_state(unit: str) -> str:
    """`loaded`, `masked` or `not-found`, as systemd would find the unit's file."""
    name = full_name(unit)
    stem, at, rest = name.partition("@")
    for file in (name, f"{stem}@{rest[rest.rfind('.') :]}") if at else (name,):
        for place in UNIT_PLACES:
            path = place / file
            if os.path.lexists(path):
                return "masked" if os.path.realpath(path) == "/dev/null" else "loaded"
    made_at_boot = name.endswith((".target", ".mount", ".swap", ".slice", ".device", ".scope"))
    by_script = Path("/etc/init.d", name.removesuffix(".service")).exists()
    return "loaded" if made_at_boot or by_script else "not-found"


def enabled(name: str) -> bool:
    """Whether a node starts the unit at boot."""
    here = Path("/etc/systemd/system")
    return any(here.glob(f"*.wants/{name}")) or any(here.glob(f"*.requires/{name}"))


def active(unit: str) -> bool:
    """Whether the unit would run: it is enabled, or its last skipped change was a start."""
    name = full_name(unit)
    rows = [json.loads(line) for line in SKIPPED.read_text().splitlines()]
    verbs = [r["verb"] for r in rows if r["kind"] == "service" and full_name(r["what"]) == name]
    return verbs[-1] not in ("stop", "kill") if verbs else enabled(name)


def change(verb: str, units: list[str]) -> int:
    """Skip a change of what runs; a missing unit fails as on a node."""
    for unit in units:
        state = "loaded" if any(c in unit for c in "*?[") else load_state(unit)
        if state != "loaded":
            why = "not found" if state == "not-found" else "masked"
            print(f"Failed to {verb} {full_name(unit)}: Unit is {why}.", file=sys.stderr)
            return 5 if state == "not-found" else 1
        skip("service", unit.removesuffix(".service"), verb)
    return 0


def show(options: list[str], units: list[str]) -> int:
    """`systemctl show`, with the properties that are known without a running unit."""
    wanted = [o.partition("=")[2] for o in options if o.startswith("--property=")]
    wanted += [options[i + 1] for i, o in enumerate(options[:-1]) if o in ("-p", "--property")]
    names = {name for text in wanted for name in text.split(",")}
    for unit in units:
        runs = active(unit)
        facts = {
            "Id": full_name(unit),
            "LoadState": load_state(unit),
            "ActiveState": "active" if runs else "inactive",
            "SubState": "running" if runs else "dead",
        }
        for name, value in facts.items():
            if not names or name in names:
                print(value if "--value" in options else f"{name}={value}")
    return 0


def state(verb: str, units: list[str]) -> int:
    """`systemctl is-active` and its like."""
    if verb == "is-system-running":  # as on a booted node: roles wait for that
        print("running")
        return 0
    running = [active(unit) for unit in units]
    # Python 3.9, that of Enterprise Linux 9, has no zip(strict=True).
    for unit, runs in zip(units, running):  # noqa: B905
        print(f"{unit}: {'active' if runs else 'inactive'}" if verb == "status" else
              "active" if runs else "inactive")  # fmt: skip
    if verb == "is-failed":
        return 1
    return 0 if all(running) else 3


def systemctl(arguments: list[str]) -> int:
    """systemctl(1)."""
    options, words = split(arguments)
    verb, units = (words[0], words[1:]) if words else ("list-units", [])
    if verb in RUNNING:
        return change(verb, units)
    if verb in POWER:
        return power(verb, [])
    if verb in OF_MEMORY or verb in LISTS:
        return 0
    if verb == "show":
        return show(options, units)
    if verb in ("is-active", "is-failed", "is-system-running", "status"):
        return state(verb, units)
    if "--now" in arguments:  # the program does the first half, offline
        arguments = [argument for argument in arguments if argument != "--now"]
        for unit in units:
            skip("service", unit.removesuffix(".service"), "start" if "enable" in verb else "stop")
    real("systemctl", arguments)


def service(arguments: list[str]) -> int:
    """service(8) and invoke-rc.d(8): NAME ACTION."""
    _, words = split(arguments)
    if len(words) < 2:
        return 0
    if words[1] == "status":
        return state("status", words[:1])
    return change(words[1], words[:1])


def power(name: str, arguments: list[str]) -> int:
    """A reboot or similar: only recorded; /proc then shows a new boot id."""
    if name == "shutdown" and "-c" in arguments:
        return 0
    reboots = name == "reboot" or (name == "shutdown" and "-r" in arguments)
    skip("machine", "reboot" if reboots else name)
    number = int(BOOT.read_text().strip()[-12:]) + 1
    BOOT.write_text(f"00000000-0000-4000-8000-{number:012d}\n")
    return 0


def uname(arguments: list[str]) -> int:
    """uname(1), with the release of the image's kernel."""
    letters = {
        "--all": "snrvmo", "--kernel-name": "s", "--nodename": "n", "--kernel-release": "r",
        "--kernel-version": "v", "--machine": "m", "--processor": "p",
        "--hardware-platform": "i", "--operating-system": "o",
    }  # fmt: skip
    wanted = "".join(letters.get(a, a.lstrip("-").replace("a", "snrvmo")) for a in arguments) or "s"
    if set(wanted) - set("snrvmpio"):
        real("uname", arguments)
    here = os.uname()
    facts = {
        "s": here.sysname, "n": here.nodename, "r": kernel(), "v": "#1 SMP", "m": here.machine,
        "p": "unknown", "i": "unknown", "o": "GNU/Linux",
    }  # fmt: skip
    print(*(facts[letter] for letter in "snrvmpio" if letter in wanted))
    return 0


def hostnamectl(arguments: list[str]) -> int:
    """hostnamectl(1): each node has its own name."""
    _, words = split(arguments)
    if words[:1] in (["set-hostname"], ["hostname"]) and len(words) > 1:
        skip("machine", f"hostname {words[1]}")
    else:
        print(os.uname().nodename)
    return 0


def timedatectl(arguments: list[str]) -> int:
    """timedatectl(1): the zone is a file and the service a unit; the clock is the node's."""
    options, words = split(arguments)
    verb, values = (words[0], words[1:]) if words else ("status", [])
    if verb == "set-timezone" and values:
        place = ZONES / values[0]
        if not place.is_file() or ".." in place.parts:
            print(f"Failed to set time zone: Invalid time zone '{values[0]}'", file=sys.stderr)
            return 1
        LOCALTIME.unlink(missing_ok=True)
        LOCALTIME.symlink_to(place)
        if TIMEZONE.exists():
            TIMEZONE.write_text(f"{values[0]}\n")
        return 0
    if verb in ("status", "show"):
        real_place = LOCALTIME.resolve()
        zone = str(real_place.relative_to(ZONES)) if real_place.is_relative_to(ZONES) else "UTC"
        if verb == "show":
            print(zone if "--value" in options else f"Timezone={zone}")
        else:
            print(f"Time zone: {zone}")
        return 0
    if verb == "set-ntp" and values:
        enable = values[0] in ("1", "yes", "true", "on")
        real_of("systemctl", ["enable" if enable else "disable", "systemd-timesyncd.service"])
    skip("machine", " ".join(["timedatectl", *arguments]))
    return 0


def loginctl(arguments: list[str]) -> int:
    """loginctl(1): lingering is a file; only a node has sessions."""
    _, words = split(arguments)
    if words[:1] in (["enable-linger"], ["disable-linger"]) and len(words) > 1:
        for user in words[1:]:
            place = LINGER / user
            LINGER.mkdir(parents=True, exist_ok=True)
            place.touch() if words[0] == "enable-linger" else place.unlink(missing_ok=True)
        return 0
    print("loginctl: an image has no sessions", file=sys.stderr)
    return 1


def tuned_adm(arguments: list[str]) -> int:
    """tuned-adm(8): the daemon reads the profile from two files when a node boots."""
    _, words = split(arguments)
    active = TUNED / "active_profile"
    if words[:1] == ["profile"] and len(words) > 1:
        known = [place / name for name in words[1:] for place in TUNED_PLACES]
        if not any(place.is_dir() for place in known):
            print(f"Requested profile '{' '.join(words[1:])}' doesn't exist.", file=sys.stderr)
            return 1
        active.write_text(f"{' '.join(words[1:])}\n")
        (TUNED / "profile_mode").write_text("manual\n")
        skip("service", "tuned", "restart")
        return 0
    if words[:1] == ["active"]:
        profile = active.read_text().strip() if active.exists() else ""
        print(f"Current active profile: {profile}" if profile else "No current active profile.")
        return 0
    real("tuned-adm", arguments)


def sysctl(arguments: list[str]) -> int:
    """sysctl(8): writes are left to the node; reads print what the node will have set."""
    writes = any("=" in a or a.startswith(("-p", "--load", "--system", "-w")) for a in arguments)
    if writes:
        skip("machine", " ".join(["sysctl", *arguments]))
        return 0
    options = [argument for argument in arguments if argument.startswith("-")]
    words = [argument for argument in arguments if not argument.startswith("-")]
    known = settings_of_kernel()
    if not words or not all(word.replace("/", ".") in known for word in words):
        skip("read", " ".join(["sysctl", *arguments]))
        real("sysctl", arguments)
    bare = "--values" in options or any("n" in o for o in options if not o.startswith("--"))
    for word in words:
        value = known[word.replace("/", ".")]
        print(value if bare else f"{word} = {value}")
    return 0


def settings_of_kernel() -> dict[str, str]:
    """The settings of sysctl.d(5) in the root; a file in /etc overrides its namesake in /usr."""
    files: dict[str, Path] = {}
    for folder in ("/usr/lib/sysctl.d", "/run/sysctl.d", "/etc/sysctl.d"):
        files.update({path.name: path for path in Path(folder).glob("*.conf")})
    found: dict[str, str] = {}
    for name in (*sorted(files), "/etc/sysctl.conf"):
        path = files.get(name, Path(name))
        for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
            key, equals, value = line.strip().partition("=")
            if equals and not key.startswith(("#", ";")):
                found[key.strip().lstrip("-").replace("/", ".")] = value.strip()
    return found


def kmod(name: str, arguments: list[str]) -> int:
    """modprobe(8), insmod(8), rmmod(8) and depmod(8), for the image's kernel."""
    options, words = split(arguments)
    if name == "depmod" and kernel() and not words:
        real(name, [*arguments, kernel()])
    dry = {"-n", "--dry-run", "--show", "-D", "--show-depends", "-c", "--showconfig", "-R"}
    if name == "modprobe" and dry & set(options):
        real(name, [*arguments, "-S", kernel()] if kernel() else arguments)
    if name == "lsmod":  # the builder's modules do not matter
        print("Module                  Size  Used by")
        return 0
    if name in ("modprobe", "insmod", "rmmod"):
        skip("machine", " ".join([name, *arguments]))
        return 0
    real(name, arguments)


def mount(arguments: list[str]) -> int:
    """mount(8): mounts of fstab(5) entries and of network file systems are left to the node."""
    options, words = split(arguments)
    kinds = {o.partition("=")[2] for o in options if o.startswith("--types=")}
    kinds |= {options[i + 1] for i, o in enumerate(options[:-1]) if o == "-t"}
    if len(words) == 1 or "-a" in options or kinds & NETWORK_FILES:
        skip("machine", " ".join(["mount", *arguments]))
        return 0
    real("mount", arguments)


BY_NAME = {
    "systemctl": systemctl, "service": service, "invoke-rc.d": service, "uname": uname,
    "hostnamectl": hostnamectl, "timedatectl": timedatectl, "loginctl": loginctl,
    "tuned-adm": tuned_adm, "sysctl": sysctl, "mount": mount,
}  # fmt: skip


def main(name: str, arguments: list[str]) -> int:
    """Act as the program that was called."""
    if name in BY_NAME:
        return BY_NAME[name](arguments)
    if name in POWER:
        return power(name, arguments)
    if name in OF_BOOT:
        skip("boot", " ".join([name, *arguments]))
        return 0
    if name == "udevadm" and arguments[:1] in (["control"], ["trigger"], ["settle"]):
        skip("machine", f"udevadm {arguments[0]}")
        return 0
    if name in ("modprobe", "insmod", "rmmod", "depmod", "lsmod", "modinfo", "kmod"):
        return kmod(name, arguments)
    real(name, arguments)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
