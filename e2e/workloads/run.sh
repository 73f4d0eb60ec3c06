#!/bin/bash
# Runs one real program so that all its output is under DIR.
#   run.sh NAME DIR       NAME: lammps openfoam qe python git tar sqlite
#   run.sh needs NAME     what NAME needs and this machine has not, one a line; nothing: it can run
# Environment: WRAP  put before every program, after mpirun: `kakehi run --`
#              PY    a Python with zarr 3, h5py, netCDF4, numpy, and mpi4py; default python3
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 WM_PROJECT_DIR=/usr/share/openfoam
mpi="mpirun --allow-run-as-root --oversubscribe -n 4"
python=${PY:-python3}
cases=/usr/share/doc/openfoam-examples/examples
pseudo=/usr/share/doc/quantum-espresso/examples/EPW/sic/pp/Si.pz-vbc.UPF.gz
modules="zarr, h5py, netCDF4, numpy, mpi4py"

needs() {
    local program programs files=
    case $1 in
    lammps) programs="mpirun lmp" ;;
    openfoam) programs="mpirun blockMesh icoFoam" files=$cases ;;
    qe) programs="mpirun pw.x" files=$pseudo ;;
    python) programs="mpirun $python" ;;
    git) programs=git ;;
    tar) programs="tar diff find" ;;
    sqlite) programs=sqlite3 ;;
    *) echo "run.sh: no workload $1" >&2; exit 2 ;;
    esac
    for program in $programs; do command -v "$program" >/dev/null || echo "$program"; done
    [ -z "$files" ] || [ -e "$files" ] || echo "$files"
    [ "$1" != python ] || "$python" -c "import $modules; assert zarr.__version__ > '3'" 2>/dev/null ||
        echo "Python modules $modules"
}

if [ "$1" = needs ]; then
    needs "$2"
    exit
fi
name=$1 dir=$2 W=${WRAP:-}
input=$(mktemp -d)
# Two that make the same folder at once fail.
export OMPI_MCA_orte_tmpdir_base=$input
trap 'rm -rf "$input"' EXIT

cavity() { # OpenFOAM's tutorial on 2x2 domains: 25 steps are written, binary
    cp -r "$cases/incompressible/icoFoam/cavity/cavity" "$input"
    gunzip -rq "$input/cavity" 2>/dev/null || true
    cat >"$input/cavity/system/decomposeParDict" <<-'END'
	FoamFile { version 2.0; format ascii; class dictionary; object decomposeParDict; }
	numberOfSubdomains 4; method simple; simpleCoeffs { n (2 2 1); delta 0.001; }
	END
    sed -i 's/^writeInterval.*/writeInterval 4;/; s/^writeFormat.*/writeFormat binary;/' \
        "$input/cavity/system/controlDict"
}

sources() { # a repository of one commit per folder of this one
    local from=$here/../.. folder
    git init -q "$input/src"
    for folder in client transport daemon runtime cli e2e; do
        mkdir "$input/src/$folder"
        (cd "$from/$folder" && find . -type f -size -100k -print0 | sort -z |
            xargs -0 cp --parents -t "$input/src/$folder")
        git -C "$input/src" add .
        git -C "$input/src" commit -q -m "$folder"
    done
}

mkdir "$dir"
case $name in
lammps) # C++ over C stdio: a restart and two dump files per rank and step
    $mpi $W lmp -in "$here/in.multifile" -var out "$dir" -log none -screen none
    $mpi $W lmp -in "$here/in.restart" -var out "$dir" -log none -screen none
    ;;
openfoam) # C++ streams: read, write, writev, readdir, stat; a folder per rank and step
    cavity
    $W cp -r "$input/cavity/." "$dir/"
    $W blockMesh -case "$dir"
    $W decomposePar -case "$dir"
    $mpi $W icoFoam -parallel -case "$dir"
    $W reconstructPar -case "$dir"
    ;;
qe) # Fortran: read, write, lseek, ftruncate, unlink; a direct-access file per rank
    gunzip -c "$pseudo" >"$input/Si.pz-vbc.UPF"
    sed "s#@HERE@#$input#; s#@OUT@#$dir#" "$here/si.scf.in" >"$input/scf.in"
    sed "s/'scf'/'nscf'/" "$input/scf.in" >"$input/nscf.in"
    for step in scf nscf; do
        $mpi $W pw.x -in "$input/$step.in" >"$input/$step.out" 2>&1
        grep -q 'JOB DONE' "$input/$step.out"
    done
    ;;
python) # zarr (a file per chunk, renamed into place), HDF5, netCDF, NumPy (dup, mmap), JSON lines
    $mpi $W "$python" "$here/arrays.py" "$dir" | grep '^OK'
    ;;
git) # many small files, mapped packs, lock files, rename, helpers by fork and exec
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    export GIT_AUTHOR_DATE=@1700000000 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
    export GIT_COMMITTER_DATE=@1700000000 GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    # Which deltas a pack gets depends on who of several threads was faster.
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=pack.threads GIT_CONFIG_VALUE_0=1
    sources
    $W bash -c 'set -e
        git clone -q --no-hardlinks "$1" "$0/c"
        cd "$0/c"
        echo hi >NEW
        git add NEW
        git commit -q -m x
        git gc -q
        git fsck --no-progress
        git status --short' "$dir" "$input/src"
    ;;
tar) # unpack, pack, copy, compare, find, remove, shell redirections
    tar cf "$input/a.tar" -C /usr/share/doc libc6
    mkdir "$input/tree"
    cp -r "$here/.." "$input/tree/e2e"
    tar rf "$input/a.tar" -C "$input" tree
    $W bash -c 'set -e
        cd "$0"
        tar xf "$1"
        mkdir z
        cp -a tree z/
        diff -r tree z/tree
        tar cf z.tar --sort=name --mtime=@0 tree
        find . -type f ! -name list.txt | sort >list.txt
        wc -l <list.txt >>list.txt
        rm -rf z
        ls -lR tree >/dev/null' "$dir" "$input/a.tar"
    ;;
sqlite) # byte-range locks, fdatasync, a mapped WAL index
    $W sqlite3 "$dir/a.db" <"$here/sqlite.sql" | grep '^ok'
    sed s/=DELETE/=WAL/ "$here/sqlite.sql" | $W sqlite3 "$dir/b.db" | grep '^ok'
    $W sqlite3 "$dir/b.db" 'pragma wal_checkpoint(truncate)'
    ;;
esac
