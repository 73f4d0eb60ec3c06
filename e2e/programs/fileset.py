"""Says, a line each, what the calls on files come to that programs make beside read and write.

    fileset.py FOLDER [FOLDER ON ANOTHER FILE SYSTEM]
"""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile

HERE, FOLLOW, EMPTY = -100, 0x400, 0x1000
libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long


def call(name, *arguments):
    value = getattr(libc, name)(*arguments)
    if value < 0:
        raise OSError(ctypes.get_errno(), name)
    return value


def tell(name, what):
    try:
        found = what()
        print(f"{name}: {found!r}")
    except OSError as error:
        print(f"{name}: {errno.errorcode.get(error.errno, error.errno)}")


def make(name, data=b"0123456789"):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, data)
    return fd


def space(fd):
    def sized(mode, at, length):
        call("fallocate", fd, mode, long(at), long(length))
        return os.fstat(fd).st_size, os.pread(fd, 10, 0)

    tell("fallocate", lambda: sized(0, 0, 100))
    tell("fallocate past the end", lambda: sized(1, 0, 1000))
    tell("fallocate a hole", lambda: sized(3, 2, 4))
    tell("fallocate zeros", lambda: sized(16, 0, 4))
    os.pwrite(fd, b"x" * 65536, 0)
    os.pwrite(fd, b"behind", 65536)
    tell("fallocate to collapse", lambda: sized(8, 0, 65536))
    tell("fallocate to insert", lambda: sized(32, 0, 65536))
    os.ftruncate(fd, 1000)
    tell("fallocate nothing", lambda: sized(0, 0, 0))
    tell("posix_fallocate", lambda: (os.posix_fallocate(fd, 0, 200), os.fstat(fd).st_size))
    tell("posix_fadvise", lambda: os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED))
    tell("truncate", lambda: (os.truncate("a", 3), os.stat("a").st_size))
    os.close(make("cut", b"x" * 8192))
    cut = os.open("cut", os.O_RDONLY)
    tell("read", lambda: len(os.read(cut, 10)))
    tell("read of what was cut", lambda: (os.truncate("cut", 15), os.read(cut, 10)))
    tell("ftruncate", lambda: (os.ftruncate(fd, 30), os.stat("a").st_size))
    tell("sync_file_range", lambda: call("sync_file_range", fd, long(0), long(0), 2))
    tell("syncfs", lambda: call("syncfs", fd))
    tell("fsync of a folder", lambda: os.fsync(os.open(".", os.O_RDONLY)))


def copies(fd):
    other = make("b")
    pipe = os.pipe()
    tell("copy_file_range", lambda: os.copy_file_range(other, fd, 10, 0, 5))
    tell("sendfile", lambda: os.sendfile(pipe[1], other, 0, 5))
    tell("splice", lambda: os.splice(other, pipe[1], 5, offset_src=0))
    tell("clone", lambda: fcntl.ioctl(fd, 0x40049409, other))
    tell("mmap to read", lambda: mmap.mmap(fd, 30, mmap.MAP_SHARED, mmap.PROT_READ)[:3])
    tell("mmap of one's own", lambda: mmap.mmap(fd, 30, mmap.MAP_PRIVATE)[:3])
    tell("mmap to write", lambda: mmap.mmap(fd, 30, mmap.MAP_SHARED)[:3])
    tell("preadv2", lambda: os.preadv(fd, [bytearray(3)], 0, os.RWF_HIPRI))
    tell("pwritev2", lambda: os.pwritev(fd, [b"xyz"], 0, os.RWF_DSYNC))
    tell("read after them", lambda: os.pread(fd, 10, 20))


def asynchronous(_):
    fd = make("asynchronous")
    request, data = ctypes.create_string_buffer(168), ctypes.create_string_buffer(b"xyz")
    # Descriptor, data, and length; no notification; and where to.
    struct.pack_into("i12xQQ", request, 0, fd, ctypes.addressof(data), 3)
    struct.pack_into("i", request, 44, 1)
    struct.pack_into("q", request, 128, 4)

    def written():
        call("aio_write", request)
        while libc.aio_error(request) == errno.EINPROGRESS:
            pass
        return libc.aio_return(request), os.pread(fd, 10, 0)

    tell("aio_write", written)


def locks(_):
    fd = make("locked")

    def is_locked():
        child = os.fork()
        if child == 0:
            try:
                fcntl.lockf(os.open("locked", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(child, 0)[1] >> 8

    tell("locked", lambda: (fcntl.lockf(fd, fcntl.LOCK_EX), is_locked()))
    other = os.open("locked", os.O_RDONLY)
    tell("unlocked by another number's close", lambda: (os.close(other), is_locked()))


def attributes(fd):
    tell("setxattr", lambda: os.setxattr("a", "user.k", b"v"))
    tell("getxattr", lambda: os.getxattr("a", "user.k"))
    tell("listxattr", lambda: os.listxattr("a"))
    tell("fsetxattr", lambda: os.setxattr(fd, "user.k", b"v"))
    tell("removexattr", lambda: os.removexattr("a", "user.k"))
    tell("statvfs", lambda: os.statvfs("a").f_namemax)
    tell("fstatvfs", lambda: os.fstatvfs(fd).f_namemax)
    status = ctypes.create_string_buffer(256)
    tell("statx", lambda: call("statx", HERE, b"a", 0, 0x7FF, status))
    tell("statx of a descriptor", lambda: call("statx", fd, b"", EMPTY, 0x7FF, status))
    tell("statx, unknown flag", lambda: call("statx", HERE, b"a", 0x10000, 0x7FF, status))
    tell("utime", lambda: (os.utime("a", ns=(5, 7)), os.stat("a").st_mtime_ns))
    tell("futimens", lambda: (os.utime(fd, ns=(5, 8)), os.fstat(fd).st_mtime_ns))
    tell("chmod", lambda: (os.chmod("a", 0o640), os.stat("a").st_mode))
    tell("fchmod", lambda: (os.fchmod(fd, 0o600), os.stat("a").st_mode))
    tell("chown", lambda: os.chown("a", -1, -1))
    tell("fchown", lambda: os.fchown(fd, -1, -1))
    tell("access", lambda: os.access("a", os.W_OK))


def names(fd):
    make("r1"), make("r2", b"zz")

    def rename(old, new, flags):
        call("renameat2", HERE, old, HERE, new, flags)
        return os.stat(new).st_size

    tell("rename over none", lambda: rename(b"r1", b"r2", 1))
    tell("rename to none", lambda: rename(b"r1", b"r3", 1))
    tell("exchange", lambda: rename(b"r3", b"r2", 2))
    tell("link", lambda: (os.link("a", "hard"), os.fstat(fd).st_nlink))
    other = make("linked")
    tell("linkat of a descriptor", lambda: call("linkat", other, b"", HERE, b"hard2", EMPTY))
    tell("symlink", lambda: (os.symlink("a", "soft"), os.readlink("soft")))
    tell("readlink of a file", lambda: os.readlink("a"))
    tell("lutime", lambda: os.utime("soft", ns=(5, 9), follow_symlinks=False))
    tell("lchown", lambda: os.lchown("soft", -1, -1))
    tell("open of a link", lambda: os.open("soft", os.O_NOFOLLOW))
    tell("mkfifo", lambda: os.mkfifo("fifo"))
    tell("mknod", lambda: os.mknod("node", stat.S_IFREG | 0o600))
    older = ("__xmknod", 0, b"older", stat.S_IFREG | 0o600, ctypes.byref(long(0)))
    tell("__xmknod", lambda: call(*older))
    tell("bind", lambda: socket.socket(socket.AF_UNIX).bind("socket"))
    tell("mkdir", lambda: os.mkdir("folder", 0o700))
    tell("rmdir", lambda: os.rmdir("folder"))
    folder = os.open(".", os.O_RDONLY)
    tell("listed late", lambda: (make("late"), "late" in os.listdir(folder))[1])


def endings(fd):
    os.makedirs("up/down"), os.symlink("up", "to_up"), os.symlink("b", "to_b")
    changes = {
        "rmdir": os.rmdir,
        "unlink": os.unlink,
        "mkdir": os.mkdir,
        "symlink": lambda path: os.symlink("x", path),
        "link to": lambda path: os.link("a", path),
        "link of": lambda path: os.link(path, "other"),
        "rename to": lambda path: os.rename("a", path),
        "rename of": lambda path: os.rename(path, "other"),
        "truncate": lambda path: os.truncate(path, 1),
        "chmod": lambda path: os.chmod(path, 0o700),
        "stat": lambda path: stat.S_IFMT(os.stat(path).st_mode),
        "open to make": lambda path: os.open(path, os.O_CREAT | os.O_WRONLY),
        "open to make anew": lambda path: os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR),
        "open to write": lambda path: os.open(path, os.O_WRONLY),
        "open as a folder to write": lambda path: os.open(path, os.O_RDWR | os.O_DIRECTORY),
    }
    paths = ["up/.", "up/..", "up/down/..", "to_up/", "a/", "none/", "none/.", ""]
    for name, change in changes.items():
        for path in ["up/", *paths] if name.startswith(("mkdir", "stat", "open")) else paths:
            if not (name == "mkdir" and path == "none/"):
                tell(f"{name} '{path}'", lambda: change(path))
    tell("open to make where nothing is", lambda: os.open("none/x/", os.O_CREAT | os.O_WRONLY))
    tell("open of a folder to make", lambda: os.open("up", os.O_CREAT | os.O_RDONLY))
    tell("mkdir with a slash", lambda: os.mkdir("none/"))
    tell("rename with a slash", lambda: os.rename("none/", "some/"))
    tell("rmdir with a slash", lambda: os.rmdir("some/"))
    tell("link that follows", lambda: call("linkat", HERE, b"a", HERE, b"followed", FOLLOW))
    tell("link that follows a link", lambda: call("linkat", HERE, b"to_b", HERE, b"b2", FOLLOW))


def rename_with(flags):
    return lambda old, new: call("renameat2", HERE, old.encode(), HERE, new.encode(), flags)


def pairs(fd):
    os.symlink("loop", "loop")
    changes = {
        "link": os.link,
        "rename": os.rename,
        "rename to none": rename_with(1),
        "exchange": rename_with(2),
        "unknown": rename_with(64),
        "contradictory": rename_with(3),
    }
    there = ["none", "none/", "none/x", "a/", "a/x", "loop/x", "up/."]
    for name, change in changes.items():
        for old in ["a", "up", "up/", *there]:
            for new in [*there[1:], "a", "up", "up/"]:
                # But for those that the kernel makes.
                one, other = old.strip("/"), new.strip("/")
                is_renamed = (one, new) == ("up", "none/") and name.startswith("rename")
                is_exchanged = {one, other} == {"a", "up"} and name == "exchange"
                # A server looks where to before it looks for what there is.
                is_servers = name == "link" and new in ["a/x", "loop/x"]
                if one != other and not is_renamed and not is_exchanged and not is_servers:
                    tell(f"{name} '{old}' '{new}'", lambda: change(old, new))
    tell("exchange with a folder's name", lambda: rename_with(2)("a", "up/"))
    tell("exchange back", lambda: rename_with(2)("a", "up"))
    tell("exchange with what is none", lambda: rename_with(2)("up", "a/"))


def crossing(fd):
    if len(sys.argv) < 3:
        return
    other = sys.argv[2]
    open(f"{other}/f", "w").close()
    changes = {"link": os.link, "rename": os.rename, "exchange": rename_with(2)}
    for name, change in changes.items():
        for here in ["a", "none", "none/x", "a/x"]:
            for there in ["f", "none", "none/x", "f/x"]:
                tell(f"{name} '{here}' out to '{there}'", lambda: change(here, f"{other}/{there}"))
                tell(f"{name} '{here}' from '{there}'", lambda: change(f"{other}/{there}", here))


def masks(fd):
    def made(mask):
        os.umask(mask)
        os.mkdir(f"m{mask}", 0o1777)
        open(f"f{mask}", "w").close()
        return oct(os.stat(f"m{mask}").st_mode), oct(os.stat(f"f{mask}").st_mode)

    for mask in [0, 0o27, 0o77]:
        tell(f"umask {mask:o}", lambda: made(mask))


def flags(fd):
    tell("O_TMPFILE", lambda: os.close(os.open(".", os.O_TMPFILE | os.O_RDWR)))
    tell("TemporaryFile", lambda: tempfile.TemporaryFile(dir=".").write(b"x"))
    tell("O_DSYNC", lambda: os.write(os.open("d", os.O_WRONLY | os.O_CREAT | os.O_DSYNC), b"x"))
    tell("O_DIRECT", lambda: os.close(os.open("a", os.O_RDONLY | os.O_DIRECT)))
    tell("O_PATH", lambda: os.close(os.open("a", os.O_PATH)))
    tell("open of a folder to write", lambda: os.open(".", os.O_WRONLY))
    tell("O_NONBLOCK later", lambda: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK))
    tell("O_APPEND later", lambda: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND))
    tell("SEEK_HOLE", lambda: os.lseek(fd, 0, os.SEEK_HOLE) > 0)
    tell("isatty", lambda: os.isatty(fd))
    tell("flock", lambda: fcntl.flock(fd, fcntl.LOCK_EX))
    tell("lockf", lambda: fcntl.lockf(fd, fcntl.LOCK_EX))
    tell("unlinked", lambda: (os.unlink("a"), os.fstat(fd).st_nlink, os.pread(fd, 3, 27)))


def children(fd):
    ways = {"vfork": {}, "fork": {"preexec_fn": int}, "spawn": {"close_fds": False}}

    def written(name, way):
        with open(name, "w") as file:
            print("one", file=file, flush=True)
            for word in ["two", "three"]:
                subprocess.run(["/bin/echo", word], stdout=file, check=True, **way)
            print("four", file=file)
        return open(name).read().split()

    def read_back():
        with tempfile.NamedTemporaryFile(dir=".") as file:
            subprocess.run(["seq", "99999"], stdout=file, check=True)
            place = file.tell(), file.seek(7), file.write(b"here")
            subprocess.run(["echo", "on"], stdout=file, check=True)
            return place, file.seek(0), file.read(14), len(file.read())

    def together():
        with open("together", "w") as file:
            loop = "for i in 1 2 3; do echo $i; done"
            several = [subprocess.Popen(["sh", "-c", loop], stdout=file) for _ in range(4)]
            codes = [one.wait() for one in several]
            file.write("end")
        lines = open("together").read().split()
        return codes, sorted(lines), lines[-1]

    def in_between():
        with open("between", "w") as file:
            script = "echo early; read line; echo late"
            child = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=file)
            while os.stat("between").st_size == 0:
                pass
            print("parent", file=file, flush=True)
            child.communicate(b"go\n")
            print("last", file=file)
        return open("between").read().split()

    def appended():
        with open("between", "a") as file:
            subprocess.run(["echo", "more"], stdout=file, check=True)
            print("end", file=file)
        return open("between").read().split()[-2:]

    def passed_on():
        with open("passed", "w") as file:
            script = f"import os; os.write({file.fileno()}, b'passed')"
            command = [sys.executable, "-c", script]
            subprocess.run(command, pass_fds=[file.fileno()], check=True)
        return open("passed").read()

    def its_input():
        with open("passed") as file:
            os.lseek(file.fileno(), 2, os.SEEK_SET)
            return subprocess.run(["cat"], stdin=file, capture_output=True).stdout

    def reopened():
        for words in [["uniq", "-", "once"], ["uniq", "once", "twice"]]:
            subprocess.run(words, input=b"x\nx\ny\n", check=True)
        return open("once").read(), open("twice").read()

    def synced():
        words = ["dd", "if=/dev/zero", "of=synced", "bs=1k", "count=3", "conv=fsync"]
        return subprocess.run(words, capture_output=True).returncode, os.stat("synced").st_size

    def copied(*words):
        os.close(make("copied"))
        subprocess.run(["dd", "of=copied", "bs=2", "status=none", *words], input=b"abc", check=True)
        return open("copied").read()

    def sought():
        script = """if 1:
            import os
            os.dup2(os.open("sought", os.O_RDWR | os.O_CREAT), 1)
            places = [os.write(1, b"0123456789"), os.lseek(1, -4, 1), os.write(1, b"x")]
            places += [os.lseek(1, 0, 1), os.lseek(1, 2, 2), os.write(1, b"end")]
            places += [os.lseek(1, 3, 0), os.ftruncate(1, 14), os.write(1, b"y"), os.lseek(1, 0, 4)]
            try:
                os.lseek(1, -1, 0)
            except OSError as error:
                places.append(error.errno)
            os.write(2, repr(places).encode())
        """
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True)
        return ended.stderr, ended.returncode, open("sought").read()

    def spawned(source):
        target = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        actions = [(os.POSIX_SPAWN_OPEN, 1, "spawned", target, 0o640)]
        actions += [(os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, 1, 2)]
        words = ["sh", "-c", "cat; echo done >&2"]
        child = os.posix_spawn("/bin/sh", words, os.environ, file_actions=actions)
        code = os.waitpid(child, 0)[1]
        return code, open("spawned").read(), os.stat("spawned").st_mode

    def written_by_both():
        with open("both", "w") as file:
            print("parent", file=file, flush=True)
            child = os.fork()
            if child == 0:
                print("child", file=file, flush=True)
                os._exit(0)
            code = os.waitpid(child, 0)[1]
            print("again", file=file)
        return code, open("both").read().split()

    def read_by_both():
        with open("both") as file:
            child = os.fork()
            if child == 0:
                os._exit(len(file.read()))
            return os.waitpid(child, 0)[1] >> 8

    def sees_its_own(number):
        for count in range(50):
            name = f"own{number}.{count}"
            os.close(make(name))
            is_there = name in os.listdir(".")
            os.unlink(name)
            if not is_there or name in os.listdir("."):
                return 1
        return 0

    def listed_by_several():
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                code = 2
                try:
                    code = sees_its_own(number)
                finally:
                    os._exit(code)
            children.append(child)
        return [os.waitpid(child, 0)[1] for child in children]

    for name, way in ways.items():
        tell(f"output after {name}", lambda: written(name, way))
    tell("output read back", read_back)
    tell("output together", together)
    tell("output in between", in_between)
    tell("output appended", appended)
    tell("a number passed on", passed_on)
    tell("input", its_input)
    tell("written by both", written_by_both)
    tell("read by both", read_by_both)
    tell("listed by several", listed_by_several)
    tell("standard streams reopened", reopened)
    tell("standard output synced", synced)
    tell("standard output sought", sought)
    tell("copied behind", lambda: copied("seek=2"))
    tell("copied over", lambda: copied("seek=2", "conv=notrunc"))
    tell("copied to the end", lambda: copied("oflag=append", "conv=notrunc"))
    tell("spawned", lambda: spawned("copied"))
    tell("spawned without input", lambda: spawned("none"))


def limits(fd):
    data = b"x" * 4096
    fd, end = make("limited", data[:500]), os.open("appended", os.O_CREAT | os.O_APPEND | os.O_RDWR)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    for name, write in {
        "write": lambda: os.write(fd, data[:400]),
        "writev": lambda: os.writev(fd, [data[:100], data]),
        "pwrite": lambda: os.pwrite(fd, data, 990),
        "append": lambda: os.write(end, data[:600]),
        "ftruncate": lambda: os.ftruncate(fd, 1001),
        "truncate": lambda: os.truncate("limited", 1001),
        "posix_fallocate": lambda: os.posix_fallocate(fd, 900, 200),
    }.items():
        tell(f"{name} at a limit", write)
        tell(f"{name} beyond a limit", write)
    tell("smaller than a limit", lambda: (os.ftruncate(fd, 30), os.fstat(fd).st_size))
    tell("anew below a limit", lambda: (os.write(make("new", data), data), os.stat("new").st_size))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    tell("write without a limit", lambda: os.pwrite(fd, data, 5000))
    tell("limited", lambda: (os.stat("limited").st_size, os.stat("appended").st_size))


os.makedirs(sys.argv[1], exist_ok=True)
os.chdir(sys.argv[1])
file = make("a")
parts = [space, copies, asynchronous, locks, attributes, names, endings, pairs, crossing]
for part in [*parts, masks, flags, children, limits]:
    part(file)
