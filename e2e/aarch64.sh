#!/bin/bash
# Checks that everything compiles for AArch64, the other processor of clusters; says loudly when the
# standard library for it is not to be had.
#   aarch64.sh CARGO-ARGUMENTS…
set -eu

TARGET=aarch64-unknown-linux-gnu
if ! [ -d "$(rustc --print target-libdir --target $TARGET)" ]; then
    rustup target add $TARGET >/dev/null 2>&1 || true
fi
if ! [ -d "$(rustc --print target-libdir --target $TARGET)" ]; then
    echo "=================================================================="
    echo "1 skipped: AArch64 ($*): no standard library for it here."
    echo "Install it: rustup target add $TARGET"
    echo "=================================================================="
    exit 0
fi
exec cargo check --target $TARGET "$@"
