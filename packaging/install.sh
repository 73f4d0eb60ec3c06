#!/bin/sh
# Installs Kakehi from its tarball. Nothing is compiled, and nothing else is needed.
#   ./install.sh [PREFIX]            PREFIX: ~/.local, for root /usr/local
#   ./install.sh --remove [PREFIX]
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
remove=
[ "${1:-}" != --remove ] || { remove=1; shift; }
if [ "$(id -u)" -eq 0 ]; then default=/usr/local; else default=$HOME/.local; fi
prefix=${1:-$default}
case $prefix in
*[[:space:]:]* | [!/]*)
    echo "install.sh: '$prefix' has to be an absolute path without spaces and colons" >&2
    exit 2
    ;;
esac

files() { # what is installed, by its name below the prefix
    (cd "$here" && find bin include lib share ! -type d)
}

if [ -n "$remove" ]; then
    files | while read -r name; do rm -f "$prefix/$name"; done
    echo "install.sh: removed from $prefix"
    exit 0
fi

wanted=$(cat "$here/glibc")
found=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2)
if [ -z "$found" ] || [ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]
then
    echo "install.sh: this system has glibc '$found', and $wanted or later is needed;" \
        "build Kakehi here by 'make install'" >&2
    exit 1
fi

files | while read -r name; do
    mkdir -p "$prefix/$(dirname "$name")"
    rm -f "$prefix/$name" # Whatever runs keeps what it has.
    cp -P "$here/$name" "$prefix/$name"
    # Text that names the prefix; a binary never does.
    if [ ! -L "$prefix/$name" ] && grep -qI '/@PREFIX@' "$prefix/$name"; then
        sed -i "s|/@PREFIX@|$prefix|g" "$prefix/$name"
    fi
done
echo "install.sh: installed in $prefix; try '$prefix/bin/kakehi doctor'"
