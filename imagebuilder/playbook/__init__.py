# SPDX-License-Identifier: Apache-2.0
"""Playbooks of overlays: Ansible runs on the builder, its tasks in the root.

builder      programs of the host and the project, read-only; mostly no network
  ansible-playbook with our connection, become and callback plugins
    |  command_socket.py: a connection for each command
root         the step's own sandbox, which stays until the playbook has ended;
             what only a running node can do is answered by inside/shim.py
"""
