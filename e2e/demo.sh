#!/bin/bash
# Runs LAMMPS on 4 ranks natively and under `kakehi run`, and compares every byte of every file.
#   demo.sh              needs what `make setup build` provides; KAKEHI: the command to try
# Each rank writes files of its own: 119 files, 7 MB. Ends with 0 only when all are equal and
# Kakehi says that it has written them. The files are in a new folder under ${TMPDIR:-/tmp}, which
# is removed at the end.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

simulate() { # all output goes to folder $1; the second run continues from the first one's files
    local mpirun=(mpirun --allow-run-as-root --oversubscribe -n 4)
    export OMP_NUM_THREADS=1
    mkdir "$1"
    for input in in.multifile in.restart; do
        "${mpirun[@]}" lmp -in "$here/workloads/$input" -var out "$1" -log none -screen none
    done
}

if [ "${1:-}" = simulate ]; then
    simulate "$2"
    exit
fi

kakehi=${KAKEHI:-$here/../target/release/kakehi}
for program in mpirun lmp "$kakehi"; do
    command -v "$program" >/dev/null ||
        { echo "demo: no $program; run 'make setup build' first" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

seconds() { # runs "$@" and says how long it took
    local start=$EPOCHREALTIME
    "${@:2}"
    echo "demo: $1: $(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $start }") s"
}

seconds "native" bash "$0" simulate "$work/native"
seconds "under kakehi" "$kakehi" run --stats "$work/stats.json" -- bash "$0" simulate "$work/kakehi"

diff -r "$work/native" "$work/kakehi" || { echo "demo: FAILED: the files differ" >&2; exit 1; }
files=$(find "$work/kakehi" -type f | wc -l)
bytes=$(find "$work/kakehi" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }')
delegated=$(sed -n 's/.*"bytes_delegated": *\([0-9]*\).*/\1/p' "$work/stats.json" 2>/dev/null ||
    true)
if [ "${delegated:-0}" -lt "$bytes" ]; then
    echo "demo: FAILED: of $bytes bytes written, ${delegated:-0} were delegated" >&2
    exit 1
fi
echo "demo: ok: $files files, $bytes bytes, equal to the last byte; $delegated bytes delegated"
