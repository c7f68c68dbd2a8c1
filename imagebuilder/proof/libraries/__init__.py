# SPDX-License-Identifier: Apache-2.0
"""Every library that a program loads."""
