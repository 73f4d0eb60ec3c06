#!/bin/sh
# Makes a Debian machine ready: a linker, Rust, and what the demonstration and the tests run.
#   setup.sh build|demo|all        build: to compile; demo: LAMMPS besides; all: every test's programs
# As root it installs what is missing. As an ordinary user it changes nothing of the system: it
# names what is missing and the command that installs it, and gets Rust into the home folder.
set -eu

RUST_MIN=1.85
BUILD="gcc libc6-dev make ca-certificates curl"
DEMO="openmpi-bin lammps fuse3"
TESTS="libopenmpi-dev mpich libmpich-dev libucx0 openfoam openfoam-examples quantum-espresso
    quantum-espresso-data git sqlite3 strace g++ gfortran cmake util-linux mount python3-venv
    iproute2 iptables fuse3 busybox-static fio btrfs-progs moosefs-master moosefs-chunkserver
    moosefs-client glusterfs-server glusterfs-client slurm-wlm munge musl-tools valgrind xfsprogs
    acl stress-ng liburing-dev python3-h5py rpm rsync lua5.4 debootstrap"

missing() { # the packages of "$@" that are not installed
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            printf '%s ' "$package"
    done
}

at_least() { # version $1 >= $2
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

install() {
    [ -n "$*" ] || return 0
    command -v apt-get >/dev/null ||
        { echo "setup: install with this system's packager: $*" >&2; exit 1; }
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: missing: $*; have root run: apt-get install --no-install-recommends $*" >&2
        exit 1
    fi
    [ -n "${updated:-}" ] || apt-get -o Acquire::Retries=5 update -q
    updated=1
    DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=5 install -qy --no-install-recommends "$@"
}

candidate() { # the version of package $1 that Debian offers, or nothing
    apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9.]*\).*/\1/p'
}

rust() { # a cargo that is new enough: the one there is, Debian's, or rustup's
    version=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || version=
    if [ -n "$version" ] && at_least "$version" "$RUST_MIN"; then
        echo "setup: cargo $version"
        return
    fi
    # Debian 13 has it as `cargo`, Debian 12 a later one, without clippy, as `cargo-web`.
    if [ "$(id -u)" -eq 0 ] && at_least "$(candidate rustfmt)" "$RUST_MIN"; then
        install cargo rustfmt rust-clippy
    elif [ "$(id -u)" -eq 0 ] && at_least "$(candidate cargo-web)" "$RUST_MIN"; then
        install cargo-web rustfmt-web
    elif command -v rustup >/dev/null; then
        rustup toolchain install stable --profile default
    else
        echo "setup: no cargo $RUST_MIN or later: installing rustup in $HOME" >&2
        curl --proto '=https' --tlsv1.2 --retry 5 -sSf https://sh.rustup.rs |
            sh -s -- -y --profile default --no-modify-path
    fi
    cargo --version || {
        echo "setup: Rust could not be installed; install cargo $RUST_MIN or later by hand" >&2
        exit 1
    }
}

exercisers() { # what tests run that Debian does not package; without them these tests are skipped
    command -v fsx >/dev/null || cargo install --locked --quiet fsx ||
        echo "setup: no fsx: its tests are skipped" >&2
    otf2 >/dev/null 2>&1 || echo "setup: no source of OTF2: its test is skipped" >&2
    [ -x target/venv/bin/python ] || python3 -m venv target/venv || return 0
    target/venv/bin/python -c 'import zarr, h5py, netCDF4, numpy, mpi4py' 2>/dev/null ||
        target/venv/bin/pip install --quiet zarr h5py netCDF4 numpy mpi4py ||
        echo "setup: no Python modules: the Python workload is skipped" >&2
    target/venv/bin/python -c 'import maturin, pytest, fsspec, mypy' 2>/dev/null ||
        target/venv/bin/pip install --quiet maturin pytest fsspec mypy ||
        echo "setup: no maturin: the wheel is neither built nor tested" >&2
    target/venv/bin/python -c 'import rattler_build, easybuild.easyblocks, pycodestyle' 2>/dev/null ||
        target/venv/bin/pip install --quiet py-rattler-build easybuild-easyblocks \
            easybuild-framework pycodestyle ||
        echo "setup: no EasyBuild: recipes are not checked by their managers" >&2
}

otf2() { # Debian's source of OTF2, into target/otf2; packages and lists of the system stay as they are
    ls target/otf2/*.orig.tar.xz >/dev/null 2>&1 && return
    command -v apt-get >/dev/null || return 1
    lists=$(mktemp -d)
    mkdir -p target/otf2 "$lists/lists/partial" "$lists/cache/archives/partial"
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    echo "deb-src http://deb.debian.org/debian $release main" >"$lists/sources.list"
    set -- -q -o "Dir::Etc::SourceList=$lists/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache"
    apt-get "$@" update && (cd target/otf2 && apt-get "$@" source --download-only otf2)
    code=$?
    rm -rf "$lists"
    return $code
}

python_tests() { # the package with the tests of Debian's Python, which has its version in its name
    version=$(candidate python3 | cut -d . -f 1,2)
    [ -z "$version" ] || echo "libpython$version-testsuite"
}

case ${1:-all} in
build) packages=$BUILD ;;
demo) packages="$BUILD $DEMO" ;;
all) packages="$BUILD $DEMO $TESTS $(python_tests)" ;;
*) echo "setup: unknown part '$1'; one of: build demo all" >&2; exit 2 ;;
esac
PATH=$HOME/.cargo/bin:$PATH
if command -v dpkg-query >/dev/null; then
    # shellcheck disable=SC2086 # lists of package names
    install $(missing $packages)
fi
rust
if [ "${1:-all}" = all ]; then
    exercisers
fi
echo "setup: ready"
