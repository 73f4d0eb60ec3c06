#!/bin/sh
# A folder behind slowfs: RIG.sh start DIR "ARGUMENTS OF SLOWFS". See rig.sh. The numbers of its
# requests are in DIR.counts once it is stopped.
. "$(dirname "$0")/rig.sh"

needs=fusermount3
SERVERS=slowfs.pid
: "${SLOWFS:=$(dirname "$0")/../../target/release/slowfs}"

up() {
    [ -c /dev/fuse ] || unable "no /dev/fuse"
    [ -x "$SLOWFS" ] || unable "no $SLOWFS: run 'make build'"
    mkdir "$DIR/source"
    # shellcheck disable=SC2086 # several arguments
    "$SLOWFS" ${1:-} --counts "$DIR.counts" "$DIR/source" "$DIR/mnt" >"$DIR/log" 2>&1 </dev/null &
    echo $! >"$DIR/run/slowfs.pid"
    until_true mountpoint -q "$DIR/mnt" || fail "not mounted: $(cat "$DIR/log")"
}

# Unmounted it ends, once it has said how many requests there were.
end_all() {
    pid=$(cat "$DIR/run/slowfs.pid" 2>/dev/null) || return 0
    kill -CONT "$pid" 2>/dev/null || return 0
    until_true is_gone "$pid" || kill -KILL "$pid"
}

main "$@"
