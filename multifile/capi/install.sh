#!/bin/sh
# Installs libsion: headers, the static library that cargo built, the shared one linked from it,
# and the names that programs written for SIONlib link.
#
#     install.sh target/release/libsion.a PREFIX        (DESTDIR and CC from the environment)
set -eu

archive=$1
prefix=$2
here=$(dirname "$0")
root=${DESTDIR:-}$prefix
lib=$root/lib

mkdir -p "$root/bin" "$root/include" "$lib/pkgconfig"
install -m 644 "$here"/include/*.h* "$root/include"
install -m 644 "$archive" "$lib/libsion.a"

# Rust's own symbols stay inside; everything public carries the version SION_1.7.
${CC:-cc} -shared -o "$lib/libsion.so.1.7" -Wl,-soname,libsion.so.1 \
    -Wl,--version-script="$here/sion.map" -Wl,--gc-sections -Wl,--strip-debug -Wl,-z,defs \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lpthread -lm -ldl -lc
ln -sf libsion.so.1.7 "$lib/libsion.so.1"
ln -sf libsion.so.1 "$lib/libsion.so"

# SIONlib is many static libraries in two flavours. All of them are this one: linkers read these
# two-line scripts as if it were named instead.
for name in com_64 ser_64 gen_64 com_64_lock_none com_64_lock_pthreads; do
    for flavour in sion lsion; do
        echo 'INPUT(-lsion)' > "$lib/lib$flavour$name.so"
        echo 'INPUT(-l:libsion.a)' > "$lib/lib$flavour$name.a"
    done
done

install -m 755 "$here/sionconfig" "$root/bin/sionconfig"
install -m 644 "$here/sion.pc" "$lib/pkgconfig/sion.pc"
