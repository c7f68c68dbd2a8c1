# SPDX-License-Identifier: Apache-2.0
"""Load a profile by name into a Recipe, reporting every fault of its files at once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.agreement import check_agreement
from imagebuilder.recipe.check import (
    check_relations,
    check_sources,
    check_streams,
    check_tree,
    check_twice,
)
from imagebuilder.recipe.engines import check_engines
from imagebuilder.recipe.hardware import resolve_hardware
from imagebuilder.recipe.keys import KEYS_VAR, load_site_keys
from imagebuilder.recipe.memory import recall_documents
from imagebuilder.recipe.model import BaseFile
from imagebuilder.recipe.overlay import render_base, render_overlay, with_components
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.places import load_places
from imagebuilder.recipe.positions import Origin, read_content
from imagebuilder.recipe.read import (
    OVERLAY_FILE,
    LoadedSite,
    choose_base,
    load_chain,
    load_parts,
    load_site,
)
from imagebuilder.recipe.render import BASE_NAMES, Renderer, Scope
from imagebuilder.recipe.resolve import Merged, VarSetting, merge_chain
from imagebuilder.recipe.signing import load_signing
from imagebuilder.recipe.types import Recipe
from imagebuilder.recipe.variables import (
    DeclaredVar,
    check_declared,
    choose_values,
    declare_vars,
)
from imagebuilder.recipe.variant import load_variant
from imagebuilder.settings import Settings, find_home


def load_recipe(
    profile: str,
    settings: Settings,
    *,
    env: Mapping[str, str] | None = None,
) -> Recipe:
    """The profile with everything it names, resolved.

    It is a recipe, or a recipe on another base or by another engine (recipe/variant.py).
    `env` (default: the process's environment) determines the home that holds the ssh keys.  A var's
    value is the site's, else the recipe's or that of one it extends, else its overlay's default.
    Raises InputError with every fault, sorted by file and line.
    """
    faults: list[Fault] = []
    recall_documents(settings.state, profile)
    home = find_home(os.environ if env is None else env)
    try:
        recipe = resolve_recipe(profile, settings, home, faults)
    except OSError as error:
        where = str(error.filename or settings.project)
        raise InputError(f"cannot be read: {error.strerror}", where=where) from error
    if recipe is None or faults:
        raise InputError.of(sorted_faults(faults))
    return recipe


def sorted_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Faults by file, line and column, each once."""
    return sorted(dict.fromkeys(faults), key=lambda fault: position(fault.where))


def position(where: str) -> tuple[str, int, int]:
    """The parts of `file:line:column`; 0 for a missing number."""
    match = re.fullmatch(r"(.*?)(?::(\d+))?(?::(\d+))?", where, re.DOTALL)
    assert match is not None  # the pattern matches every text
    return match[1], int(match[2] or 0), int(match[3] or 0)


def resolve_recipe(
    profile: str, settings: Settings, home: Path, faults: list[Fault]
) -> Recipe | None:
    """The recipe as far as it can be resolved; only valid without faults."""
    # 1. Read every file, and merge the chain of recipes.
    variant = load_variant(profile, settings, faults)
    chain, whole = load_chain(variant.recipe, settings, faults) if variant else ((), False)
    site = load_site(settings, home, faults)
    if not (variant and chain):
        return None
    merged = merge_chain(chain, faults)
    devices = resolve_hardware(merged, settings, faults)
    base = choose_base(merged, variant.base, settings, faults, whole=whole)
    parts, parts_whole = load_parts(merged, settings, faults)
    all_read = whole and parts_whole

    # 2. Check the overlays together and give every var its value.
    if whole:
        check_relations(merged, parts, list(settings.find_overlays()), faults)
    check_sources(parts, faults)
    declared = declare_vars(parts.values(), faults)
    if all_read:
        check_engines(parts, faults)
        faults.extend(undeclared_faults(merged, declared, site, settings))
    chosen = choose_settings(merged, site, declared, faults)
    known, shown = whole and site.sound, str(settings.site)
    values = choose_values(declared, chosen, merged, faults, site_file=shown, all_known=known)

    # 3. Render.  What depends on something invalid is left out: one mistake, one fault.
    of_base = {name: getattr(base[1].file, name) if base else "" for name in BASE_NAMES}
    unsure = values.unsure if base else values.unsure | of_base.keys()
    names = {**values.known, **of_base, "profile": profile, "overlays": list(parts)}
    renderer = Renderer(names, unsure, partial=not all_read)
    consents = site.file.expired_release
    scopes = scopes_of(parts, merged, chosen, Scope(merged.document, renderer, faults))
    places = load_places(site, parts, settings, faults)
    overlays = tuple(
        render_overlay(part, scopes[name], consents, places, settings)
        for name, part in parts.items()
    )
    check_tree(overlays, parts, faults)
    check_twice(overlays, parts, faults)
    check_agreement(merged, devices, overlays, parts, scopes, of_base["architecture"], faults)
    if base is None:
        return None
    name, read = base
    scope = Scope(read.document, renderer, faults)
    rendered = render_base(name, read.file, scope, site.file, variant.engine)
    check_streams(rendered, overlays, parts, faults)
    kernel = choose_kernel(merged, name, read.file, faults) or rendered.kernel
    return Recipe(
        profile=profile,
        description=variant.described(merged.description),
        base=with_components(replace(rendered, kernel=kernel), overlays),
        overlays=overlays,
        vars=values.known,
        hardware=devices or (),
        boot=merged.boot,
        signing=load_signing(site, settings, faults),
    )


def scopes_of(
    parts: Mapping[str, Part], merged: Merged, chosen: Mapping[str, VarSetting], scope: Scope
) -> dict[str, Scope]:
    """The scope of each overlay: where it is listed, and where its vars were set."""
    listed = dict(merged.overlays)
    origins = {name: setting.origin for name, setting in chosen.items() if setting.origin}
    return {
        name: replace(scope, document=part.document, listed=listed[name], settings=origins)
        for name, part in parts.items()
    }


def choose_kernel(merged: Merged, name: str, base: BaseFile, faults: list[Fault]) -> str:
    """The kernel package that the recipe asks for; "" for the base's own.

    Without a hyphen it is not a package but a name, which the base must define.
    """
    if not merged.kernel:
        return ""
    wanted, origin = merged.kernel
    if wanted not in base.kernels and "-" not in wanted:
        what = f"the base {quote(name)} has no kernel named {quote(wanted)}"
        hint = suggest(wanted, base.kernels) or f"name a package, such as {base.kernel}"
        faults.append(origin.fault(what, hint))
    return base.kernels.get(wanted, wanted)


def undeclared_faults(
    merged: Merged, declared: Mapping[str, DeclaredVar], site: LoadedSite, settings: Settings
) -> list[Fault]:
    """A fault for each var of the recipe or the site that no overlay declares."""
    unknown = merged.settings.keys() - declared.keys()
    spare = declared_in([*merged.removed], unknown, settings)
    what = "no overlay of the profile declares this var"
    faults = check_declared(merged.settings, declared, spare, what)
    of_site = site_vars(site)
    spare = declared_in(list(settings.find_overlays()), of_site.keys() - declared.keys(), settings)
    return faults + check_declared(of_site, declared, spare, "no overlay declares this var")


def choose_settings(
    merged: Merged, site: LoadedSite, declared: Mapping[str, DeclaredVar], faults: list[Fault]
) -> dict[str, VarSetting]:
    """The vars that the recipe, the site file or else the user's ssh keys set."""
    chosen = {**merged.settings, **site_vars(site)}
    if KEYS_VAR in declared and KEYS_VAR not in chosen:
        chosen |= person_keys(site, declared[KEYS_VAR], faults)
    return chosen


def site_vars(site: LoadedSite) -> dict[str, VarSetting]:
    if site.document is None:
        return {}
    return {
        name: VarSetting(value, Origin(site.document, ("vars", name)))
        for name, value in site.file.vars.items()
    }


def declared_in(
    overlays: Sequence[str], names: Iterable[str], settings: Settings
) -> frozenset[str]:
    """Those of `names` that seem to be declared in overlays outside the profile.

    Reads them as text, what is readable: they may be invalid, which does not concern this profile,
    and a site file serves every profile.
    """
    wanted = frozenset(names)
    if not wanted:
        return wanted
    folders = settings.find_overlays()
    texts: list[str] = []
    for name in overlays:
        with suppress(InputError):
            content = read_content(folders[name] / OVERLAY_FILE, name)
            texts.append(content.decode(errors="replace"))
    return frozenset(
        name
        for name in wanted
        if any(re.search(rf"(^|[\s{{,]){re.escape(name)}\s*:", text) for text in texts)
    )


def person_keys(
    site: LoadedSite, declared: DeclaredVar, faults: list[Fault]
) -> dict[str, VarSetting]:
    """The ssh keys of the site or the user as a setting; empty without keys."""
    before = len(faults)
    keys = load_site_keys(site.document, site.file.ssh_keys, site.home, faults)
    if len(faults) > before:  # reported where they are written; a placeholder avoids another fault
        return {KEYS_VAR: VarSetting(["-"] * max(1, declared.model.min_items), None)}
    return {KEYS_VAR: VarSetting(keys, None)} if keys else {}
