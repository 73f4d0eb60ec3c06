#!/bin/sh
# A GlusterFS of one machine: two bricks, files distributed over them, and a mount, by volume files
# instead of `glusterd`, which would write to /var. See rig.sh.
. "$(dirname "$0")/rig.sh"

needs="glusterfsd glusterfs unshare nsenter ip"
SERVERS="brick1.pid brick2.pid"

up() {
    [ -c /dev/fuse ] || unable "no /dev/fuse"
    network
    for number in 1 2; do
        mkdir "$DIR/brick$number"
        brick "$number" >"$DIR/brick$number.vol"
        within glusterfsd -f "$DIR/brick$number.vol" -p "$DIR/run/brick$number.pid" \
            -l "$DIR/brick$number.log" || fail "brick $number: $(tail -n 3 "$DIR/brick$number.log")"
    done
    client >"$DIR/client.vol"
    within glusterfs -f "$DIR/client.vol" -p "$DIR/run/mount.pid" -l "$DIR/mount.log" \
        --process-name fuse "$DIR/mnt" || fail "the mount: $(tail -n 3 "$DIR/mount.log")"
    until_true sh -c "echo x >'$DIR/mnt/.ready' && grep -qx x '$DIR/mnt/.ready'" ||
        fail "nothing can be written: $(tail -n 3 "$DIR/mount.log")"
    rm "$DIR/mnt/.ready"
}

brick() {
    cat <<END
volume posix
  type storage/posix
  option directory $DIR/brick$1
end-volume
volume acl
  type features/access-control
  subvolumes posix
end-volume
volume locks
  type features/locks
  subvolumes acl
end-volume
volume threads
  type performance/io-threads
  option thread-count 16
  subvolumes locks
end-volume
volume brick$1
  type debug/io-stats
  subvolumes threads
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 10.213.0.$1
  option transport.socket.listen-port 49152
  option auth.addr.brick$1.allow *
  subvolumes brick$1
end-volume
END
}

# As glusterd makes it for a volume without settings.
client() {
    for number in 1 2; do
        cat <<END
volume client$number
  type protocol/client
  option transport-type tcp
  option remote-host 10.213.0.$number
  option remote-port 49152
  option remote-subvolume brick$number
  option ping-timeout 42
  option send-gids true
end-volume
END
    done
    below=distribute
    cat <<END
volume distribute
  type cluster/distribute
  option lock-migration off
  subvolumes client1 client2
end-volume
END
    for kind in features/utime performance/write-behind performance/open-behind \
        performance/quick-read performance/md-cache; do
        printf 'volume %s\n  type %s\n  subvolumes %s\nend-volume\n' "${kind#*/}" "$kind" "$below"
        below=${kind#*/}
    done
    printf 'volume all\n  type debug/io-stats\n  subvolumes %s\nend-volume\n' "$below"
}

main "$@"
