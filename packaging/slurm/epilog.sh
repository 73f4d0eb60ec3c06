#!/bin/sh
# Slurm Epilog= (slurm.conf): drains what the daemon of prolog.sh accepted, and ends it.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin # Slurm sets none; kakehi has to be in it.
kakehi=$(command -v kakehi) || exit 0
as_user() { runuser -u "$SLURM_JOB_USER" -- env -i PATH="$PATH" KAKEHI_JOB="$SLURM_JOB_ID" "$@"; }
as_user "$kakehi" drain --timeout 5min >/dev/null 2>&1
pid=$(as_user "$kakehi" status --json 2>/dev/null |
    sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' | head -n 1)
[ -z "$pid" ] || kill "$pid"
exit 0
