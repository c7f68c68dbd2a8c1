# SPDX-License-Identifier: Apache-2.0
"""What people type: recipes, bases, overlays and the site file, as pydantic models.

The descriptions here are the reference: `imagebuilder schema` and docs/reference.md are generated
from them.  A list entry that is `{name: X, when: EXPR}` counts only when the Jinja2 expression EXPR
is true of the profile's vars.  Strings marked "template" may use vars as `{{ name }}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from imagebuilder.package_managers import DISTRIBUTIONS, ENGINES, PACKAGE_MANAGERS
from imagebuilder.recipe import rules
from imagebuilder.recipe.model_accounts import (
    AllowedSecretModel,
    GrantsModel,
    GroupModel,
    UserModel,
)
from imagebuilder.recipe.model_engine import EngineModel
from imagebuilder.recipe.model_hardware import HardwareModel
from imagebuilder.recipe.model_nightly import NightlyModel
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.recipe.model_proof import ProofModel
from imagebuilder.recipe.model_sources import (
    ArchiveModel,
    ExpiredReleaseModel,
    SourceModel,
)
from imagebuilder.recipe.model_stages import (
    AnsibleModel,
    BuildModel,
    RefusalModel,
    SlimModel,
    TargetsModel,
)
from imagebuilder.recipe.model_words import (
    Because,
    CmdlineWord,
    Entry,
    Fingerprint,
    KernelName,
    Model,
    Name,
    PackageName,
    Regex,
    RootPath,
    Uri,
    VarName,
    VarValue,
    Word,
)
from imagebuilder.rootkind import RootKind

if TYPE_CHECKING:
    from typing import TypeAlias

    Distribution: TypeAlias = str
    EngineName: TypeAlias = str
    PackageManagerName: TypeAlias = str
else:  # depends on what is installed
    Distribution, EngineName = Literal[DISTRIBUTIONS], Literal[ENGINES]
    PackageManagerName = Literal[tuple(PACKAGE_MANAGERS)]
Mirror = Annotated[str, StringConstraints(pattern=rules.MIRROR.whole)]


class BaseFile(Model):
    """recipes/bases/NAME.yaml: the distribution part of a recipe."""

    distribution: Distribution = Field(description="The distribution.")
    suite: Name = Field(description='Suite of the root, such as `trixie`, or `"9"` of Rocky Linux.')
    architecture: Literal["amd64", "arm64"] = Field(default="amd64", description="Its processor.")
    engine: EngineName | None = Field(
        default=None, description="Program that builds the first layer, such as `mmdebstrap`."
    )
    package_manager: PackageManagerName | None = Field(
        default=None, description="Package manager; by default that of the distribution."
    )
    archives: list[ArchiveModel] = Field(
        min_length=1, description="Archives that packages come from."
    )
    packages: list[Entry] = Field(default=[], description="Packages of the first layer.")
    kernels: dict[KernelName, PackageName] = Field(
        default={}, description="Kernel (meta) packages by a short name, such as `ga` and `hwe`."
    )
    kernel: PackageName = Field(
        description="Kernel (meta) package, such as `linux-image-amd64`, `kernel` on Rocky Linux, "
        "or a name of `kernels`."
    )
    path_excludes: list[RootPath] = Field(
        default=[],
        description="Path globs that no package installs; `*` stands for `/` too. On Rocky Linux "
        "only whole folders, as `/FOLDER/*`.",
    )


class VarModel(Model):
    """A variable of an overlay.  Without `default` the recipe or the site must set it."""

    type: Literal["string", "integer", "boolean", "list"] = Field(description="Its type.")
    default: VarValue | None = Field(default=None, description="Default value.")
    description: str = Field(min_length=3, description="Description.")
    choices: list[str] = Field(
        default=[], description="Allowed values (of each element, for a list)."
    )
    pattern: Regex = Field(default="", description="Regular expression a string must match fully.")
    min_items: int = Field(default=0, ge=0, description="Fewest elements of a list.")
    or_text: bool = Field(
        default=False, description="Whether a list of one element may be written as text."
    )


class FileRule(Model):
    """Mode and owner of one path below files/."""

    mode: str = Field(default="", pattern=rules.MODE.whole, description="Octal, such as `0440`.")
    owner: str = Field(default="root", description="User name. Template.")
    group: str = Field(default="root", description="Group name. Template.")
    when: str = Field(default="true", description="Jinja2 expression; false leaves the file out.")


class ScriptModel(Model):
    """A program below scripts/ that runs in the root, as root, after the overlay's files."""

    run: str = Field(description="Path below the overlay, such as `scripts/10-locale`.")
    network: bool = Field(default=False, description="Whether it may use the network.")
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class PythonModel(Model):
    """A virtual environment from hash-locked requirements (`pip-compile --generate-hashes`)."""

    path: RootPath = Field(description="Path in the root, such as `/opt/vllm`.")
    requirements: str = Field(description="Path below the overlay of the requirements file.")
    made_with: str = Field(
        default="",
        description="Command that makes that file if the overlay cannot contain it; shown if the "
        "file is missing.",
    )
    interpreter: RootPath = Field(
        default="/usr/bin/python3",
        description="Interpreter in the root, installed by a package.",
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class UnitsModel(Model):
    """systemd units, by full name."""

    enable: Annotated[list[Entry], rules.UNIT] = Field(default=[], description="systemctl enable.")
    disable: Annotated[list[Entry], rules.UNIT] = Field(
        default=[], description="systemctl disable."
    )
    mask: Annotated[list[Entry], rules.UNIT] = Field(default=[], description="systemctl mask.")


class ModulesModel(Model):
    """Kernel modules: modules-load.d(5) and modprobe.d(5)."""

    load: Annotated[list[Entry], rules.MODULE] = Field(default=[], description="Loaded at boot.")
    blacklist: Annotated[list[Entry], rules.MODULE] = Field(
        default=[], description="Modules that are never loaded by alias."
    )
    options: Annotated[dict[str, str], rules.MODULE] = Field(
        default={}, description="Options by module. Template."
    )


class OverlayFile(Model):
    """overlays/NAME/overlay.yaml: a named bundle of packages, files, scripts and checks."""

    description: str = Field(min_length=10, description="One line for `imagebuilder profiles`.")
    requires: list[Name] = Field(default=[], description="Overlays that must come before it.")
    conflicts: list[Name] = Field(default=[], description="Overlays it cannot be combined with.")
    initrd: bool = Field(
        default=False,
        description="Make the initrd from the overlays up to this one, so that packages and files "
        "of later overlays never require a new one. The last overlay that sets this decides; "
        "by default all overlays are used.",
    )
    vars: dict[VarName, VarModel] = Field(default={}, description="Its variables.")
    packages: Annotated[list[Entry], rules.PACKAGE] = Field(
        default=[], description="Packages, by their names in Debian. Template."
    )
    package_names: dict[Name, dict[str, str | list[str]]] = Field(
        default={},
        description="Names of packages (of the overlay and its builds) on other distributions: by "
        "distribution (`ubuntu`, `rocky`) or suite (`noble`, which takes precedence), then by the "
        "name in `packages`: one name, several, or none (`[]`) if nothing is needed. Templates.",
    )
    refuses: list[RefusalModel] = Field(
        default=[], description="Bases and vars that the overlay does not work with, and why."
    )
    components: Annotated[list[Entry], rules.WORD] = Field(
        default=[],
        description="More components of the distribution's archives, such as `non-free`, or "
        "`HighAvailability` of Rocky Linux (of the mirror of the base's first archive there).",
    )
    sources: list[SourceModel] = Field(default=[], description="Vendors' package repositories.")
    files: dict[RootPath, FileRule] = Field(
        default={}, description="Rules for paths below files/, as they land (without `.j2`)."
    )
    scripts: list[ScriptModel] = Field(default=[], description="Programs to run in the root.")
    python: list[PythonModel] = Field(default=[], description="Virtual environments.")
    users: list[UserModel] = Field(default=[], description="User accounts.")
    groups: list[GroupModel] = Field(default=[], description="Groups.")
    units: UnitsModel = Field(default=UnitsModel(), description="systemd units.")
    modules: ModulesModel = Field(default=ModulesModel(), description="Kernel modules.")
    sysctl: Annotated[dict[str, str | int], rules.SYSCTL] = Field(
        default={}, description="sysctl.d(5). Template."
    )
    cmdline: Annotated[list[Entry], rules.CMDLINE] = Field(
        default=[], description="Kernel parameters. Template."
    )
    prune: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Globs of paths removed from the root. Template."
    )
    listens: Annotated[list[Entry], rules.PORT] = Field(
        default=[],
        description="Ports that a node listens on, such as `22/tcp`. The boot test fails if it "
        "listens on any other, except on loopback. Template.",
    )
    grants: GrantsModel = Field(
        default=GrantsModel(), description="Ways to become root that the overlay opens on purpose."
    )
    allow_secret: list[AllowedSecretModel] = Field(
        default=[], description="Secrets that the image contains on purpose."
    )
    builds: list[BuildModel] = Field(
        default=[], description="Software that is built in a temporary tree."
    )
    ansible: list[AnsibleModel] = Field(
        default=[], description="Playbooks that run on the root, after files and scripts."
    )
    slim: SlimModel = Field(
        default=SlimModel(), description="Content that the profile does not need."
    )
    targets: list[TargetsModel] = Field(
        default=[], description="Targets that the installed software has code for."
    )
    computes: list[Entry] = Field(
        default=[],
        description="Interfaces, such as `hip` or `vulkan`, that its programs compute with; if the "
        "recipe lists devices, one of them must support each.",
    )
    proof: ProofModel = Field(
        default=ProofModel(), description="What `prove` requires of an image."
    )
    engine: EngineModel | None = Field(
        default=None, description="An inference engine that the overlay installs."
    )


class BootModel(Model):
    """How the nodes boot."""

    root: RootKind = Field(default="nfs", description="Where the root comes from.")
    console: list[CmdlineWord] = Field(
        default=["tty0", "ttyS0,115200"], description="Consoles; the last one is /dev/console."
    )
    cmdline: list[CmdlineWord] = Field(default=[], description="Additional kernel parameters.")


class RecipeFile(Model):
    """recipes/PROFILE.yaml: what a person builds."""

    description: str = Field(default="", description="One line for `imagebuilder profiles`.")
    extends: Name | None = Field(
        default=None, description="Profile that this one extends; at most 32 in a row."
    )
    base: Name | None = Field(default=None, description="A file of recipes/bases/.")
    kernel: PackageName | None = Field(
        default=None,
        description="A kernel other than the base's own: a name in the base's `kernels`, such as "
        "`hwe`, or a package.",
    )
    overlays: list[Name] = Field(default=[], description="Overlays, in order.")
    without: list[Name] = Field(
        default=[], description="Overlays of the extended profile to leave out."
    )
    vars: dict[VarName, VarValue] = Field(default={}, description="Values of variables.")
    hardware: list[HardwareModel] = Field(default=[], description="Devices that it supports.")
    boot: BootModel | None = Field(default=None, description="How its nodes boot.")


class SiteSourceModel(Model):
    """Another address of a vendor's repository: a mirror, or a replacement with another key."""

    uri: Uri = Field(description="Archive root.")
    suites: list[Word] = Field(default=[], description="Suites, if they differ.")
    components: list[Word] | None = Field(default=None, description="Components, if they differ.")
    key: str = Field(
        default="", description="Its OpenPGP certificate (`~` is your home), if it differs."
    )
    fingerprints: list[Fingerprint] = Field(
        default=[], description="Exactly the fingerprints that this key file must have."
    )
    because: Because


class SiteKeyringModel(Model):
    """The keyring of a mirror that signs its archives itself, as aptly and reprepro do."""

    keyring: RootPath = Field(description="Keyring on the host, instead of the base's.")
    because: Because


class ModuleSigningModel(Model):
    """The key that signs kernel modules. Only its certificate becomes part of an image."""

    key: str = Field(description="RSA private key without a password, PEM (`~` is your home).")
    certificate: str = Field(description="Its X.509 certificate, PEM (`~` is your home).")


class SiteFile(Model):
    """~/.config/imagebuilder/site.yaml: what depends on the site and not on the recipe."""

    vars: dict[VarName, VarValue] = Field(default={}, description="Values of variables.")
    ssh_keys: list[str] = Field(
        default=[], description="Public keys, or paths of files with them (`~` is your home)."
    )
    mirrors: dict[Name, Mirror] = Field(
        default={},
        description="Mirrors by name (`debian`, `debian-security`, `ubuntu`, `ubuntu-security`, "
        "`rocky`, `epel`), instead of those in the host's own sources.",
    )
    keyrings: dict[Name, SiteKeyringModel] = Field(
        default={}, description="Keyrings of mirrors that sign their archives themselves, by name."
    )
    expired_release: dict[Name, ExpiredReleaseModel] = Field(
        default={},
        description="Consent to expired Release files, by suite or by the name of a source.",
    )
    sources: dict[Name, SiteSourceModel] = Field(
        default={}, description="Other addresses of vendors' repositories, by the source's name."
    )
    module_signing: ModuleSigningModel | None = Field(
        default=None,
        description="Key that signs the modules that overlays build, for nodes with Secure Boot.",
    )
    nightly: NightlyModel = Field(default=NightlyModel(), description="Nightly runs.")
    notify: NotifyModel = Field(default=NotifyModel(), description="Notifications.")
