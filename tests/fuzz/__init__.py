# SPDX-License-Identifier: Apache-2.0
"""A mutating fuzzer over every file that people and machines write; `python -m tests.fuzz`."""
