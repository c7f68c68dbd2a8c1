# SPDX-License-Identifier: Apache-2.0
"""The room in which a playbook runs: Ansible on the builder, its tasks in the root.

builder      host's tree read-only, own /dev, /run and process numbers, mostly no network
  ansible-playbook with our connection, become and callback plugins
    |  nsenter(1), for each command
root         the step's own sandbox, which stays until the playbook has ended;
             what only a running node can do is answered by inside/shim.py
"""
