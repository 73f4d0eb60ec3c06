"""Hands an open file to children and goes on with it: what they wrote is there by then.

    handed.py FOLDER
"""
import os
import subprocess
import sys

LEN = 900_000
os.chdir(sys.argv[1])
FILL = ["sh", "-c", f"head -c {LEN} /dev/zero | tr '\\0' a"]


def handed():
    fd = os.open("file", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    subprocess.run(FILL, stdout=fd, check=True)
    return fd


def tell(name, found, expected):
    if found != expected:
        print(f"{name}: {found!r}")


def go_on():
    fd = handed()
    tell("pread", os.pread(fd, 2, LEN - 2), b"aa")
    os.close(fd)
    fd = handed()
    os.pwrite(fd, b"bb", LEN - 2)
    os.fsync(fd)
    tell("pwrite", os.pread(fd, 3, LEN - 3), b"abb")
    os.close(fd)
    fd = handed()
    os.ftruncate(fd, 10)
    tell("ftruncate", os.fstat(fd).st_size, 10)
    os.close(fd)
    fd = handed()
    tell("hole", os.lseek(fd, 0, os.SEEK_HOLE), LEN)
    os.close(fd)


def read_again():
    for read in [lambda fd: os.pread(fd, 3, 0), lambda fd: os.lseek(fd, 0, 0) or os.read(fd, 3)]:
        fd = os.open("again", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.write(fd, b"x" * 100)
        os.lseek(fd, 0, os.SEEK_SET)
        os.pread(fd, 3, 0)
        subprocess.run(["/bin/echo", "new"], stdout=fd, check=True)
        tell("read again", read(fd), b"new")
        os.close(fd)


def look_on():
    """By a descriptor of one's own, opened before."""
    os.close(os.open("other", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    fd = os.open("other", os.O_RDONLY)
    os.system(f"head -c {LEN} /dev/zero >other")
    tell("read", len(os.read(fd, 2 * LEN)), LEN)
    os.close(fd)


for _ in range(10):
    go_on()
    read_again()
    look_on()
