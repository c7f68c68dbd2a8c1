# SPDX-License-Identifier: Apache-2.0
"""What apt, dpkg and debconf leave in a root, and where they keep what is a site's own."""

from __future__ import annotations

from imagebuilder.families.protocol import SecretFile

# As Family.leftovers.
LEFTOVERS = (
    "/var/lib/apt/lists/*", "/var/cache/apt/*", "/var/log/apt/*", "/var/cache/debconf/*-old",
    "/var/lib/dpkg/*-old", "/var/lib/dpkg/lock*", "/var/lib/dpkg/triggers/Lock",
)  # fmt: skip
# As Family.site_files.
SITE_FILES = (
    "/etc/resolv.conf.dpkg*", "/etc/apt/auth.conf", "/etc/apt/auth.conf.d/*",
    "/etc/apt/apt.conf.d/*proxy*",
)  # fmt: skip
IN_ADDRESS = rb"://[^\s/:@'\"]+:[^\s/@'\"]+@"
SECRETS = (
    SecretFile("apt password", r"/etc/apt/auth\.conf(\.d/.+)?", rb"(?m)^\s*[^#\s]"),
    SecretFile("apt proxy password", r"/etc/apt/apt\.conf(\.d/.+)?", IN_ADDRESS),
    SecretFile("apt source password", r"/etc/apt/sources\.list(\.d/.+)?", IN_ADDRESS),
)
# What apt and dpkg of the host read, which engines run.
ON_HOST = (
    "/var/lib/dpkg", "/etc/apt/apt.conf", "/etc/apt/apt.conf.d", "/etc/apt/keyrings",
    "/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d", "/etc/debian_version", "/etc/debootstrap",
    "/etc/dpkg",
)  # fmt: skip
