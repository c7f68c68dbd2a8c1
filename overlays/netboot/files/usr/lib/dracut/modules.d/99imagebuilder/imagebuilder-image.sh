#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A root that is one file, a squashfs or an erofs; sourced by imagebuilderroot.
# in:  what the functions are given
# out: the file mounted; on stderr what is wrong with it

# image_type NAME: the file system in a file of that name
image_type() {
    case $1 in
        *.erofs) echo erofs ;;
        *) echo squashfs ;;
    esac
}

# number FILE OFFSET BYTES: an unsigned number of that many bytes, little-endian
number() { echo $(($(od -A n -t "u$3" -j "$2" -N "$3" "$1") + 0)); }

# check_image FILE TYPE: whether it is one, and here to its end.  The kernel has the same word for
# every fault, and does not look for the end of an erofs.  The places are those of the superblocks:
# fs/squashfs/squashfs_fs.h and fs/erofs/erofs_fs.h in Linux.
check_image() {
    case $2 in
        squashfs) magic=1936814952 start=0 ;;
        erofs) magic=3774210530 start=1024 ;;
    esac
    here=$(stat -L -c %s "$1") || return 1
    if [ "$here" -lt 4096 ] || [ "$(number "$1" "$start" 4)" != "$magic" ]; then
        echo "no whole $2: it does not begin as one" >&2
        return 1
    fi
    case $2 in
        squashfs) long=$(number "$1" 40 8) ;;
        erofs) long=$(($(number "$1" 1060 4) << $(number "$1" 1036 1))) ;;
    esac
    [ "$here" -ge "$long" ] && return 0
    echo "no whole $2: it ends after $here of $long bytes" >&2
    return 1
}

# mount_image FILE TYPE MOUNTPOINT [LOSETUP OPTION]
mount_image() {
    check_image "$1" "$2" || return 1
    device=$(losetup --find --show --read-only ${4:+"$4"} "$1") || return 1
    mount -t "$2" -o ro "$device" "$3" && return 0
    losetup -d "$device"
    return 1
}
