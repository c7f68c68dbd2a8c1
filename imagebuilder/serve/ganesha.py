# SPDX-License-Identifier: Apache-2.0
"""Shell scripts that start nfs-ganesha: confined to the roots, or only to test its file.

Each is one line without backslashes, as systemd wants it in a unit.
"""

from __future__ import annotations

CONFINED = "confined"  # a folder beside ganesha.conf
# Over NFS version 3 a client can look up names such as ../nodes and /etc/shadow; ganesha follows
# them to every file system that has file handles.  So it gets a mount namespace with only the roots
# $1 and the folder $2 of its files.  Its / is an overlay of the system's: that has the program and
# its libraries, but no file handles.  The namespace ends with ganesha.
CONFINE_GANESHA = (
    f"mount -t tmpfs -o mode=755 tmpfs $2/{CONFINED}; cd $2/{CONFINED}; mkdir upper work all; "
    "mount -t overlay -o lowerdir=/,upperdir=$PWD/upper,workdir=$PWD/work overlay all; cd all; "
    "mkdir -p .$1 .$2 dev proc sys run/ganesha old; "
    "mount --rbind $1 .$1; mount -o remount,bind,ro .$1; mount --bind $2 .$2; "
    # Handles contain the UUID of the file system, which it finds there.
    "for each in dev proc sys; do mount --rbind /$each $each; done; "
    "if [ -S /run/rpcbind.sock ]; then "
    ": > run/rpcbind.sock; mount --bind /run/rpcbind.sock run/rpcbind.sock; fi; "
    # Without /proc, whose links lead out of the namespace: its list of mounts is enough.
    "pivot_root . old; cd /; umount -l old; rm -f etc/mtab; "
    'grep -F " $1" proc/self/mounts > etc/mtab; umount -l proc; '
    "exec ganesha.nfsd -F -f $2/ganesha.conf -L STDOUT -p $2/ganesha.pid"
)
# nfs-ganesha cannot test its file, and ignores what it does not understand.  So it is started with
# address $1 in namespaces that end with the script, which fails if it complains about a file in $2.
# Its sockets are in a separate /run, which also contains a tree below /run.
TRY_GANESHA = (
    "ip link set lo up; ip address add $1 dev lo; mount -t tmpfs tmpfs $2/ganesha; "
    "cd $2/ganesha; mkdir run; mount --rbind /run run; mount -t tmpfs tmpfs /run; "
    "case $2 in /run/*) tree=run/$(echo $2 | cut -d/ -f3); mkdir /$tree; "
    "mount --rbind $tree /$tree;; esac; "
    "mkdir /run/ganesha /run/rpcbind; mkfifo /run/said; rpcbind -h $1; "
    "ganesha.nfsd -F -f $2/ganesha.conf -L STDOUT -p /run/ganesha.pid > /run/said 2>&1 & "
    "faults=0; while read -r line; do case $line in "
    '*"NFS SERVER INITIALIZED"*) exit $faults;; *" :EVENT :"*) continue;; '
    '*" :Config "[Ff]"ile ("*) faults=1;; esac; echo "$line"; done < /run/said; exit 1'
)
