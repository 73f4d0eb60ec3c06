#!/bin/bash
# Checks that everything compiles for AArch64, the other processor of clusters, by the oldest Rust
# that is promised; says loudly what is not to be had.
#   aarch64.sh CARGO-ARGUMENTS…
set -eu

TARGET=aarch64-unknown-linux-gnu
OLDEST=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml).0

has() { [ -d "$(rustc "$@" --print target-libdir --target $TARGET 2>/dev/null)" ]; }
skip() {
    echo "=================================================================="
    echo "1 skipped: $1"
    echo "Install it: $2"
    echo "=================================================================="
}

with=(+"$OLDEST")
get="rustup toolchain install $OLDEST --profile minimal --target $TARGET"
has "${with[@]}" || $get >/dev/null 2>&1 || true
if ! has "${with[@]}"; then
    skip "Rust $OLDEST ($*): it is not here." "$get"
    with=()
    has || rustup target add $TARGET >/dev/null 2>&1 || true
    if ! has; then
        skip "AArch64 ($*): no standard library for it here." "rustup target add $TARGET"
        exit 0
    fi
fi
exec cargo "${with[@]}" check --target $TARGET "$@"
