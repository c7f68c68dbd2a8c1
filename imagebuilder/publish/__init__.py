# SPDX-License-Identifier: Apache-2.0
"""Image -> Release -> Channel: the netboot tree and every change of it."""
