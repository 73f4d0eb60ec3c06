#!/bin/sh
# A MooseFS of one machine: a master, a chunk server, and a mount. See rig.sh.
. "$(dirname "$0")/rig.sh"

needs="mfsmaster mfschunkserver mfsmount unshare nsenter ip"
SERVERS=.mfschunkserver.lock
MASTER=10.213.0.1

up() {
    [ -c /dev/fuse ] || unable "no /dev/fuse"
    network
    mkdir "$DIR/master" "$DIR/chunks" "$DIR/data"
    printf 'MFSM NEW' >"$DIR/master/metadata.mfs"
    echo '* / rw,alldirs,admin,maproot=0:0' >"$DIR/exports.cfg"
    echo '* . rw' >>"$DIR/exports.cfg"
    : >"$DIR/topology.cfg"
    echo "~$DIR/data" >"$DIR/hdd.cfg"
    common="WORKING_USER = root
WORKING_GROUP = root
NICE_LEVEL = 0"
    cat >"$DIR/master.cfg" <<END
$common
DATA_PATH = $DIR/master
EXPORTS_FILENAME = $DIR/exports.cfg
TOPOLOGY_FILENAME = $DIR/topology.cfg
MATOML_LISTEN_HOST = $MASTER
MATOCS_LISTEN_HOST = $MASTER
MATOCL_LISTEN_HOST = $MASTER
END
    cat >"$DIR/chunks.cfg" <<END
$common
DATA_PATH = $DIR/chunks
HDD_CONF_FILENAME = $DIR/hdd.cfg
MASTER_HOST = $MASTER
CSSERV_LISTEN_HOST = 10.213.0.2
HDD_LEAVE_SPACE_DEFAULT = 256MiB
MASTER_RECONNECTION_DELAY = 1
END
    within mfsmaster -c "$DIR/master.cfg" start >"$DIR/master.log" 2>&1 ||
        fail "the master: $(tail -n 3 "$DIR/master.log")"
    ln -s "$DIR/master/.mfsmaster.lock" "$DIR/run/"
    within mfschunkserver -c "$DIR/chunks.cfg" start >"$DIR/chunks.log" 2>&1 ||
        fail "the chunk server: $(tail -n 3 "$DIR/chunks.log")"
    ln -s "$DIR/chunks/.mfschunkserver.lock" "$DIR/run/"
    within mfsmount "$DIR/mnt" -H "$MASTER" -o mfsioretries=10 >"$DIR/mount.log" 2>&1 || fail "the mount: $(tail -n 3 "$DIR/mount.log")"
    until_true sh -c "echo x >'$DIR/mnt/.ready' && grep -qx x '$DIR/mnt/.ready'" ||
        fail "nothing can be written"
    # A master that has just started takes 11 s for the first change of a length.
    truncate -s 1 "$DIR/mnt/.ready"
    rm "$DIR/mnt/.ready"
}

main "$@"
