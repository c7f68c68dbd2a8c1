# SPDX-License-Identifier: Apache-2.0
"""The chips that compiled code was built for."""
