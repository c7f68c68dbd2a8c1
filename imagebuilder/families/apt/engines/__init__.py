# SPDX-License-Identifier: Apache-2.0
"""The programs that make a first layer from an apt archive."""
