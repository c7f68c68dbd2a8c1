# SPDX-License-Identifier: Apache-2.0
"""A release: the files of an image under a path that never changes."""
