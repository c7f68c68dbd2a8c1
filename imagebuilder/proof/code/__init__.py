# SPDX-License-Identifier: Apache-2.0
"""For which chips compiled code was built."""
