#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A root that is a file on a web server; sourced by imagebuilderroot.
# in:  nothing but what the functions are given
# out: the image in a tmpfs of its size, mounted; /run/imagebuilder/hopeless if it never will be

image=$ib_mounts/image/root

seconds() { sed 's/\..*//' /proc/uptime; }
image_size() { stat -c %s "$image" 2> /dev/null || echo 0; }

# fetch_image URL MOUNTPOINT: goes on where an earlier call was cut off; says on stderr what is wrong
fetch_image() {
    headers=$(timeout 20 busybox wget -S --spider "$1" 2>&1) || { echo "$headers" >&2; return 1; }
    length=$(echo "$headers" | sed -n 's/^ *[Cc]ontent-[Ll]ength: *\([0-9]*\).*/\1/p' | sed -n '$p')
    [ -n "$length" ] || { echo 'the server does not say how long the image is' >&2; return 1; }
    make_room "$length" || return 1
    watch_progress "$length" &
    watcher=$!
    busybox wget -q -c -T 15 -O "$image" "$1"
    kill $watcher
    [ "$(image_size)" = "$length" ] || {
        echo "the connection ended after $(image_size) of $length bytes" >&2
        # What came is kept; as long as more comes each time, this is worth going on with.
        deadline=$(($(seconds) + wait))
        return 1
    }
    mount_image "$image" "$(image_type "$1")" "$2" && return 0
    # It will be no other one in a minute.  Whoever leaves the shell has it fetched anew.
    rm -f "$image"
    : > "$ib_run/hopeless"
    return 1
}

# make_room BYTES: a tmpfs for the image, if the node has the memory
make_room() {
    ismounted "$ib_mounts/image" && return 0
    free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
    if [ $(($1 / 1024)) -ge "$free" ]; then
        : > "$ib_run/hopeless"
        echo "the image has $(($1 >> 20)) MiB, this node only $((free >> 10)) MiB of free memory" >&2
        return 1
    fi
    mkdir -p "$ib_mounts/image"
    mount -t tmpfs -o "mode=0700,size=$(($1 + 1048576))" imagebuilder "$ib_mounts/image"
}

# watch_progress BYTES: how much of the image is here, every ten seconds
watch_progress() {
    while sleep 10; do say "root: $(($(image_size) * 100 / $1)) % of $(($1 >> 20)) MiB"; done
}
