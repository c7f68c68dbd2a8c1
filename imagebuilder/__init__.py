# SPDX-License-Identifier: Apache-2.0
"""Golden root filesystems for GPU and NPU nodes: locked, layered, proved, netbooted."""

__version__ = "0.1.0"
