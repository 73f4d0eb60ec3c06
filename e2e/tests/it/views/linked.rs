//! Symbolic links in mapped and coalesced folders that a server does not follow: absolute ones, and
//! those that lead out. Programs of the library follow them as any other program does.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use super::{coalescing, mapping, needs_view};
use crate::{
    harness::{Folder, SOON, run, succeed, text},
    remote::{
        local,
        server::{Scheme, Server},
    },
};

/// Says what calls come to on names that lead through links, in the folder and out of it.
const CALLS: &str = "
import errno, os, shutil, stat, sys
at, out = sys.argv[1:]
def tell(name, call):
    try:
        print(name, call())
    except OSError as why:
        print(name, errno.errorcode.get(why.errno, why))
def read(name):
    with open(name) as file:
        return file.read()
def write(name, text, how='w'):
    with open(name, how) as file:
        file.write(text)
    return read(name)
os.chdir(at)
os.makedirs('d/e')
os.makedirs('far/near')
write('d/f', 'inside')
write(out + '/f', 'outside')
os.mkdir(out + '/d')
os.symlink(at + '/d', 'in')
os.symlink(at + '/d/f', 'inf')
os.symlink(at + '/d/new', 'innew')
os.symlink('../far/near', 'd/there')
os.symlink(at + '/none', 'dangling')
os.symlink(out, 'out')
os.symlink(out + '/f', 'outf')
os.symlink(out + '/new', 'outnew')
os.symlink(os.path.relpath(out, at), 'up')
os.symlink(at + '/loop', 'loop')
for name in ('in/f', 'inf', 'in/../d/f', 'out/f', 'outf', 'up/f', 'dangling', 'loop',
             'd/there/../../d/f'):
    tell(name + ' read', lambda: read(name))
    tell(name + ' size', lambda: os.stat(name).st_size)
    tell(name + ' access', lambda: os.access(name, os.W_OK))
    tell(name + ' kind', lambda: stat.filemode(os.lstat(name).st_mode)[0])
    tell(name + ' real', lambda: os.path.realpath(name).replace(at, 'AT').replace(out, 'OUT'))
tell('same', lambda: os.path.samefile('in/f', 'd/f') and os.path.samefile('inf', 'd/f'))
opened = lambda name: os.open(name, os.O_RDONLY)
tell('opened', lambda: os.path.sameopenfile(opened('inf'), opened('d/f')))
tell('not followed', lambda: os.open('inf', os.O_RDONLY | os.O_NOFOLLOW))
tell('exclusive', lambda: os.open('innew', os.O_WRONLY | os.O_CREAT | os.O_EXCL))
for name in ('innew', 'outnew', 'in/made', 'out/made', 'up/made'):
    tell(name + ' write', lambda: write(name, name))
    tell(name + ' append', lambda: write(name, '+', 'a'))
    tell(name + ' cut', lambda: os.truncate(name, 3) or read(name))
    tell(name + ' mode', lambda: os.chmod(name, 0o640) or oct(os.stat(name).st_mode))
    tell(name + ' time', lambda: os.utime(name, (5, 6)) or os.stat(name).st_mtime)
for name in ('in/sub', 'out/sub', 'up/sub2'):
    tell(name + ' mkdir', lambda: os.mkdir(name))
    tell(name + ' rename', lambda: os.rename(name, name + 'r'))
    tell(name + ' list', lambda: os.listdir(name + 'r'))
    tell(name + ' rmdir', lambda: os.rmdir(name + 'r'))
tell('in to in', lambda: os.rename('in/made', 'in/moved') or sorted(os.listdir('in')))
tell('across', lambda: os.rename('in/moved', 'out/moved'))
tell('move across', lambda: shutil.move('in/moved', 'out/moved') and read('out/moved'))
tell('back', lambda: shutil.move('up/moved', 'moved') and read('d/../moved'))
tell('link', lambda: os.link('in/f', 'in/hard') or os.stat('d/f').st_nlink)
tell('link across', lambda: os.link('out/f', 'hard'))
tell('link of a link', lambda: os.link('inf', 'hard') or os.path.islink('hard'))
tell('symlink', lambda: os.symlink('f', 'in/soft') or os.readlink('in/soft'))
tell('unlink', lambda: os.unlink('in/hard') or os.unlink('out/made') or os.unlink('inf'))
tell('copy', lambda: shutil.copy('outf', 'in/copied') and read('d/copied'))
tell('tree', lambda: shutil.copytree('in', 'copied') and sorted(os.listdir('copied')))
tell('remove', lambda: shutil.rmtree('in'))
tell('entered', lambda: os.chdir('in') or os.getcwd().replace(at, 'AT'))
tell('above', lambda: os.chdir('../out') or sorted(os.listdir('.')))
tell('left', lambda: sorted(os.listdir(at)))
";

/// Results of the calls in a folder.
fn told(command: &mut Command, at: &Path) -> String {
    // Of another file system in any case.
    let out = TempDir::new_in("/dev/shm").expect("a folder");
    succeed(command.args(["python3", "-c", CALLS]).args([at, out.path()]), SOON)
}

#[test]
fn links_to_anywhere_are_followed_by_programs_of_the_library() {
    needs_view!();
    let folder = Folder::new();
    let plain = folder.join("plain/local");
    fs::create_dir_all(&plain).expect("folders");
    let expected = told(&mut Command::new("env"), &plain);
    let is_told = |line: &str| expected.contains(line);
    assert!(is_told("outf read outside") && is_told("across EXDEV"), "{expected}");
    let server = Server::start(&folder, Scheme::Tcp);
    for (kind, command) in [
        ("coalesced", &mut coalescing(&folder, "always")),
        ("remote", &mut mapping(&folder, &server)),
    ] {
        let found = told(command, &local(&folder));
        assert_eq!(super::differing(&found, &expected), [""; 0], "{kind}");
    }
    server.end();
}

#[test]
fn link_that_leads_out_fails_where_there_is_no_view() {
    let folder = Folder::new();
    let script = "echo 1 | tee \"$0/f\" >/dev/null; ln -s \"$0/f\" \"$0/in\"; \
        ln -s /etc/hostname \"$0/out\"; \
        ln -s f \"$0/near\"; for name in near in out; do cat \"$0/$name\"; done";
    let mut command = coalescing(&folder, "none");
    let output = run(command.args(["bash", "-c", script]).arg(local(&folder)), SOON);
    let said = text(&output.stderr);
    assert!(text(&output.stdout) == "1\n" && said.matches("cross-device").count() == 2, "{said}");
    assert!(said.contains("calls failed: their folder has no view"), "{said}");
}
