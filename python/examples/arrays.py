"""Stores arrays as tasks of one file, and reads them without copying.

    python3 arrays.py FILE
"""

import sys

import numpy

import kakehi


def main(path: str) -> None:
    arrays = numpy.arange(2000, dtype="f8").reshape(4, 500)
    with kakehi.Multifile(path, "w", tasks=4, chunk_size=arrays[0].nbytes, checksums=True) as out:
        for task, array in enumerate(arrays):
            out.write(task, array)

    with kakehi.Multifile(path) as stored:
        views = [numpy.frombuffer(stored.view(task), "f8") for task in range(len(stored))]
    print(f"{len(views)} tasks, sum {sum(view.sum() for view in views)}")


if __name__ == "__main__":
    main(sys.argv[1])
