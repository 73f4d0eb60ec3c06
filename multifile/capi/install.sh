#!/bin/sh
# Installs libsion: headers, the static library that cargo built, the shared one linked from it,
# and the names that programs written for SIONlib link. Or removes all of that again.
#
#     install.sh target/release/libsion.a PREFIX        (DESTDIR and CC from the environment)
#     install.sh --remove PREFIX
set -eu
umask 022 # Everybody's to use.

archive=$1
prefix=$2
here=$(dirname "$0")
root=${DESTDIR:-}$prefix
lib=$root/lib

# SIONlib is many static libraries in two flavours.
names=
for part in com_64 ser_64 gen_64 ser_cxx_64 com_64_lock_none com_64_lock_pthreads; do
    names="$names libsion$part liblsion$part"
done

if [ "$archive" = --remove ]; then
    for header in "$here"/include/*.h*; do
        rm -f "$root/include/$(basename "$header")"
    done
    for name in libsion $names; do
        rm -f "$lib/$name.a" "$lib/$name.so"
    done
    rm -f "$lib/libsion.so.1" "$lib/libsion.so.1.7" "$root/bin/sionconfig" "$lib/pkgconfig/sion.pc"
    rm -f "$lib/cmake/sion/sion-config.cmake" "$lib/cmake/sion/sion-config-version.cmake"
    rmdir "$lib/cmake/sion" "$lib/cmake" 2>/dev/null || true
    exit 0
fi

mkdir -p "$root/bin" "$root/include" "$lib/pkgconfig" "$lib/cmake/sion"
install -m 644 "$here"/include/*.h* "$root/include"
install -m 644 "$archive" "$lib/libsion.a"
strip --strip-debug "$lib/libsion.a"

# Rust's own symbols stay inside; everything public carries the version SION_1.7.
${CC:-cc} -shared -o "$lib/libsion.so.1.7" -Wl,-soname,libsion.so.1 \
    -Wl,--version-script="$here/sion.map" -Wl,--gc-sections -Wl,--strip-debug -Wl,-z,defs \
    -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lpthread -lm -ldl -lc
ln -sf libsion.so.1.7 "$lib/libsion.so.1"
ln -sf libsion.so.1 "$lib/libsion.so"

# All of SIONlib's libraries are this one: linkers read these scripts as if it were named instead.
for name in $names; do
    echo 'INPUT(-lsion)' > "$lib/$name.so"
    echo 'INPUT(-l:libsion.a)' > "$lib/$name.a"
done

install -m 755 "$here/sionconfig" "$root/bin/sionconfig"
install -m 644 "$here/sion.pc" "$lib/pkgconfig/sion.pc"
install -m 644 "$here"/cmake/*.cmake "$lib/cmake/sion"
