# SPDX-License-Identifier: Apache-2.0
"""What may be secret in an image, which whoever can boot it can read."""
