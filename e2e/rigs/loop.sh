#!/bin/sh
# A local file system in a file: RIG.sh start DIR xfs|btrfs|ext4. See rig.sh.
. "$(dirname "$0")/rig.sh"

needs=mount
SERVERS=

up() {
    command -v "mkfs.$1" >/dev/null || unable "no mkfs.$1: run 'make setup'"
    truncate -s 2G "$DIR/image"
    "mkfs.$1" -q "$DIR/image" >"$DIR/mkfs.log" 2>&1 || fail "mkfs.$1: $(tail -n 3 "$DIR/mkfs.log")"
    mount -o loop "$DIR/image" "$DIR/mnt" 2>"$DIR/mount.log" ||
        unable "$1 cannot be mounted: $(cat "$DIR/mount.log")"
}

main "$@"
