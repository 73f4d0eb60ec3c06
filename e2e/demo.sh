#!/bin/bash
# Runs two programs natively and under `kakehi run`, and compares every byte of every file:
# - LAMMPS on 4 ranks, each of which writes files of its own: 119 files, 7 MB.
# - 4 processes that write 5,000 lines each to a file system whose requests take 200 us, as those of
#   a distributed one do.
#   demo.sh              needs what `make setup build` provides; KAKEHI: the command to try
# Ends with 0 only when all files are equal, Kakehi says that it has written those of LAMMPS, and the
# lines take less time with it. The files are in a new folder under ${TMPDIR:-/tmp}, which is removed
# at the end.
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

lines() { # 4 files in folder $1, line by line, as a log or a solver's text output is written
    mkdir "$1"
    for rank in 0 1 2 3; do
        awk 'BEGIN { for (i = 0; i < 5000; i++) {
            printf "rank '$rank', step %d: one line of a record\n", i >ARGV[1]; fflush(ARGV[1])
        } }' "$1/out.$rank" &
    done
    wait
}

case ${1:-} in
simulate | lines)
    "$1" "$2"
    exit
    ;;
esac

kakehi=${KAKEHI:-$here/../target/release/kakehi}
for program in mpirun lmp "$kakehi"; do
    command -v "$program" >/dev/null ||
        { echo "demo: no $program; run 'make setup build' first" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'bash "$here/rigs/slowfs.sh" stop "$work/slow" 2>/dev/null || true; rm -rf "$work"' EXIT

seconds() { # runs "$@", says how long it took, and leaves that in $took
    local start=$EPOCHREALTIME
    "${@:2}"
    took=$(awk "BEGIN { printf \"%.2f\", $EPOCHREALTIME - $start }")
    echo "demo: $1: $took s"
}

slow() { # writes the lines to a slow file system, by command "${@:2}", and keeps them as $work/$1
    bash "$here/rigs/slowfs.sh" start "$work/slow" "--data 200us --metadata 200us"
    seconds "$1, to a slow file system" "${@:2}" bash "$0" lines "$work/slow/mnt/lines"
    cp -r "$work/slow/mnt/lines" "$work/$1"
    bash "$here/rigs/slowfs.sh" stop "$work/slow"
    requests=$(awk '$1 == "write" { print $2 }' "$work/slow.counts")
}

seconds "native" bash "$0" simulate "$work/native"
# LAMMPS's files are short, and left to the kernel by default: here their bytes are to be compared.
export KAKEHI_STAGE_AFTER=0ms
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
unset KAKEHI_STAGE_AFTER

reason=$(bash "$here/rigs/slowfs.sh" start "$work/slow" "" 2>&1) ||
    { echo "demo: SKIPPED lines to a slow file system: $reason"; exit 0; }
bash "$here/rigs/slowfs.sh" stop "$work/slow"
slow native-lines
native=$took native_requests=$requests
slow kakehi-lines "$kakehi" run --
diff -r "$work/native-lines" "$work/kakehi-lines" ||
    { echo "demo: FAILED: the lines differ" >&2; exit 1; }
awk "BEGIN { exit !($took < $native) }" ||
    { echo "demo: FAILED: $took s with Kakehi, $native s without" >&2; exit 1; }
echo "demo: ok: equal lines, $(awk "BEGIN { printf \"%.1f\", $native / $took }") times faster:" \
    "$requests requests of the file system instead of $native_requests"
