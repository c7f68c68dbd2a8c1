# SPDX-License-Identifier: Apache-2.0
"""Whether the Python environments import what the profile needs."""
