#!/bin/sh
# Slurm TaskProlog= (slurm.conf): lines `export NAME=VALUE` of its output are set for the task. If
# prolog.sh has started a daemon for the job, the task's programs use it.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin # Slurm sets none; kakehi has to be in it.
command -v kakehi >/dev/null || exit 0
unset XDG_RUNTIME_DIR # The prolog has none, and the daemon's folder depends on it.
export KAKEHI_JOB="$SLURM_JOB_ID"
kakehi status --json >/dev/null 2>&1 || exit 0
kakehi env --json 2>/dev/null | sed -n 's/^ *"\([A-Z_]*\)": *"\(.*\)",\{0,1\}$/export \1=\2/p'
