#!/bin/sh
# Installs libkakehi: the header, the Fortran module's source, the static library that cargo built,
# and the shared one linked from it. Or removes all of that again.
#
#     install.sh target/release/libkakehi_capi.a PREFIX VERSION     (DESTDIR and CC: environment)
#     install.sh --remove PREFIX
set -eu
umask 022 # Everybody's to use.

archive=$1
prefix=$2
here=$(dirname "$0")
root=${DESTDIR:-}$prefix
lib=$root/lib

if [ "$archive" = --remove ]; then
    rm -f "$root/include/kakehi.h" "$root/include/kakehi.f90" "$lib/pkgconfig/kakehi.pc"
    rm -f "$lib/libkakehi.a" "$lib/libkakehi.so" "$lib/libkakehi.so.1"
    exit 0
fi

mkdir -p "$root/include" "$lib/pkgconfig"
install -m 644 "$here/include/kakehi.h" "$here/kakehi.f90" "$root/include"
install -m 644 "$archive" "$lib/libkakehi.a"
strip --strip-debug "$lib/libkakehi.a"

# Rust's own symbols stay inside; everything public carries the version KAKEHI_1.
${CC:-cc} -shared -o "$lib/libkakehi.so.1" -Wl,-soname,libkakehi.so.1 \
    -Wl,--version-script="$here/kakehi.map" -Wl,--gc-sections -Wl,--strip-debug -Wl,-z,defs \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lpthread -ldl -lc
ln -sf libkakehi.so.1 "$lib/libkakehi.so"

sed "s|@VERSION@|$3|" "$here/kakehi.pc" > "$lib/pkgconfig/kakehi.pc"
