#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pre-pivot hook: copies the node's own files, which a second initrd put below /imagebuilder/node,
# onto the new root, with their modes and numeric owners.
# in:  /imagebuilder/node in the initramfs
# out: files in $NEWROOT; never outside: tar unpacks inside a chroot, where a symlink of the root
#      cannot lead out, and replaces a symlink in a file's place instead of writing through it

. /lib/imagebuilder-lib.sh

node_files=/imagebuilder/node

# What cannot be copied: special files, and places that other filesystems will cover.
unfit() {
    (cd "$node_files" && busybox find . \
        \( -path './proc/*' -o -path './sys/*' -o -path './dev/*' -o -path './run/*' -o -path './tmp/*' \) \
        -o ! \( -type f -o -type d -o -type l \))
}

copy() {
    busybox tar -C "$node_files" -cf - . |
        busybox chroot "$NEWROOT" tar -xpf - -C / \
            --numeric-owner --no-overwrite-dir --keep-directory-symlink
}

if [ -d "$node_files" ]; then
    stage node-files
    bad=$(unfit | sed 5q | tr '\n' ' ')
    if [ -n "$bad" ]; then
        fail node-files "these cannot be a node's own files: $bad" \
            'what the server packs for this node: regular files, directories and symlinks' \
            'their place: not below /proc /sys /dev /run /tmp, where other filesystems come'
    elif ! copy 2> "$ib_run/error"; then
        fail node-files "$(sed -n 1p "$ib_run/error")" "tar in the root, the size of the overlay" \
            "$node_files in the shell below"
    fi
fi
