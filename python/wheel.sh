#!/bin/sh
# Builds the wheel of what is built already: the Python module, and beside it the command, the
# preload library, libkakehi, libsion, headers, and man pages.
#
#     wheel.sh VERSION FOLDER               (PY and MAKE from the environment)
set -eu
version=$1
folder=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
python=${PY:-python3}

own=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml")
[ "$own" = "$version" ] || {
    echo "wheel: python/Cargo.toml has version $own, the workspace $version: make them equal" >&2
    exit 1
}
"$python" -m maturin --version >/dev/null 2>&1 || {
    echo "wheel: $python has no maturin: run '$python -m pip install maturin', or set PY" >&2
    exit 1
}

# Laid out as `make install` does, then as a wheel: it has no links, and no paths of a prefix.
stage=$root/target/wheel
data=$stage/data/data
rm -rf "$stage"
mkdir -p "$stage/data/scripts" "$data"
"${MAKE:-make}" -s -C "$root" -o build install PREFIX=/usr "DESTDIR=$stage/prefix" >&2
cd "$stage/prefix/usr"
mv bin/kakehi bin/sionconfig "$stage/data/scripts"
strip --strip-debug "$stage/data/scripts/kakehi" lib/libkakehi_preload.so
rm -rf share/modulefiles
mv include share lib "$data"
cd "$data/lib"
rm -rf systemd
find . -name '*.a' -delete
for name in libkakehi libsion; do
    real=$(readlink -f $name.so.1)
    [ "$real" = "$PWD/$name.so.1" ] || mv "$real" $name.so.1
    rm -f $name.so
    echo "INPUT(-l:$name.so.1)" >$name.so
done

# The oldest glibc that has everything the command and the libraries want names the platform.
cd "$stage/data"
minor=$(for file in scripts/kakehi data/lib/*.so*; do objdump -T "$file" 2>/dev/null || true; done |
    sed -n 's/.*GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
[ "${minor:-0}" -ge 17 ] || minor=17

mkdir -p "$folder"
rm -f "$folder"/kakehi-*.whl
cd "$here"
"$python" -m maturin build --release --quiet --interpreter "$python" \
    --compatibility "manylinux_2_$minor" --out "$folder" >&2
ls "$folder"/kakehi-*.whl
