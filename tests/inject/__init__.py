# SPDX-License-Identifier: Apache-2.0
"""A fault at every call that changes the file system, whichever process makes it."""
