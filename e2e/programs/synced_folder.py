"""Makes the names of an open folder durable, also once somebody else has removed it.

    synced_folder.py FOLDER THE_SAME_BY_ANOTHER_NAME
"""
import errno
import os
import sys

ours, theirs = [os.path.join(folder, "made") for folder in sys.argv[1:]]
os.mkdir(ours)
fd = os.open(ours, os.O_RDONLY | os.O_DIRECTORY)
os.close(os.open(os.path.join(ours, "file"), os.O_WRONLY | os.O_CREAT))
os.fsync(fd)
os.fdatasync(fd)
os.unlink(os.path.join(ours, "file"))
os.rmdir(theirs)
try:
    os.fsync(fd)
except OSError as error:
    print(errno.errorcode[error.errno])
