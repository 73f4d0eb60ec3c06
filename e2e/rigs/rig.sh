# What the rigs share: a scratch folder, a network namespace, and servers known by their pid files.
# Sourced by a rig, which defines `up`, what it `needs`, and the names of its data `SERVERS`:
#   RIG.sh start DIR          makes DIR, which must not be there, and mounts a file system at DIR/mnt
#   RIG.sh signal DIR NAME    sends a signal to the servers that keep the data
#   RIG.sh stop DIR           unmounts, ends every process, and removes DIR
# Exit status: 0; 77 where this machine cannot have the rig, with the reason on standard error.
set -eu

PATH=$PATH:/usr/sbin:/sbin

unable() {
    echo "$*" >&2
    exit 77
}

fail() {
    echo "$0: $*" >&2
    exit 1
}

# Waits up to 30 s until a command succeeds.
until_true() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || return 1
        sleep 0.1
    done
}

# The servers find each other at 10.213.0.1 and 10.213.0.2: the two ends of a veth pair in a
# namespace of their own, so that no address of this machine is touched.
network() {
    touch "$DIR/net"
    unshare --net="$DIR/net" true 2>/dev/null || unable "no network namespace can be made"
    for end in "lo" "veth0 10.213.0.1" "veth1 10.213.0.2"; do
        # shellcheck disable=SC2086 # a name and an address
        set -- $end
        [ "$1" != veth0 ] || within ip link add veth0 type veth peer name veth1 ||
            unable "no veth pair can be made"
        [ -z "${2:-}" ] || within ip address add "$2/24" dev "$1"
        within ip link set "$1" up
    done
}

# Runs a command in the rig's network; mounts it makes are everybody's.
within() {
    nsenter --net="$DIR/net" "$@"
}

# Ends the processes of the pid files and waits until they are gone.
end_all() {
    for file in "$DIR"/run/*.pid "$DIR"/run/.*.lock; do
        [ -s "$file" ] || continue
        pid=$(cat "$file")
        kill -CONT "$pid" 2>/dev/null || continue
        kill -TERM "$pid" 2>/dev/null || continue
        until_true is_gone "$pid" || kill -KILL "$pid"
    done
}

is_gone() {
    ! kill -0 "$1" 2>/dev/null || grep -q '^State:.*Z' "/proc/$1/status"
}

down() {
    umount -l "$DIR/mnt" 2>/dev/null || true
    end_all
    if [ -e "$DIR/net" ]; then
        umount "$DIR/net" 2>/dev/null || true
    fi
    rm -rf "$DIR"
}

main() {
    what=${1:-} DIR=${2:-}
    [ -n "$DIR" ] || fail "usage: $0 start|signal|stop DIR [ARGUMENT]"
    case $what in
    start)
        [ "$(id -u)" -eq 0 ] || unable "only root can mount it"
        for program in $needs; do
            command -v "$program" >/dev/null || unable "no $program: run 'make setup'"
        done
        mkdir "$DIR"
        DIR=$(cd "$DIR" && pwd)
        mkdir "$DIR/mnt" "$DIR/run"
        trap 'down' EXIT
        up "${3:-}"
        trap - EXIT
        ;;
    signal)
        for server in $SERVERS; do
            kill "-${3:?a signal}" "$(cat "$DIR/run/$server")"
        done
        ;;
    stop) [ ! -e "$DIR" ] || { DIR=$(cd "$DIR" && pwd) && down; } ;;
    *) fail "unknown '$what'" ;;
    esac
}
