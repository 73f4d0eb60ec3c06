# What a program sees of files that another node removes: stale.py FOLDER_OF_THAT_NODE
import os
import sys


def other_removes(name):
    os.unlink(os.path.join(sys.argv[1], name))


def write(name):
    with open(name, "w") as file:
        file.write("text")


def said(call, *args):
    try:
        call(*args)
        return "done"
    except OSError as why:
        return why.strerror


write("seen")
other_removes("seen")
print(said(os.stat, "seen"))
write("read")
file = os.open("read", os.O_RDONLY)
print(os.read(file, 9).decode())
other_removes("read")
print(said(os.close, file))
