"""Writes a zarr group of many small files into one multifile, and reads it from there.

The program that writes is not changed: ``kakehi run --coalesce`` keeps its files together.

    python3 zarr_group.py FOLDER [KAKEHI]
"""

import os
import subprocess
import sys

import numpy
import zarr

import kakehi

WRITE = """
import sys, numpy, zarr
group = zarr.open_group(sys.argv[1], mode="w")
array = group.create_array("field", shape=(1000, 1000), chunks=(100, 100), dtype="f8")
array[:] = numpy.arange(1_000_000).reshape(1000, 1000)
"""


def main(folder: str, command: str) -> None:
    local, container = os.path.join(folder, "out"), os.path.join(folder, "out.kakehi")
    os.makedirs(local, exist_ok=True)
    run = [command, "run", "--coalesce", f"{local}={container}", "--"]
    subprocess.run([*run, sys.executable, "-c", WRITE, f"{local}/group"], check=True)

    print(f"{len(kakehi.Multifile(container).names)} files in {container}")
    group = zarr.open_group(f"kakehi://group::{container}", mode="r")
    field = group["field"][:]
    assert numpy.array_equal(field.ravel(), numpy.arange(1_000_000))
    print(f"read {field.size} numbers")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else kakehi.command())
