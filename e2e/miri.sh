#!/bin/bash
# Runs the tests of the named packages under Miri; says loudly when there is no Miri to be had.
#   miri.sh -p PACKAGE…
set -eu

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    rustup component add miri rust-src --toolchain nightly >/dev/null 2>&1 || true
fi
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "=================================================================="
    echo "1 skipped: Miri ($*): no nightly tool chain with Miri here."
    echo "Install it: rustup toolchain install nightly --component miri,rust-src"
    echo "=================================================================="
    exit 0
fi
# Its own target folder: Miri's builds share nothing with others.
exec cargo +nightly miri test --target-dir target/miri "$@"
