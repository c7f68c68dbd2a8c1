# SPDX-License-Identifier: Apache-2.0
"""The boot test: a release boots in QEMU through the whole chain, in an isolated network."""
