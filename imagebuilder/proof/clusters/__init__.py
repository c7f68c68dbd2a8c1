# SPDX-License-Identifier: Apache-2.0
"""What machines that compute together need of an image: agents of clusters, and programs that run
on several nodes.  The findings belong to the question `system`.
"""
