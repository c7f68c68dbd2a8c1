# SPDX-License-Identifier: Apache-2.0
"""What nodes report about themselves, and what that proves about releases in use."""
