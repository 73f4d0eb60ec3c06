#!/bin/sh
# Makes packages of what is built, in ${DIST:-dist}: a Debian package, an RPM, a tarball, a wheel.
#   packages.sh [deb] [rpm] [tarball] [wheel]      without an argument all of them
# Run by `make packages`, which builds first. A format whose tools are missing is skipped, with the
# reason. Prints the name of each package.
set -eu
umask 022

cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "${DIST:-dist}"
dist=$(cd "${DIST:-dist}" && pwd)
command -v objdump >/dev/null || { echo "packages: no objdump; install binutils" >&2; exit 1; }
summary="File I/O of unmodified programs, delegated to a daemon on few cores of a node"

stage() { # `make install` with prefix $1 into folder $2, without what only a build needs
    make -s -o build install PREFIX="$1" DESTDIR="$2"
    strip --strip-debug "$2$1/bin/kakehi" "$2$1/bin/kakehi-bench"
}

glibc() { # the newest release of glibc that anything in folder $1 asks for
    find "$1" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec objdump -T {} + 2>/dev/null |
        sed -n 's/.*(GLIBC_\([0-9.]*\)).*/\1/p' | sort -uV | tail -n 1
}

deb() {
    command -v dpkg-deb >/dev/null || { echo "packages: SKIPPED deb: no dpkg-deb" >&2; return 0; }
    root=$work/deb
    stage /usr "$root"
    rm -rf "$root/usr/share/modulefiles" # A system's package is always loaded.
    find "$root/usr/share/man" -name '*.[135]' -exec gzip -9n {} +
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/kakehi"
    cp LICENSE-MIT LICENSE-APACHE "$root/usr/share/doc/kakehi"
    size=$(du -sk "$root/usr" | cut -f 1)
    cat >"$root/DEBIAN/control" <<CONTROL
Package: kakehi
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The Kakehi authors <kakehi@localhost>
Installed-Size: $size
Depends: libc6 (>= $(glibc "$root")), libgcc-s1
Suggests: libucx0
Section: admin
Priority: optional
Description: $summary
 Hands the reads and writes of unmodified programs to a daemon per job, keeps
 files of many ranks in one SIONlib multifile, and serves files of other nodes.
CONTROL
    file=$dist/kakehi_${version}_$(dpkg --print-architecture).deb
    dpkg-deb --root-owner-group --build "$root" "$file" >/dev/null
    echo "$file"
}

rpm() {
    command -v rpmbuild >/dev/null || { echo "packages: SKIPPED rpm: no rpmbuild" >&2; return 0; }
    root=$work/rpm
    stage /usr "$root"
    rm -rf "$root/usr/share/modulefiles"
    (cd "$root" && find . ! -type d | sed 's|^\.||' | sort) >"$work/files"
    cat >"$work/kakehi.spec" <<SPEC
Name: kakehi
Version: $version
Release: 1
Summary: $summary
License: Apache-2.0 OR MIT
AutoReqProv: no
Requires: glibc >= $(glibc "$root"), libgcc
%description
Hands the reads and writes of unmodified programs to a daemon per job, keeps files of many ranks in
one SIONlib multifile, and serves files of other nodes.
%install
cp -a $root/. %{buildroot}
%files -f $work/files
SPEC
    # What is in the package was stripped, and is to stay as it was tested.
    rpmbuild -bb --quiet --target "$machine" --define "_topdir $work/rpmbuild" \
        --define "__os_install_post %{nil}" --define "_build_id_links none" \
        --define "_binary_payload w6.gzdio" "$work/kakehi.spec" >/dev/null
    file=$dist/kakehi-$version-1.$machine.rpm
    cp "$work/rpmbuild/RPMS/$machine/$(basename "$file")" "$file"
    echo "$file"
}

tarball() {
    name=kakehi-$version-$machine-linux
    stage /@PREFIX@ "$work/tree"
    mv "$work/tree/@PREFIX@" "$work/$name"
    cp packaging/install.sh README.md LICENSE-MIT LICENSE-APACHE "$work/$name"
    glibc "$work/$name" >"$work/$name/glibc"
    tar -C "$work" --owner=0 --group=0 --sort=name -czf "$dist/$name.tar.gz" "$name"
    echo "$dist/$name.tar.gz"
}

wheel() {
    "${PY:-python3}" -c 'import maturin' 2>/dev/null ||
        { echo "packages: SKIPPED wheel: no maturin; run 'make setup'" >&2; return 0; }
    make -s -o build wheel DIST="$dist"
}

[ -x target/release/kakehi ] || { echo "packages: nothing is built; run 'make packages'" >&2; exit 1; }
[ $# -gt 0 ] || set -- deb rpm tarball wheel
for format in "$@"; do
    case $format in
    deb | rpm | tarball | wheel) $format ;;
    *) echo "packages: unknown format '$format'; one of: deb rpm tarball wheel" >&2; exit 2 ;;
    esac
done
