//! Names relative to an open folder, or to the current one, whose place another folder has taken.

use std::{fs, process::Command};

use super::{LONG, local};
use crate::{
    harness::{Folder, succeed},
    remote::server::{Scheme, Server},
    views::can_mount,
};

/// Another node renames the folder, and makes one of its name with a file of its own.
const BY_ANOTHER_NODE: &str = "
import errno, os, sys
here, there = sys.argv[1:]
os.mkdir(here + '/w')
folder = os.open(here + '/w', os.O_RDONLY)
os.chdir(folder)
os.rename(there + '/w', there + '/w.old')
os.mkdir(there + '/w')
with open(there + '/w/data', 'w') as file: file.write('theirs')
def create(**of): os.close(os.open('new', os.O_CREAT | os.O_WRONLY, **of))
def truncate(**of): os.close(os.open('data', os.O_TRUNC | os.O_WRONLY, **of))
def rename(**of): os.rename('data', 'other', **{'src_' + key: of[key] for key in of})
def unlink(**of): os.unlink('data', **of)
def make(**of): os.mkdir('sub', **of)
def look(**of): os.stat('data', **of)
def describe(**of): os.stat(of['dir_fd'] if of else '.')
for call in create, truncate, rename, unlink, make, look, describe:
    for of in {}, {'dir_fd': folder}:
        try: call(**of)
        except OSError as error: assert error.errno == errno.ESTALE, (call, of, error)
        else: raise AssertionError((call, of))
";

/// A process of the library removes and renames what it has open.
const BY_ITSELF: &str = "
import os, sys
os.chdir(sys.argv[1])
def made(name):
    os.makedirs(name)
    return os.open(name, os.O_RDONLY)
def tell(call, *arguments, **of):
    try: print(call.__name__, call(*arguments, **of))
    except OSError as error: print(call.__name__, error.strerror)
def create(**of): os.close(os.open('new', os.O_CREAT | os.O_WRONLY, **of))
removed = made('removed')
os.rmdir('removed')
os.close(made('removed'))
open('removed/keep', 'w').close()
tell(create, dir_fd=removed)
tell(os.unlink, 'keep', dir_fd=removed)
print(os.listdir('removed'))
moved = made('a/moved')
os.rename('a', 'b')
os.makedirs('a/moved')
tell(create, dir_fd=moved)
tell(os.stat, '../moved/none', dir_fd=moved)
print(os.listdir('a/moved'), os.listdir('b/moved'))
";

#[test]
fn folder_that_another_node_replaced_is_not_taken_for_the_new_one() {
    if !can_mount("a replaced folder") {
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.args(["python3", "-c", BY_ANOTHER_NODE]).arg(local(&folder)).arg(server.job());
    succeed(&mut command, LONG);
    assert_eq!(fs::read_to_string(server.job().join("w/data")).expect("kept"), "theirs");
    assert_eq!(fs::read_dir(server.job().join("w")).expect("there").count(), 1);
    server.end();
}

#[test]
fn folder_that_its_job_replaced_is_as_natively() {
    if !can_mount("a replaced folder") {
        return;
    }
    let folder = Folder::new();
    let native = folder.join("native");
    fs::create_dir(&native).expect("a folder");
    let mut command = Command::new("python3");
    let expected = succeed(command.args(["-c", BY_ITSELF]).arg(&native), LONG);
    let server = Server::start(&folder, Scheme::Tcp);
    let mut command = server.run(&folder);
    command.args(["python3", "-c", BY_ITSELF]).arg(local(&folder));
    assert_eq!(succeed(&mut command, LONG), expected);
    server.end();
}
