//! A multifile beside a model of what it is to hold, with daemons that end, and that die.

mod between;
mod bundled;
mod gone;
mod lost;
mod modes;
mod ordered;
mod plain;
pub(crate) mod power;
mod small;

use std::{collections::BTreeMap, ffi::CString, io, path::PathBuf, rc::Rc};

use executor::{Config, Executor};
use fastrand::Rng;
use multifile::{
    NewFile,
    catalogue::{Catalogue, ROOT},
};
use rustix::{fs::OFlags, io::Errno};
use storage::{
    Machine, Storage as _,
    names::{CallPath, NameCall, OpenCall},
    verdict::errno,
};
use tempfile::TempDir;
use uring::{Choice, Engines, Events, Heap, SystemClock};
use wire::{Listed, Listing, Status};

use super::{
    Coalesced, Open,
    intake::Intake,
    shape::{Counts, Shape},
    tree::{FOLDER, Found, REGULAR, Tree, User},
    volume::Volume,
};

/// So few and so small that everything happens often; all files are long.
const SHAPE: Shape = Shape {
    first: NewFile { task_count: 4, chunk_len: 4096, fs_block_len: None },
    wide: Counts { first: 4, most: 8 },
    chunk_len: 4096,
    dense: Counts { first: 4, most: 8 },
    small_len: 0,
    dense_len: 20_000,
};
/// The same with small files, as multifiles are.
const SMALL: Shape = Shape {
    first: NewFile { task_count: 1, chunk_len: 512, fs_block_len: None },
    small_len: 3000,
    ..SHAPE
};
const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "e/a"];
const LEN_MAX: usize = 20_000;

/// Daemons that come one after the other, and what they are to hold.
struct World {
    executor: Executor,
    machine: Machine,
    folder: TempDir,
    shape: Shape,
    files: Coalesced,
    model: BTreeMap<String, Vec<u8>>,
    rng: Rng,
}

impl World {
    fn new(seed: u64) -> Self {
        Self::shaped(seed, SHAPE)
    }

    fn shaped(seed: u64, shape: Shape) -> Self {
        let events = Events::new().expect("epoll");
        let park = Box::new(events.parker());
        let executor = Executor::new(Rc::new(SystemClock), park, Config::default());
        let machine = Machine::new(Engines::new(&executor.handle(), Choice::Threads, 1, &events));
        // In memory where there is such: thousands of syncs are slow elsewhere.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("folder");
        let files = Coalesced { machine: machine.clone(), volumes: Rc::new([]), intake: None };
        let (model, rng) = (BTreeMap::new(), Rng::with_seed(seed));
        let mut world = Self { executor, machine, folder, shape, files, model, rng };
        world.start();
        for folder in ["d", "e"] {
            let path = name(folder);
            world.name(NameCall::MakeDir { path, mode: 0o755 }).expect("a folder");
        }
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("kept.sion")
    }

    fn start(&mut self) {
        let path = self.path();
        let volume = Volume::open(self.machine.clone(), &path, self.shape, false);
        let volume = self.executor.run_until(volume).expect("opened");
        self.files.volumes = Rc::new([(b"/m".to_vec(), volume)]);
    }

    /// Ends the daemon in order, or has it die.
    fn restart(&mut self, in_order: bool) {
        if in_order {
            let files = self.files.clone();
            assert!(self.executor.run_until(files.close()).0.is_empty());
        }
        self.files.volumes = Rc::new([]);
        self.start();
    }

    fn name(&mut self, call: NameCall) -> io::Result<Vec<u8>> {
        let files = self.files.clone();
        self.executor.run_until(files.name(call)).map(|answer| answer.bytes)
    }

    fn open(&mut self, file: &str, flags: OFlags) -> io::Result<Open> {
        let files = self.files.clone();
        let call = OpenCall { path: name(file), flags: flags.bits(), mode: 0o644, inode: 0 };
        self.executor.run_until(files.open(call)).map(|(file, _)| file)
    }

    fn status(&mut self, file: &Open) -> Status {
        self.executor.run_until(self.files.clone().status(file)).expect("open")
    }

    fn write(&mut self, file: &Open, at: usize, bytes: &[u8]) {
        let (files, buffer) = (self.files.clone(), Heap::buffer(bytes.len()));
        buffer.store(bytes);
        let mut done = 0;
        while done < bytes.len() {
            let rest = buffer.suffix(done).into();
            let written = files.write(file, (at + done) as u64, rest);
            done += self.executor.run_until(written).expect("room");
        }
    }

    fn read(&mut self, file: &Open) -> Vec<u8> {
        let files = self.files.clone();
        let (mut found, buffer) = (Vec::new(), Heap::buffer(7000));
        loop {
            let read = files.read(file, found.len() as u64, buffer.clone().into());
            match self.executor.run_until(read).expect("readable") {
                0 => return found,
                len => buffer.prefix(len).append_to(&mut found),
            }
        }
    }

    /// One thing that a program does.
    fn step(&mut self) {
        let file = *self.rng.choice(NAMES).as_ref().expect("names");
        // Most files are small.
        let most = if self.rng.u8(..3) == 0 { LEN_MAX } else { LEN_MAX / 40 };
        let (at, len) = (self.rng.usize(..most), self.rng.usize(1..most));
        match self.rng.u8(..24) {
            0 => self.restart(true),
            1 => self.restart(false),
            2..=4 => {
                let to = *self.rng.choice(NAMES).as_ref().expect("names");
                let call = NameCall::Rename { from: name(file), to: name(to), flags: 0 };
                match (self.name(call), self.model.remove(file)) {
                    (Ok(_), Some(bytes)) => drop(self.model.insert(to.to_owned(), bytes)),
                    (Err(error), None) => assert_eq!(errno(error), Errno::NOENT),
                    (done, there) => panic!("{file} to {to}: {done:?} {}", there.is_some()),
                }
            }
            5..=7 => match (self.name(NameCall::Unlink { path: name(file) }), file) {
                (Ok(_), file) => assert!(self.model.remove(file).is_some(), "{file}"),
                (Err(error), file) => {
                    assert_eq!(errno(error), Errno::NOENT);
                    assert!(!self.model.contains_key(file), "{file}");
                }
            },
            8..=10 => {
                let call = NameCall::Truncate { path: name(file), len: at as u64 };
                let is_there = self.name(call).is_ok();
                assert_eq!(self.model.contains_key(file), is_there);
                if let Some(bytes) = self.model.get_mut(file) {
                    bytes.resize(at, 0);
                }
            }
            11 => {
                let opened = self.open(file, OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY);
                opened.expect("made");
                self.model.insert(file.to_owned(), Vec::new());
            }
            12 => {
                let flags = OFlags::CREATE | OFlags::APPEND | OFlags::WRONLY;
                let (bytes, open) = (self.bytes(len), self.open(file, flags).expect("made"));
                self.write(&open, 0, &bytes);
                self.model.entry(file.to_owned()).or_default().extend(bytes);
            }
            _ => {
                let open = self.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
                let bytes = self.bytes(len);
                self.write(&open, at, &bytes);
                let there = self.model.entry(file.to_owned()).or_default();
                there.resize(there.len().max(at + len), 0);
                there[at..at + len].copy_from_slice(&bytes);
                let expected = there.clone();
                assert!(self.read(&open) == expected, "{file}");
            }
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Short runs of zeros, so that an end is not always visible.
        (0..len).map(|_| self.rng.u8(..).saturating_sub(128)).collect()
    }

    fn check(&mut self) {
        for file in NAMES {
            match (self.open(file, OFlags::RDONLY), self.model.get(file).cloned()) {
                (Ok(open), Some(bytes)) => assert!(self.read(&open) == bytes, "{file}"),
                (Err(error), None) => assert_eq!(errno(error), Errno::NOENT, "{file}"),
                (_, expected) => panic!("{file} is there, or is not: {}", expected.is_some()),
            }
        }
    }
}

fn name(path: &str) -> CallPath {
    CString::new(format!("/m/{path}")).expect("no NUL").into()
}

/// Process death at any point between calls: what was answered is there.
#[test]
fn a_multifile_holds_what_was_answered_whoever_ends_or_dies() {
    for seed in 0..80 {
        let mut world = World::shaped(seed, if seed < 30 { SHAPE } else { SMALL });
        for _ in 0..120 {
            world.step();
            if seed >= 60 {
                // As earlier versions made it, and this one goes on.
                world.shape = if world.rng.bool() { SHAPE } else { SMALL };
            }
        }
        for in_order in [true, false, true] {
            world.check();
            world.restart(in_order);
        }
        world.check();
    }
}

#[test]
fn a_file_that_has_no_name_is_there_for_who_has_it_open_and_then_makes_room() {
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, b"still here");
    world.name(NameCall::Unlink { path: name("a") }).expect("there");
    let other = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("another");
    world.write(&other, 0, b"other");
    world.write(&open, 10, b"!");
    assert_eq!(world.read(&open), b"still here!");
    assert_eq!(world.read(&other), b"other");
    let status = world.status(&open);
    assert_eq!((status.link_count, status.size), (0, 11));
    drop(open);
    // Three tasks for files, of which one is free again: another physical file is not needed.
    for file in ["b", "c"] {
        let open = world.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, b"x");
        assert_eq!(world.read(&open), b"x");
    }
    drop(other);
    world.restart(true);
    assert!(!world.folder.path().join("kept.sion.000001").exists());
}

/// As under the umask of a user who lets nobody read, which daemons do not keep.
#[test]
fn all_physical_files_and_journals_are_as_the_first_one() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut world = World::new(1);
    world.restart(true);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(world.path(), private).expect("its own");
    world.restart(true);
    for file in NAMES {
        let open = world.open(file, OFlags::CREATE | OFlags::RDWR).expect("made");
        world.write(&open, 0, b"secret");
    }
    let made: Vec<_> = std::fs::read_dir(world.folder.path()).expect("there").flatten().collect();
    assert_eq!(made.len(), 4, "{made:?}");
    for file in made {
        assert_eq!(file.metadata().expect("there").mode() & 0o777, 0o600, "{file:?}");
    }
}

#[test]
fn who_only_reads_changes_nothing() {
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    world.write(&open, 0, b"kept");
    drop(open);
    world.restart(true);
    let before = std::fs::read(world.path()).expect("there");
    let open = world.open("a", OFlags::RDONLY).expect("there");
    assert_eq!(world.read(&open), b"kept");
    drop(open);
    world.restart(true);
    assert!(std::fs::read(world.path()).expect("there") == before);
}

/// It would be somewhere else then, and its files be where it was.
#[test]
fn what_a_coalesced_folder_is_in_is_not_renamed() {
    let mut world = World::new(1);
    let (_, volume) = world.files.volumes[0].clone();
    world.files.volumes = Rc::new([(b"/p/q/m".to_vec(), volume)]);
    let path = |path: &str| CString::new(path).expect("no NUL").into();
    for (from, expected) in
        [("/p", Errno::BUSY), ("/p/q", Errno::BUSY), ("/p/q/m", Errno::XDEV), ("/pp", Errno::NOENT)]
    {
        let call = NameCall::Rename { from: path(from), to: path("/missing/x"), flags: 0 };
        assert_eq!(errno(world.name(call).expect_err(from)), expected, "{from}");
    }
}

#[test]
fn a_listing_in_parts_has_every_name_once_whatever_comes_and_goes() {
    let mut world = World::new(1);
    for index in 0..200 {
        world.open(&format!("d/{index}"), OFlags::CREATE | OFlags::WRONLY).expect("made");
    }
    let (mut from, mut found, mut parts) = (0, Vec::new(), 0);
    loop {
        let part = world.name(NameCall::ReadDir { path: name("d"), from, room: 100 });
        let part = part.expect("a folder");
        let Some(part) = Listing::decode(&part) else { break };
        from = part.next;
        parts += 1;
        let name_of = |listed: Listed<'_>| String::from_utf8(listed.name.to_vec()).expect("ASCII");
        found.extend(wire::names(part.names).map(name_of));
        // One that was listed goes, another comes.
        let gone = found.last().expect("names").clone();
        world.name(NameCall::Unlink { path: name(&format!("d/{gone}")) }).expect("there");
        let new = format!("d/new{parts}");
        world.open(&new, OFlags::CREATE | OFlags::WRONLY).expect("made");
    }
    assert!(parts > 5);
    found.retain(|name| !name.starts_with("new"));
    found.sort();
    let mut expected: Vec<_> = (0..200).map(|index| index.to_string()).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn times_and_modes_outlive_the_daemon() {
    let mut world = World::new(1);
    let open = world.open("a", OFlags::CREATE | OFlags::RDWR).expect("made");
    let made = world.status(&open);
    world.write(&open, 0, b"later");
    let written = world.status(&open);
    assert!(written.changed_at() > made.changed_at());
    drop(open);
    world.restart(true);
    let bytes = world.name(NameCall::Stat { path: name("a"), follow: true }).expect("there");
    assert_eq!(Status::decode(&bytes), Some(written));
}

#[test]
fn link_to_a_missing_file_says_so_before_it_looks_at_the_new_name() {
    let mut world = World::new(1);
    world.open("a", OFlags::CREATE | OFlags::WRONLY).expect("made");
    let link = NameCall::Link { from: name("none"), to: name("a/x") };
    assert_eq!(errno(world.name(link).expect_err("missing")), Errno::NOENT);
}

// ---- names alone

fn tree(me: u32) -> Tree {
    let root = multifile::catalogue::Node { mode: FOLDER | 0o755, ..Default::default() };
    Tree::new(Catalogue::new(1, root), User { user: me, group: me, groups: vec![100 + me] })
}

fn find(tree: &Tree, path: &str) -> Result<Found, Errno> {
    tree.find(&CString::new(path).expect("no NUL"), false)
}

/// Makes what is not there, a folder where the name ends in a slash.
fn make(tree: &mut Tree, path: &str) -> u64 {
    let kind = if path.ends_with('/') { FOLDER } else { REGULAR };
    let at = find(tree, path).expect("its folder is there");
    let (inode, changes) = tree.make(&at, kind, 0o755, (1, 0)).expect("free");
    tree.apply(changes);
    inode
}

#[test]
fn names_are_refused_as_posix_has_it() {
    let mut tree = tree(0);
    for path in ["/d/", "/d/e/", "/d/e/f", "/g", "/h/"] {
        make(&mut tree, path);
    }
    let now = (2, 0);
    let rename = |tree: &Tree, from: &str, to: &str, flags| {
        let (from, to) = (find(tree, from).expect("found"), find(tree, to).expect("found"));
        tree.rename(&from, &to, flags, now).map(|changes| changes.len())
    };
    for (from, to, flags, expected) in [
        ("/d", "/d/e/x", 0, Errno::INVAL),
        ("/d", "/g", 0, Errno::NOTDIR),
        ("/g", "/d", 0, Errno::ISDIR),
        ("/h", "/d", 0, Errno::NOTEMPTY),
        ("/d/e/f", "/d", 0, Errno::NOTEMPTY),
        ("/d/e/f", "/d/e", 0, Errno::NOTEMPTY),
        ("/x", "/y", 0, Errno::NOENT),
        ("/g", "/d/e/f", 1, Errno::EXIST),
        ("/g", "/y", 2, Errno::NOENT),
        ("/d", "/d/e", 2, Errno::INVAL),
        ("/d/e", "/d", 2, Errno::INVAL),
        ("/g", "/y", 3, Errno::INVAL),
        ("/g", "/y", 4, Errno::INVAL),
        ("/", "/y", 0, Errno::BUSY),
    ] {
        assert_eq!(rename(&tree, from, to, flags), Err(expected), "{from} {to} {flags}");
    }
    assert_eq!(rename(&tree, "/g", "/g", 0), Ok(0));
    let at = |tree: &Tree, path| find(tree, path).expect("found");
    assert_eq!(tree.remove_folder(&at(&tree, "/d"), now), Err(Errno::NOTEMPTY));
    assert_eq!(tree.remove_folder(&at(&tree, "/g"), now), Err(Errno::NOTDIR));
    assert_eq!(tree.unlink_file(&at(&tree, "/d"), now), Err(Errno::ISDIR));
    assert_eq!(tree.link(&at(&tree, "/d"), &at(&tree, "/x"), now), Err(Errno::PERM));
    assert_eq!(find(&tree, "/g/x"), Err(Errno::NOTDIR));
    assert_eq!(find(&tree, "/x/y"), Err(Errno::NOENT));
    assert_eq!(find(&tree, "/d/../.."), Err(Errno::XDEV));
    assert_eq!(find(&tree, &format!("/{}", "x".repeat(256))), Err(Errno::NAMETOOLONG));
    assert_eq!(find(&tree, "/d/../d/./e//f"), find(&tree, "/d/e/f"));
}

#[test]
fn links_are_followed_inside_the_multifile_alone() {
    let mut tree = tree(0);
    make(&mut tree, "/d/");
    let file = make(&mut tree, "/d/f");
    for (name, text) in [("/l", "d"), ("/d/up", "../l/f"), ("/o", "o"), ("/a", "/d"), ("/x", "..")]
    {
        let at = find(&tree, name).expect("free");
        let text = CString::new(text).expect("no NUL");
        let changes = tree.symlink(&text, &at, (1, 0)).expect("made");
        tree.apply(changes);
    }
    let followed = |path: &str| tree.find(&CString::new(path).expect("no NUL"), true);
    assert_eq!(followed("/l/up").expect("there").inode, Some(file));
    assert_ne!(find(&tree, "/l/up").expect("there").inode, Some(file));
    assert_eq!(followed("/o"), Err(Errno::LOOP));
    assert_eq!(followed("/a/f"), Err(Errno::XDEV));
    assert_eq!(followed("/x"), Err(Errno::XDEV));
}

#[test]
fn names_count_and_the_last_one_takes_the_inode() {
    let mut tree = tree(0);
    let file = make(&mut tree, "/f");
    let (from, to) = (find(&tree, "/f").expect("there"), find(&tree, "/g").expect("free"));
    let changes = tree.link(&from, &to, (1, 0)).expect("linked");
    tree.apply(changes);
    assert_eq!(tree.link_count(file), 2);
    for (path, left) in [("/f", 0), ("/g", 1)] {
        let changes = tree.unlink_file(&find(&tree, path).expect("there"), (2, 0)).expect("there");
        assert_eq!(tree.apply(changes).gone.len(), left);
    }
    assert_eq!(tree.node(file), None);
    assert_eq!(tree.link_count(ROOT), 2);
}

/// As a damaged multifile may have it.
#[test]
fn a_folder_in_itself_can_be_renamed() {
    use multifile::catalogue::{Change, Node};
    let mut catalogue = Catalogue::new(1, Node { mode: FOLDER | 0o755, ..Node::default() });
    for change in [
        Change::Node(2, Node { mode: FOLDER | 0o755, ..Node::default() }),
        Change::Name(ROOT, b"a".to_vec(), 2),
        Change::Name(2, b"b".to_vec(), 2),
    ] {
        catalogue.apply(change).expect("no sense, and yet possible");
    }
    let tree = Tree::new(catalogue, User::default());
    let (from, to) = (find(&tree, "/a").expect("there"), find(&tree, "/c").expect("free"));
    assert!(tree.rename(&from, &to, 0, (1, 0)).is_ok());
}
