# SPDX-License-Identifier: Apache-2.0
"""Files for one playbook: on the builder Ansible's settings, inventory, vars and command.

In the root those that programs expect on a running machine, but no image may have.
"""

from __future__ import annotations

import configparser
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import imagebuilder
from imagebuilder.digest import Json
from imagebuilder.environment import SBIN
from imagebuilder.errors import ImagebuilderError
from imagebuilder.families.protocol import AnsibleSetup
from imagebuilder.process import run
from imagebuilder.recipe.types import Playbook
from imagebuilder.sandbox.lasting import Inside
from imagebuilder.sandbox.sandbox import Bind, Sandbox, folders_of
from imagebuilder.steps.step import StepWorkspace

HERE = Path(__file__).parent
# Vars that override everything in a playbook and its vars (extra vars win).
PINNED: Mapping[str, Json] = {
    "ansible_connection": "imagebuilder_sandbox",
    "ansible_become_method": "imagebuilder_runuser",
    "ansible_python_interpreter": "/usr/bin/python3",
    "ansible_pipelining": True,
    "ansible_shell_type": "sh",
    "ansible_shell_executable": "/bin/sh",
    "ansible_remote_tmp": "/tmp/.ansible",
    "ansible_system_tmpdirs": ["/tmp"],
    "ansible_async_dir": "/tmp/.ansible_async",
}
# Settings in the project's ansible.cfg about the meaning of its files; none about connections.
HONOURED = (
    "hash_behaviour", "jinja2_native", "jinja2_extensions", "inject_facts_as_vars", "gathering",
    "any_errors_fatal", "force_handlers", "private_role_vars", "error_on_undefined_vars",
)  # fmt: skip
HONOURED_PATHS = (
    "roles_path", "collections_path", "collections_paths", "library", "module_utils",
    "filter_plugins", "lookup_plugins", "test_plugins", "vars_plugins",
)  # fmt: skip
SHEBANG = "#!/usr/bin/python3 -IS\n"
# A fixed id of this program, which no node has.
MACHINE_ID = "f1d2d2f924e986ac86fdf7b36c94bcdf"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
# Larger files are not searched: they are data, not settings.
MOST_BYTES = 1_000_000
# 1. What tmpfiles.d(5) and RuntimeDirectory= make below /run when a node boots.
# 2. A host key, without which sshd(8) does not even check its settings; run_clean() removes it.
MAKE = f"""\
exec 3>&1 >/dev/null 2>&1
systemd-tmpfiles --create --prefix=/run
sed -n 's/^RuntimeDirectory=//p' /usr/lib/systemd/system/*.service /etc/systemd/system/*.service |
tr ' ' '\\n' | while read -r name; do
    case $name in '' | *%* | *..*) ;; *) mkdir -p "/run/$name" ;; esac
done
if [ -d /etc/ssh ] && [ ! -e {HOST_KEY} ]; then
    ssh-keygen -q -t ed25519 -N '' -C '' -f {HOST_KEY} && cut -d' ' -f2 {HOST_KEY}.pub >&3
fi
true
"""


@dataclass(frozen=True)
class Controller:
    """Ansible's side: its folder on the builder, and the command that runs there."""

    top: Path
    argv: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def told(self) -> Path:
        """The file with the callback's JSON lines."""
        return self.top / "told"

    @property
    def skipped(self) -> Path:
        """The file with what was left to the node, as JSON lines."""
        return self.top / "skipped"


def make_controller(
    workspace: StepWorkspace, playbook: Playbook, host: str, kernel: str, program: Path
) -> Controller:
    """The controller of one playbook; `kernel` is the package of the image's kernel."""
    top = workspace.work / f"{workspace.upper}.ansible"
    release = find_release(workspace, kernel)
    reach: Mapping[str, Json] = {"host": host, "kernel": release, "epoch": workspace.epoch}
    controller = lay_out(top, playbook, host, program, reach, callback="imagebuilder_tell")
    controller.skipped.touch()
    controller.skipped.chmod(0o666)
    (top / "inside").mkdir()
    make_inside(top / "inside", host, release, workspace.family.ansible)
    return controller


def lay_out(
    top: Path,
    playbook: Playbook,
    host: str,
    program: Path,
    reach: Mapping[str, Json],
    *,
    callback: str,
) -> Controller:
    """Write Ansible's files: settings, inventory, vars; `reach` is for our plugins."""
    for name in ("home", "tmp", "library"):
        (top / name).mkdir(parents=True)
    argv = (
        os.fspath(program), "--inventory", os.fspath(top / "inventory.yml"),
        "--extra-vars", f"@{top}/vars.json", *limit(playbook, host), playbook.name,
    )  # fmt: skip
    # Only our own package, because Ansible may run in another environment.
    (top / "library/imagebuilder").symlink_to(Path(imagebuilder.__file__).parent)
    (top / "ansible.cfg").write_text(render_settings(top, playbook.project, callback))
    (top / "inventory.yml").write_text(json.dumps(inventory_of(host, playbook.groups)))
    link_vars(top, playbook.project)
    vars_ = {**playbook.vars, "imagebuilder_profile": host, **PINNED}
    (top / "vars.json").write_text(json.dumps(vars_))
    (top / "reach.json").write_text(json.dumps(reach))
    return Controller(top, argv, environment(top, program.parent))


def controller_sandbox(
    controller: Controller, playbook: Playbook, epoch: int, *, network: bool
) -> Sandbox:
    """The sandbox of Ansible, which sees the project and the builder's programs, but no root."""
    return Sandbox(
        work=controller.top,
        lower=("empty",),
        upper="builder",
        epoch=epoch,
        binds=(Bind(playbook.project, playbook.project),),
        network=network,
        enter=False,
        env=tuple(controller.environment.items()),
        view=folders_of(Path(controller.argv[0])),
    )


def limit(playbook: Playbook, host: str) -> list[str]:
    """If the recipe names groups, plays for other hosts, including the builder, are left out."""
    return ["--limit", host] if playbook.limited else []


def find_release(workspace: StepWorkspace, kernel: str) -> str:
    """The release of the image's kernel, "" for a root without one."""
    try:
        return workspace.family.kernel_release(workspace, kernel)
    except ImagebuilderError:  # no kernel package, or no package manager in the root
        return ""


def make_inside(folder: Path, host: str, release: str, setup: AnsibleSetup) -> None:
    """Write the files of /run/imagebuilder/ansible."""
    (folder / "shim").write_text(SHEBANG + (HERE / "inside/shim.py").read_text())
    (folder / "shim").chmod(0o755)
    (folder / "prepare.py").write_text((HERE / "inside/prepare.py").read_text())
    covers = dict(setup.covers)
    settings = {"host": host, "kernel": release, "machine-id": MACHINE_ID, "covers": covers}
    (folder / "settings.json").write_text(json.dumps(settings))
    for name, text in setup.files.items():
        (folder / name).write_text(text)


def inventory_of(host: str, groups: tuple[str, ...]) -> Json:
    return {
        "all": {
            "hosts": {host: {"imagebuilder_host": host}},
            "children": {group: {"hosts": {host: {}}} for group in groups},
        }
    }


def link_vars(top: Path, project: Path) -> None:
    """Let Ansible find group_vars and host_vars beside the inventory, as in the project."""
    for name in ("group_vars", "host_vars"):
        for place in (project / name, project / "inventory" / name):
            if place.is_dir() and not (top / name).exists():
                (top / name).symlink_to(place)


def render_settings(top: Path, project: Path, callback: str) -> str:
    """ansible.cfg: our settings, and the project's own about its files."""
    plugins = HERE / "plugins"
    ours = {
        "connection_plugins": plugins / "connection",
        "become_plugins": plugins / "become",
        "callback_plugins": plugins / "callback",
        "callbacks_enabled": callback,
        "stdout_callback": "default",
        "home": top / "home",
        "local_tmp": top / "tmp",
        "forks": 1,
        "retry_files_enabled": False,
        "nocows": True,
        "localhost_warning": False,
        "deprecation_warnings": False,
        "force_valid_group_names": "ignore",
        "interpreter_python": "/usr/bin/python3",
        "pipelining": True,
    }
    defaults = {"roles_path": project / "roles", "collections_path": project / "collections"}
    settings = {**defaults, **dict(project_settings(project)), **ours}
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    return f"[defaults]\n{lines}[inventory]\nenable_plugins = ansible.builtin.yaml\n"


def project_settings(project: Path) -> Iterator[tuple[str, str]]:
    """The settings in the project's ansible.cfg that a build honours, with absolute paths."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(project / "ansible.cfg")
    except configparser.Error:
        return
    section = parser["defaults"] if parser.has_section("defaults") else {}
    for name, value in section.items():
        if name in HONOURED:
            yield name, value
        elif name in HONOURED_PATHS:
            paths = (project / part.strip() for part in value.split(":") if part.strip())
            yield name.replace("paths", "path"), ":".join(map(os.fspath, paths))


def environment(top: Path, path: Path) -> Mapping[str, str]:
    """Ansible's variables besides the fixed ones of a sandbox; `path` is its programs' folder."""
    return {
        "PATH": f"{path}:{SBIN}",
        "HOME": os.fspath(top / "home"),
        "PYTHONPATH": os.fspath(top / "library"),
        "PYTHONHASHSEED": "0",
        "ANSIBLE_CONFIG": os.fspath(top / "ansible.cfg"),
        "IMAGEBUILDER_REACH": os.fspath(top / "reach.json"),
        "IMAGEBUILDER_TOLD": os.fspath(top / "told"),
        "IMAGEBUILDER_SKIPPED": os.fspath(top / "skipped"),
    }


def make_machine_files(inside: Inside) -> tuple[str, ...]:
    """Make them in the root; returns the words that must not get into the layer."""
    host_keys = run(["sh", "-c", MAKE], sandbox=inside).stdout.split()
    return (MACHINE_ID, *host_keys)


def find_machine_words(tree: Path, paths: Sequence[Path], words: Sequence[str]) -> str:
    """The first file that contains one of the words; "" if none."""
    for path in paths:
        place = f"/{path.relative_to(tree)}"
        found = path.lstat()  # a link may lead out of the root, to whatever this host has there
        small = stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES
        if small and place != f"{HOST_KEY}.pub":
            content = path.read_bytes()
            if any(word.encode() in content for word in words):
                return place
    return ""
