# SPDX-License-Identifier: Apache-2.0
"""What a person can do about a source that does not answer or is not trusted."""

from __future__ import annotations

from imagebuilder.recipe.types import Source


def vendor_of(source: Source | None) -> Source | None:
    """The source, if it is a vendor's and not the distribution's."""
    return source if source and source.uri else None


def distrusted(source: Source | None) -> str:
    """The hint for an invalid signature."""
    vendor = vendor_of(source)
    if not vendor:
        return "this is not the expected mirror, or the pinned key is outdated"
    pinned = ", ".join(vendor.fingerprints) or vendor.key.name
    return (
        f"it is not signed with the pinned key ({pinned}): either it is not the vendor's, or the "
        "vendor has a new key; compare with what the vendor publishes before changing the pin"
    )


def unreached(source: Source | None, variable: str = "") -> str:
    """The hint for a source that does not answer; `variable` names a mirror too, "" for none."""
    vendor = vendor_of(source)
    if not vendor:
        other = f" or with {variable}" if variable else ""
        return (
            "check the network and the proxy, or choose another mirror in the site file "
            f"(mirrors:){other}"
        )
    return (
        "check the network and the proxy, or set another address of this repository in the site "
        f"file, sources: {{{vendor.id}: {{uri: ADDRESS, because: REASON}}}}; locked packages in "
        "the pool can be built without it"
    )
