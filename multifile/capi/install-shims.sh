#!/bin/sh
# Compiles and installs what depends on the site's compilers, beside a core that install.sh put
# there. Parts: omp (libsionomp_64), fortran (libsionser_f77_64 and modules), mpi (libsionmpi_64,
# libsionompi_64, libsionmpi_f77_64; compile with $MPICC).
#
#     MPICC=mpicc install-shims.sh PREFIX [omp] [fortran] [mpi]
#     install-shims.sh --remove PREFIX
#
# Each MPI has a folder of its own, PREFIX/lib/NAME, so several can stand side by side; the one
# installed first is also found in PREFIX/lib. Also from the environment: CC, FC, CFLAGS, DESTDIR.
set -eu
umask 022 # Everybody's to use.

remove=
if [ "$1" = --remove ]; then
    remove=1
    shift
fi
prefix=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
root=${DESTDIR:-}$prefix
lib=$root/lib
if [ -n "$remove" ]; then
    for part in omp_64 ompi_64 mpi_64 mpi_cxx_64 mpi_f77_64 mpi_f90_64 ser_f77_64 ser_f90_64; do
        for folder in "$lib" "$lib/openmpi" "$lib/mpich" "$lib/mpi"; do
            rm -f "$folder/libsion$part".* "$folder/liblsion$part".*
        done
    done
    rm -f "$root/include/mod_64/"sion_f90*.mod
    rmdir "$lib/openmpi" "$lib/mpich" "$lib/mpi" "$root/include/mod_64" 2>/dev/null || true
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile() { # COMPILER FILE...: objects in $work
    compiler=$1
    shift
    for file in "$@"; do
        $compiler -std=gnu11 -O2 -fPIC -Wall -Wextra ${CFLAGS:-} -I"$root/include" \
            -c "$here/shims/$file.c" -o "$work/$file.o"
    done
}

library() { # COMPILER FOLDER NAME OBJECT... [LIBRARY]...: static and shared, in both flavours
    compiler=$1 folder=$2 name=$3
    shift 3
    objects= libraries=
    for word in "$@"; do
        case $word in
            -*) libraries="$libraries $word" ;;
            *) objects="$objects $work/$word.o" ;;
        esac
    done
    mkdir -p "$folder"
    rm -f "$folder/libsion$name.a"
    # shellcheck disable=SC2086 # lists of words
    {
        ar crs "$folder/libsion$name.a" $objects
        $compiler -shared ${CFLAGS:-} -o "$folder/libsion$name.so.1" $objects $libraries \
            -Wl,-soname,"libsion$name.so.1" -Wl,--version-script="$here/sion.map" \
            -Wl,-rpath,'$ORIGIN:$ORIGIN/..' -L"$lib" -lsion
    }
    ln -sf "libsion$name.so.1" "$folder/libsion$name.so"
    echo "INPUT(-lsion$name)" > "$folder/liblsion$name.so"
    echo "INPUT(-l:libsion$name.a)" > "$folder/liblsion$name.a"
}

fortran() {
    compile "${CC:-cc}" fortran
    library "${CC:-cc}" "$lib" ser_f77_64 fortran
    mkdir -p "$root/include/mod_64"
    for module in sion_f90 sion_f90_mpi sion_f90_omp sion_f90_ompi; do
        (cd "$root/include/mod_64" && ${FC:-gfortran} -fsyntax-only "$here/fortran/$module.f90")
    done
    # Modules hold interfaces only.
    same ser_f90_64 ser_f77_64 "$lib"
}

same() { # ALIAS NAME FOLDER: a library by another of SIONlib's names
    for flavour in sion lsion; do
        echo "INPUT(-lsion$2)" > "$3/lib$flavour$1.so"
        echo "INPUT(-l:libsion$2.a)" > "$3/lib$flavour$1.a"
    done
}

mpi_name() { # of the MPI whose compiler is $1
    printf '%s\n' '#include <mpi.h>' '#ifdef OPEN_MPI' openmpi '#elif defined(MPICH)' mpich \
        '#else' mpi '#endif' > "$work/name.c"
    $1 -E -P "$work/name.c" | tail -n 1
}

mpi() {
    mpicc=${MPICC:-mpicc}
    which=$(mpi_name "$mpicc")
    own=$lib/$which
    compile "$mpicc" sion_mpi fortran_mpi fortran
    compile "$mpicc -fopenmp" sion_ompi fortran_ompi
    library "$mpicc" "$own" mpi_64 sion_mpi
    library "$mpicc -fopenmp" "$own" ompi_64 sion_ompi fortran_ompi
    library "$mpicc" "$own" mpi_f77_64 fortran_mpi fortran "-L$own" -lsionmpi_64
    same mpi_f90_64 mpi_f77_64 "$own"
    same mpi_cxx_64 mpi_64 "$own"
    # Programs that found theirs there must not find another: they would crash.
    case $(readlink "$lib/libsionmpi_64.so.1") in
        '' | "$which"/*) (cd "$lib" && ln -sf "$which"/lib*sion* .) ;;
    esac
}

omp() {
    compile "${CC:-cc} -fopenmp" sion_omp fortran_omp
    library "${CC:-cc} -fopenmp" "$lib" omp_64 sion_omp fortran_omp
}

for part in "$@"; do
    case $part in
        omp | fortran | mpi) "$part" ;;
        *) echo "install-shims.sh: no part '$part'" >&2; exit 2 ;;
    esac
done
