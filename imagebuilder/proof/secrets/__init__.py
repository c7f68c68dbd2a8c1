# SPDX-License-Identifier: Apache-2.0
"""Secrets in an image, which everybody who can boot it can read."""
