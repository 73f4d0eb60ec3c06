# Copyright The Kakehi authors.
# SPDX-License-Identifier: (Apache-2.0 OR MIT)
"""Kakehi for Spack, from the checkout that this file is in:

    spack repo add CHECKOUT/packaging/spack
    spack install kakehi
"""

from pathlib import Path

from spack.package import *

try:  # Spack 1.0 has build systems in a repository of their own.
    from spack_repo.builtin.build_systems.generic import Package
except ImportError:
    pass

CHECKOUT = Path(__file__).resolve().parents[4]


class Kakehi(Package):
    """File I/O of unmodified programs, delegated to a daemon on few cores of a node."""

    git = f"file://{CHECKOUT}"

    license("Apache-2.0 OR MIT", checked_by="kakehi")

    version("main", branch="main")

    variant("mpi", default=True, description="Parallel calls of SIONlib for one MPI")
    variant("ucx", default=False, description="Other nodes by UCX, which is loaded at run time")

    depends_on("c", type="build")
    depends_on("rust@1.85:", type="build")
    depends_on("gmake", type="build")
    depends_on("mpi", when="+mpi")
    depends_on("ucx", type="run", when="+ucx")

    conflicts("platform=darwin", msg="Linux only")

    def install(self, spec, prefix):
        make("build")
        make("-o", "build", "install", f"PREFIX={prefix}")
        if spec.satisfies("+mpi"):
            make("install-mpi", f"PREFIX={prefix}", f"MPICC={spec['mpi'].mpicc}")

    def setup_run_environment(self, env):
        env.prepend_path("LD_LIBRARY_PATH", self.prefix.lib)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        kakehi = Executable(self.prefix.bin.kakehi)
        kakehi("doctor")
