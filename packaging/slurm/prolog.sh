#!/bin/sh
# Slurm Prolog= (slurm.conf): starts a daemon on each node of a job that was submitted with
# --comment=kakehi, as the job's user. If that fails the job runs all the same, undelegated.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin # Slurm sets none; kakehi has to be in it.
case ${SLURM_JOB_COMMENT:-} in *kakehi*) ;; *) exit 0 ;; esac
kakehi=$(command -v kakehi) || exit 0
runuser -u "$SLURM_JOB_USER" -- env -i PATH="$PATH" KAKEHI_JOB="$SLURM_JOB_ID" \
    "$kakehi" serve --background >/dev/null 2>&1
exit 0
