# SPDX-License-Identifier: Apache-2.0
"""Whether a reboot would change a node, by content: kernel, root, command line, own files."""
