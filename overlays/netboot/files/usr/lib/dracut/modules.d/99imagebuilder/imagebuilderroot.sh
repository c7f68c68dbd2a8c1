#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mounts the root read-only and a writable tmpfs over it.
# usage: imagebuilderroot NIC imagebuilder:ROOT NEWROOT, called by dracut when a NIC is online
# in:  imagebuilder.root-wait=SECONDS (60), imagebuilder.overlay-size=SIZE (50%)
# out: NEWROOT mounted

. /lib/imagebuilder-lib.sh
. /lib/nfs-lib.sh
. /lib/imagebuilder-image.sh
. /lib/imagebuilder-fetch.sh

root=${2#imagebuilder:} root=${root%:}
NEWROOT=$3
lower=$ib_mounts/lower
wait=$(getarg imagebuilder.root-wait=) || wait=60
size=$(getarg imagebuilder.overlay-size=) || size=50%

# A release never changes: nothing is revalidated, locked or stamped with access times.
immutable=ro,hard,nocto,noatime,actimeo=86400,retry=0

# mount_export PATH MOUNTPOINT: with $options; without a version of theirs 4.1, or 3 for nfs:
mount_export() {
    case "$nfs,$options," in
        *,vers=* | *,nfsvers=* | *,v[34]*) version= ;;
        nfs4,*) version=,vers=4.1 ;;
        *) version=,vers=3 ;;
    esac
    [ "$nfs" = nfs4 ] || version=$version,nolock,mountproto=tcp
    timeout 40 mount -t "$nfs" -o "$immutable$version${options:+,$options}" "$server:$1" "$2"
}

# mount_packed: $path is a file on an export.  Its folder is let go of after a failure, or what was
# read of the file would be believed for a day.
mount_packed() {
    mkdir -p "$ib_mounts/image"
    mount_export "${path%/*}" "$ib_mounts/image" || return 1
    file=$ib_mounts/image/${path##*/}
    if [ -f "$file" ]; then
        mount_image "$file" "$(image_type "$file")" "$lower" --direct-io=on && return 0
    else
        echo "there is no file ${path##*/} in ${path%/*}" >&2
    fi
    umount "$ib_mounts/image"
    return 1
}

try() {
    : > "$ib_run/error"
    case $root in
        http://*) fetch_image "$root" "$lower" ;;
        *.squashfs | *.erofs) mount_packed ;;
        *) mount_export "$path" "$lower" ;;
    esac 2> "$ib_run/error"
}

# answers: whether something accepts connections at $server $port (nc itself gives up after 3 s)
answers() {
    timeout 5 busybox nc -w 3 "$server" "$port" < /dev/null > /dev/null 2>&1
    [ $? -ne 1 ]
}

# give_up WHAT: the failure of stage root, with what each side can look at
give_up() {
    answers || set -- "$server does not answer on TCP port $port ($1)"
    address=$(ip -o -4 address show scope global | sed -n 's/^[0-9]*: *\([^ ]*\) *inet \([^ ]*\).*/\1 \2/p')
    fail root "$root: $1" \
        "root= on the kernel command line: the server's address, the path, the release in it" \
        "the server $server: $service" \
        "this node: ${address:-it has no address}; cable, switch port, VLAN, firewall between the two"
}

# 1. Whom we talk to.
case $root in
    http://*)
        server=${root#http://} server=${server%%/*} port=80
        case $server in *:*) port=${server##*:} server=${server%:*} ;; esac
        service='is the web server running, has it that file (see its log)'
        ;;
    *)
        nfs_to_var "$root" "$1"
        port=2049
        service='does it run, does it export that path to this node (exportfs -v, its log)'
        ;;
esac
mkdir -p "$lower"
boot_nic "$server"

# 2. The root, read-only.  Leaving the emergency shell tries again.
stage root
before='' deadline=$(($(seconds) + wait))
until try; do
    said=$(sed '/^ *$/d; /dmesg(1) may have more/d' "$ib_run/error" | sed -n '$p')
    said=${said:-no answer}
    [ "$said" = "$before" ] || say "root: $said; trying for $wait s"
    before=$said
    sleep 2
    if [ "$(seconds)" -ge $deadline ] || [ -e "$ib_run/hopeless" ]; then
        give_up "$said"
        deadline=$(($(seconds) + wait))
    fi
done
[ -e "$lower/usr/lib/systemd/systemd" ] || [ -e "$lower/sbin/init" ] ||
    fail root "$root: it is mounted, but there is no operating system in it" \
        "the path in root=: it must be the root filesystem itself" "ls $lower in the shell below"

# 3. What the node writes goes to memory.  overlayfs cannot have its upper on NFS.
stage overlay
mkdir -p "$ib_mounts/overlay"
{
    mount -t tmpfs -o "mode=0755,size=$size" imagebuilder "$ib_mounts/overlay" &&
        mkdir -m 0755 "$ib_mounts/overlay/upper" "$ib_mounts/overlay/work" &&
        mount -t overlay -o "lowerdir=$lower,upperdir=$ib_mounts/overlay/upper,workdir=$ib_mounts/overlay/work" \
            imagebuilder "$NEWROOT"
} 2> "$ib_run/error" ||
    fail overlay "$(sed -n '$p' "$ib_run/error")" \
        "imagebuilder.overlay-size=$size on the kernel command line" "dmesg | grep overlay"
