//! Files of programs that the library serves, which become the kernel's by their folder's view.

use std::{ffi::OsStr, path::Path, process::Command};

use rustix::process::geteuid;

use super::{can_mount, coalescing, differing, mapping, strange};
use crate::{
    harness::{Folder, SOON, program, run, skip, succeed, text},
    preload::{LIBURING, compile},
    remote::{
        LONG, local,
        server::{Scheme, Server},
    },
};

/// Says what calls come to that only the kernel can do.
const CALLS: &str = "
import errno, fcntl, mmap, os, sys
os.chdir(sys.argv[1])
def tell(name, call):
    try:
        print(name, call())
    except OSError as why:
        print(name, errno.errorcode[why.errno])
def file(name, content=b'0123456789'):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, content)
    return fd
def shared():
    fd = file('shared', b'x' * 100000)
    os.lseek(fd, 5, os.SEEK_SET)
    with mmap.mmap(fd, 0) as mapped:
        mapped[:3] = b'abc'
        os.pwrite(fd, b'def', 50000)
        seen = mapped[50000:50003]
        mapped[99997:] = b'end'
        mapped.flush()
    os.write(fd, b'!')
    data = open('shared', 'rb').read()
    return seen, data[:7], data[50000:50003], data[-3:], len(data)
def reading():
    fd = file('reading', b'one')
    only = os.open('reading', os.O_RDONLY)
    with mmap.mmap(only, 0, prot=mmap.PROT_READ) as mapped:
        return mapped[:], os.read(only, 2), os.fstat(only).st_size
def private():
    with mmap.mmap(file('private'), 0, flags=mmap.MAP_PRIVATE) as mapped:
        mapped[0:1] = b'#'
        return mapped[:3], open('private', 'rb').read()
def sending():
    return os.sendfile(file('to', b''), file('from'), 2, 5), open('to', 'rb').read()
def ranges():
    source, target = file('source'), file('target')
    return os.copy_file_range(source, target, 4, 1, 3), open('target', 'rb').read()
def appending():
    fd = file('appending')
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b'end')
    return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND, os.lseek(fd, 0, os.SEEK_CUR), \
        open('appending', 'rb').read()
def behind_another():
    fd = file('behind', b'')
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    other = os.open('behind', os.O_WRONLY)
    os.write(other, b'0123456789')
    os.write(fd, b'abc')
    return open('behind', 'rb').read()
def no_more():
    fd = os.open('more', os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, b'0123456789')
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    os.rename('more', 'no more')
    os.lseek(fd, 2, os.SEEK_SET)
    os.write(fd, b'abc')
    return open('no more', 'rb').read()
def folder_moved():
    os.mkdir('moved')
    inside = os.open('moved', os.O_RDONLY)
    os.rename('moved', 'moved.old')
    os.mkdir('moved')
    os.close(os.open('file', os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=inside))
    os.chdir(inside)
    os.rename('../moved.old', '../moved.older')
    os.close(os.open('other', os.O_WRONLY | os.O_CREAT, 0o644))
    os.chdir('..')
    return sorted(os.listdir('moved.older')), os.listdir('moved')
def moved_around():
    os.mkdir('around')
    fd = os.open('around/file', os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b'0123')
    os.rename('around', 'elsewhere')
    with mmap.mmap(fd, 0) as mapped:
        mapped[0:1] = b'A'
    return open('elsewhere/file', 'rb').read()
def as_long_as_it_is():
    fd = file('grown', b'')
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    other = os.open('grown', os.O_WRONLY)
    os.write(other, b'x' * 10000)
    return os.sendfile(file('copied', b''), fd, 0, 20000)
def renamed():
    fd = file('before')
    os.rename('before', 'after')
    with mmap.mmap(fd, 0) as mapped:
        mapped[0:1] = b'A'
    return open('after', 'rb').read()
def refused():
    fd = os.open('shared', os.O_RDONLY)
    return mmap.mmap(fd, 0)
def written_beside(opens_before):
    fd = file('beside', b'.' * 8192)
    other = os.open('beside', os.O_RDWR) if opens_before else None
    mapped = mmap.mmap(fd, 0)
    os.close(fd)
    mapped[100:103] = b'map'
    other = other or os.open('beside', os.O_RDWR)
    os.pwrite(other, b'write', 0)
    os.fsync(other)
    seen = mapped[:5], os.pread(other, 3, 100)
    os.close(other)
    mapped.close()
    data = open('beside', 'rb').read()
    return seen, data[:5], data[100:103]
def written_before():
    return written_beside(True)
def written_after():
    return written_beside(False)
def was_locked():
    fd = file('locked')
    for lock in fcntl.lockf, fcntl.flock:
        lock(fd, fcntl.LOCK_EX)
        lock(fd, fcntl.LOCK_UN)
    with mmap.mmap(fd, 0) as mapped:
        return mapped[:3]
def forked(name):
    fd = file(name)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    os.unlink(name)
    return fd
def attributes():
    fd = forked('attributes')
    os.fchmod(fd, 0o600)
    os.utime(fd, (1, 2))
    return oct(os.fstat(fd).st_mode), os.fstat(fd).st_mtime
def its_own_attributes():
    fd = forked('own')
    file('own')
    os.fchmod(fd, 0o600)
    return oct(os.fstat(fd).st_mode), oct(os.stat('own').st_mode)
def linking():
    os.close(file('plain'))
    return os.link('missing', 'plain/x')
def replacing():
    os.mkdir('above')
    os.close(file('above/f'))
    return os.rename('above/f', 'above')
def paths():
    os.close(file('named'))
    os.symlink('nowhere', 'dangling')
    def path(name, flags):
        try:
            return os.close(os.open(name, os.O_PATH | flags))
        except OSError as why:
            return errno.errorcode[why.errno]
    names = 'none', 'none/x', 'named/x', 'dangling', 'named'
    flags = 0, os.O_NOFOLLOW, os.O_CREAT, os.O_WRONLY, os.O_DIRECTORY
    return [[path(name, flag) for name in names] for flag in flags]
for call in (shared, reading, private, sending, ranges, appending, behind_another, no_more,
        folder_moved, moved_around, as_long_as_it_is, renamed, refused, attributes,
        its_own_attributes, linking, replacing, paths, written_before, written_after, was_locked):
    tell(call.__name__, call)
";

#[test]
fn calls_that_only_the_kernel_can_do_are_done_where_there_is_a_view() {
    if !can_mount("files that are left to a view") {
        return;
    }
    let folder = Folder::new();
    let plain = folder.join("plain");
    std::fs::create_dir(&plain).expect("a folder");
    let calls = |command: &mut Command, at: &Path| {
        succeed(command.args(["python3", "-c", CALLS]).arg(at), SOON)
    };
    let expected = calls(&mut Command::new("env"), &plain);
    assert!(expected.contains("renamed b'A123") && expected.contains("refused EACCES"));
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        assert_eq!(calls(&mut command, &local(&folder)), expected);
    }
    server.end();
}

/// Appends, by `F_SETFL`, to a file that has no name any more.
const REMOVED: &str = "
import fcntl, os, sys
fd = os.open(sys.argv[1] + '/removed', os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b'0123')
os.unlink(sys.argv[1] + '/removed')
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
os.lseek(fd, 0, os.SEEK_SET)
os.write(fd, b'end')
print(os.pread(fd, 10, 0))
";

#[test]
fn removed_file_is_appended_to_through_its_view() {
    if !can_mount("a removed file in a view") {
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        strange(&mut command).args(["python3", "-c", REMOVED]).arg(local(&folder));
        assert_eq!(succeed(&mut command, SOON), "b'0123end'\n");
    }
    server.end();
}

/// Says the same in a folder without Kakehi, a coalesced, and a mapped one.
fn is_as_natively(what: &str, command: &[&OsStr]) {
    if !can_mount(what) {
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let script = "exec 2>&1; mkdir \"$0/in\" && cd \"$0/in\" && exec \"$@\"";
    let said = |mut launcher: Command, at: &Path| {
        launcher.args(["sh", "-c", script]).arg(at).args(command);
        succeed(&mut launcher, LONG)
    };
    let expected = said(Command::new("env"), folder.path());
    for launcher in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        let found = said(launcher, &local(&folder));
        assert!(found == expected, "{:#?}", differing(&found, &expected));
    }
    server.end();
}

#[test]
fn libc_stream_is_reopened_in_every_mode_as_natively() {
    is_as_natively("streams in a view", &[program("reopening").as_os_str()]);
}

#[test]
fn locked_or_removed_file_is_set_to_append() {
    is_as_natively("files to append to", &[program("appending").as_os_str()]);
}

#[test]
fn file_is_opened_by_its_number_after_a_rename() {
    is_as_natively("renamed files in a view", &[program("moved_open").as_os_str()]);
    let script = "(echo a; mv s t; echo b >>/dev/stdout) >s; cat t; \
        (echo a; mv s u; echo b >/dev/fd/1) >s; cat u";
    is_as_natively("renamed output", &["sh", "-c", script].map(OsStr::new));
}

/// Says which flags an open file has, once its process has forked.
const FLAGS: &str = "
import fcntl, os
for flag in os.O_SYNC, os.O_DSYNC, os.O_APPEND, os.O_NONBLOCK, os.O_NOFOLLOW, os.O_NOATIME:
    fd = os.open('file', os.O_RDWR | os.O_CREAT | flag, 0o644)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    print(flag, fcntl.fcntl(fd, fcntl.F_GETFL) & flag == flag)
";

#[test]
fn open_file_keeps_its_flags_after_a_fork() {
    is_as_natively("flags of a file in a view", &["python3", "-c", FLAGS].map(OsStr::new));
}

/// Sends an open file, and one that is locked.
const SENT: &str = "
import errno, fcntl, os, socket, sys
os.chdir(sys.argv[1])
here, there = socket.socketpair()
for locks in False, True:
    fd = os.open('file', os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, b'sent')
    if locks:
        fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        socket.send_fds(here, [b'!'], [fd])
        print(os.pread(socket.recv_fds(there, 1, 1)[1][0], 9, 0))
    except OSError as why:
        print(errno.errorcode[why.errno])
";

#[test]
fn locked_file_that_nobody_else_could_use_is_not_sent() {
    if !can_mount("files that are sent") {
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        command.args(["python3", "-c", SENT]).arg(local(&folder));
        assert_eq!(succeed(&mut command, SOON), "b'sent'\nENOTSUP\n");
    }
    server.end();
}

/// Has another root, in a folder of its view, and writes to files as before.
const ROOTED: &str = "
import os, sys
os.chdir(sys.argv[1])
os.mkdir('inner')
before = os.open('before', os.O_WRONLY | os.O_CREAT, 0o644)
os.chroot('inner')
within = os.open('/within', os.O_WRONLY | os.O_CREAT, 0o644)
for _ in range(3000):
    for file in before, within:
        os.write(file, b'0123456789')
for file in before, within:
    os.close(file)
";

#[test]
fn program_with_another_root_writes_on() {
    if !can_mount("another root in a view") {
        return;
    }
    if !geteuid().is_root() {
        return skip("another root in a view", "only root may have it");
    }
    let folder = Folder::new();
    let mut command = coalescing(&folder, "always");
    succeed(command.args(["python3", "-c", ROOTED]).arg(local(&folder)), SOON);
    let mut command = coalescing(&folder, "always");
    let sizes = "wc -c <\"$0\"/before; wc -c <\"$0\"/inner/within";
    let sizes = succeed(command.args(["sh", "-c", sizes]).arg(local(&folder)), SOON);
    assert_eq!(sizes, "30000\n30000\n");
}

/// Nobody sees which files a ring works on: they are the view's from the first ring on.
#[test]
fn rings_work_on_files_of_a_view_as_on_any() {
    if !can_mount("io_uring on files of mapped folders") {
        return;
    }
    let folder = Folder::new();
    let plain = folder.join("plain");
    std::fs::create_dir(&plain).expect("a folder");
    let [program] = compile("ring.c", "cc", &LIBURING);
    let server = Server::start(&folder, Scheme::Tcp);
    for by in ["liburing", "libc"] {
        let native = run(Command::new(&program).arg(by).arg(&plain), SOON);
        if native.status.code() == Some(77) {
            skip("io_uring on files of mapped folders", text(&native.stdout).trim());
            break;
        }
        let expected = text(&native.stdout);
        assert!(expected.contains("again: wrote 7, ring 20, ring 4"), "{expected}");
        for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
            let said = succeed(command.arg(&program).arg(by).arg(local(&folder)), SOON);
            assert_eq!(said, expected, "{by}: {command:?}");
        }
    }
    server.end();
}

const UNVIEWED: &str = "
import errno, mmap, os, sys
def tell(name, call):
    try:
        print(name, call())
    except OSError as why:
        print(name, errno.errorcode[why.errno])
at = sys.argv[1]
fd = os.open(at + '/f', os.O_RDWR | os.O_CREAT)
os.write(fd, b'0123')
def child():
    if os.fork() == 0:
        tell('child', lambda: os.write(fd, b'4'))
        sys.stdout.flush()
        os._exit(0)
    return os.wait()[1]
tell('enter', lambda: os.chdir(at))
tell('list', lambda: os.listdir(at))
tell('real', lambda: os.open(at, os.O_RDONLY))
tell('map', lambda: mmap.mmap(fd, 0))
tell('map to read', lambda: mmap.mmap(fd, 0, prot=mmap.PROT_READ))
tell('stream', lambda: os.dup2(fd, 0))
tell('send', lambda: os.sendfile(fd, fd, 0, 1))
sys.stdout.flush()
tell('made', child)
own = '/proc/self/fd/%d' % fd
tell('own name', lambda: os.truncate(own, 2))
tell('own mode', lambda: os.chmod(own, 0o600))
os.write(fd, b'5')
print(os.pread(fd, 9, 0))
";

#[test]
fn calls_that_need_a_view_fail_where_there_is_none_and_are_told_of() {
    let folder = Folder::new();
    let mut command = coalescing(&folder, "none");
    let output = run(command.args(["python3", "-c", UNVIEWED]).arg(local(&folder)), SOON);
    let expected = "enter ENOTSUP\nlist ENOTSUP\nreal ENOTSUP\nmap ENODEV\nmap to read ENODEV\n\
        stream ENOTSUP\nsend EINVAL\nchild EBADF\nmade 0\n\
        own name ENOTSUP\nown mode None\nb'01235'\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let line = "calls failed: their folder has no view";
    assert!(text(&output.stderr).contains(line), "{}", text(&output.stderr));
    assert!(output.status.success());
}

const NUMBERS: &str = "
import mmap, os, subprocess, sys
at = sys.argv[1]
os.mkdir(at + '/d')
name = at + '/d/f'
numbers = lambda found: (found.st_dev, found.st_ino)
fd = os.open(name, os.O_RDWR | os.O_CREAT)
os.write(fd, b'0123')
said = [numbers(os.stat(name)), numbers(os.fstat(fd))]
mapped = mmap.mmap(fd, 0)
said.append(numbers(os.fstat(fd)))
stranger = subprocess.run(['stat', '-c', '%d %i', name, at + '/d'],
    env={**os.environ, 'LD_PRELOAD': ''}, stdout=subprocess.PIPE, check=True).stdout.split()
said.append((int(stranger[0]), int(stranger[1])))
assert len(set(said)) == 1, said
said = [numbers(os.stat(at + '/d')), numbers(os.fstat(os.open(at + '/d', os.O_RDONLY)))]
said.append((int(stranger[2]), int(stranger[3])))
assert len(set(said)) == 1 and said[0][0] == os.stat(at).st_dev == os.stat(name).st_dev, said
";

/// Programs compare what they hear of a file by its name and by a descriptor, as `cat` does.
#[test]
fn file_has_the_same_numbers_by_the_library_and_by_its_view() {
    if !can_mount("numbers of files") {
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    for mut command in [coalescing(&folder, "always"), mapping(&folder, &server)] {
        let script = "python3 -c \"$1\" \"$0\" && cd \"$0/d\" && ! cat f >>f && stat -c %s f && \
            find .. -xdev | sort && (LD_PRELOAD= find .. -xdev | wc -l)";
        command.args(["bash", "-c", script]).arg(local(&folder)).arg(NUMBERS);
        let said = succeed(&mut command, SOON);
        assert_eq!(said, "4\n..\n../d\n../d/f\n3\n");
    }
    server.end();
}
