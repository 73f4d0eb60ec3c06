//! Loss of power: of what a file has got since its last sync any sectors are on the disk, and the
//! others are as they were.

use std::{cell::RefCell, fs, os::fd::AsRawFd};

use storage::names::FileCall;

use super::*;

/// Bytes that are on the disk as a whole or not at all.
const SECTOR_LEN: usize = 512;
const FILES: u8 = 12;

thread_local! {
    /// Physical files and journals as they were last synced, in the test that asks for them.
    static SYNCED: RefCell<Option<BTreeMap<PathBuf, Vec<u8>>>> = const { RefCell::new(None) };
}

/// A file as it is when somebody begins to sync it.
pub(crate) struct Syncing(Option<(PathBuf, Vec<u8>)>);

impl Syncing {
    pub(crate) fn begin(file: &impl AsRawFd) -> Self {
        let is_wanted = SYNCED.with_borrow(Option::is_some);
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let read = || (fs::read_link(&link).expect("a name"), fs::read(&link).expect("readable"));
        Self(is_wanted.then(read))
    }

    /// The sync was successful.
    pub(crate) fn end(self) {
        SYNCED.with_borrow_mut(|all| all.iter_mut().for_each(|all| all.extend(self.0.clone())));
    }
}

/// A file, filled with a byte that no other one has.
#[derive(Debug)]
struct Model {
    name: String,
    byte: u8,
    len: usize,
    /// Bytes that a sync has returned for.
    synced_len: usize,
    /// The most that it ever had.
    most: usize,
    is_removed: bool,
}

impl World {
    /// The node is lost: of what was not synced any sectors are on the disk.
    fn lose_power(&mut self) {
        self.files.volumes = Rc::new([]);
        let mut synced = SYNCED.take().expect("wanted");
        let files = fs::read_dir(self.folder.path()).expect("there").flatten();
        let paths: Vec<_> = files.map(|file| file.path()).collect();
        // Mostly all of some files, and nothing of others.
        let parts = [0, 0, 1, 2, 4, 4];
        for path in paths {
            let (now, was) = (fs::read(&path).expect("there"), synced.remove(&path));
            let (was, part) = (was.unwrap_or_default(), *self.rng.choice(&parts).expect("some"));
            let mut left = was.clone();
            let mut end = if self.rng.u8(..4) < part { now.len() } else { was.len() };
            left.resize(now.len().max(was.len()), 0);
            for at in (0..now.len()).step_by(SECTOR_LEN) {
                let range = at..now.len().min(at + SECTOR_LEN);
                if self.rng.u8(..4) < part {
                    left[range.clone()].copy_from_slice(&now[range.clone()]);
                    let is_written =
                        was.get(range.clone()).is_none_or(|was| *was != now[range.clone()]);
                    end = if is_written { end.max(range.end) } else { end };
                }
            }
            left.truncate(end);
            fs::write(&path, &left).expect("room");
            synced.insert(path, left);
        }
        SYNCED.set(Some(synced));
    }

    /// Opens what is left.
    fn start_on_left(&mut self) -> io::Result<()> {
        let path = self.path();
        let volume = Volume::open(self.machine.clone(), &path, self.shape, false);
        let volume = self.executor.run_until(volume)?;
        self.files.volumes = Rc::new([(b"/m".to_vec(), volume)]);
        Ok(())
    }

    /// Ends the daemon in order, and begins to write what it has left.
    fn close_and_begin(&mut self) {
        self.restart(true);
        let path = name(&format!("d{}", self.rng.u64(..)));
        self.name(NameCall::MakeDir { path, mode: 0o755 }).expect("a folder");
        // All is synced before the tables go behind which it counts as closed.
        let files = fs::read_dir(self.folder.path()).expect("there").flatten();
        let read = |path: PathBuf| (path.clone(), fs::read(path).expect("there"));
        SYNCED.set(Some(files.map(|file| read(file.path())).collect()));
    }

    fn step_of(&mut self, model: &mut [Model]) {
        let number = self.rng.usize(..model.len().max(1));
        let len = if self.rng.u8(..4) == 0 { 6000 } else { 700 };
        let len = self.rng.usize(1..len);
        let Some(file) = model.get_mut(number) else { return };
        match self.rng.u8(..20) {
            0 => self.restart(false),
            1 => self.close_and_begin(),
            2 => {
                let path = name(&format!("d{}", self.rng.u64(..)));
                self.name(NameCall::MakeDir { path, mode: 0o755 }).expect("a folder");
            }
            3..=5 if !file.is_removed => {
                self.name(NameCall::Unlink { path: name(&file.name) }).expect("there");
                (file.is_removed, file.synced_len) = (true, 0);
            }
            6..=10 if !file.is_removed => {
                let open = self.open(&file.name, OFlags::RDWR).expect("there");
                let files = self.files.clone();
                let synced = files.on(&open, FileCall::Sync { data_only: true });
                self.executor.run_until(synced).expect("synced");
                file.synced_len = file.len;
            }
            _ if !file.is_removed => {
                let open = self.open(&file.name, OFlags::RDWR).expect("there");
                self.write(&open, file.len, &vec![file.byte; len]);
                file.len += len;
                file.most = file.most.max(file.len);
            }
            _ => {}
        }
    }

    /// Checks that all synced bytes are there, and after the first loss that none is another
    /// file's. Later a file that was not synced may have what an earlier loss has left.
    fn check_left(&mut self, model: &mut Vec<Model>, is_first: bool, seed: u64) {
        for file in model.iter_mut() {
            let Ok(open) = self.open(&file.name, OFlags::RDONLY) else {
                assert_eq!(file.synced_len, 0, "{seed}: {file:?} is not there");
                file.is_removed = true;
                continue;
            };
            let found = self.read(&open);
            let synced = found.get(..file.synced_len);
            let is_there = synced.is_some_and(|all| all.iter().all(|byte| *byte == file.byte));
            assert!(is_there, "{seed}: {file:?} has lost bytes, of {}", found.len());
            let is_own = found.iter().all(|byte| [0, file.byte].contains(byte));
            assert!(
                !is_first || is_own && found.len() <= file.most,
                "{seed}: {file:?} has others'"
            );
            file.len = found.len();
            // Of one with a hole nothing is known later.
            file.is_removed = found.contains(&0);
        }
        model.retain(|file| !file.is_removed);
    }
}

#[test]
fn what_was_synced_survives_loss_of_power_in_whatever_order_the_rest_was_written() {
    for seed in 0..60 {
        SYNCED.set(Some(BTreeMap::new()));
        let mut world = World::shaped(seed, SMALL);
        let (mut model, mut next) = (Vec::<Model>::new(), 0);
        for round in 0..4 {
            for _ in 0..world.rng.usize(..60) {
                if model.len() < FILES.into() && world.rng.bool() && next < u8::MAX {
                    next += 1;
                    let name = format!("f{next}");
                    world.open(&name, OFlags::CREATE | OFlags::RDWR).expect("made");
                    let (len, synced_len, most) = (0, 0, 0);
                    model.push(Model {
                        name,
                        byte: next,
                        len,
                        synced_len,
                        most,
                        is_removed: false,
                    });
                }
                world.step_of(&mut model);
            }
            world.lose_power();
            if let Err(why) = world.start_on_left() {
                assert!(model.iter().all(|file| file.synced_len == 0), "{seed}: {why:?}");
                break;
            }
            world.check_left(&mut model, round == 0, seed);
        }
    }
    SYNCED.set(None);
}
