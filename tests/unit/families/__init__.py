# SPDX-License-Identifier: Apache-2.0
"""Tests of the families, one folder each."""
