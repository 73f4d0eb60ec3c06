//! Buddy sets of which each physical file, and each copy, is on the storage of a node.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use multifile::{
    Disk, Group, NewTask, Options, ParReader, Style,
    group::Threads,
    parallel::{BuddyWriter, NewSet, OwnGroup, Part, Seat},
};
use tempfile::TempDir;

use crate::ranks::on_ranks;

const NAME: &str = "a.sion";
/// The node of each rank.
const NODES: [u32; 7] = [0, 0, 1, 1, 1, 2, 3];

fn nodes(folder: &TempDir) -> Vec<PathBuf> {
    let nodes: Vec<_> = (0..4).map(|node| folder.path().join(format!("node{node}"))).collect();
    nodes.iter().for_each(|node| fs::create_dir_all(node).unwrap());
    nodes
}

fn at(rank: u32) -> (u32, u32) {
    let (file, before) = (NODES[rank as usize], &NODES[..rank as usize]);
    (file, u32::try_from(before.iter().filter(|node| **node == file).count()).unwrap())
}

fn task(rank: u32) -> NewTask {
    let (file, local_rank) = at(rank);
    NewTask { file, local_rank, global_rank: rank.into(), chunk_len: 300 * u64::from(rank + 1) }
}

/// One of several writes of a rank, some of them empty.
fn data(rank: u32, call: u32) -> Vec<u8> {
    let len = (97 * call * rank) % (300 * (rank + 1));
    (0..len).map(|at| u8::try_from((at * 7 + rank + call) % 251).unwrap()).collect()
}

fn stream(rank: u32) -> Vec<u8> {
    (0..12).flat_map(|call| data(rank, call)).collect()
}

/// Groups of threads that meet by the number of the split and of the part.
#[derive(Clone, Debug, Default)]
struct Parts(Arc<Mutex<Met>>);

type Met = HashMap<(u32, u32), Vec<Option<Threads>>>;

impl Parts {
    fn join(&self, split: u32, part: Part) -> OwnGroup {
        let mut parts = self.0.lock().unwrap();
        let groups = parts
            .entry((split, part.number))
            .or_insert_with(|| Threads::new(part.size).into_iter().map(Some).collect());
        Box::new(groups[part.rank as usize].take().expect("each rank joins once"))
    }
}

fn options() -> Options {
    Options { fs_block_len: Some(512), style: Style::Parallel, ..Options::default() }
}

/// How a rank names its file: by the folder that it works in, or by a path.
fn own(by_folder: bool, node: &Path) -> (Disk, PathBuf) {
    if by_folder { (Disk::in_folder(node), NAME.into()) } else { (Disk::new(), node.join(NAME)) }
}

fn write(nodes: &[PathBuf], by_folder: bool, levels: u32, options: &Options) {
    let (nodes, options, parts) = (nodes.to_vec(), options.clone(), Parts::default());
    on_ranks(7, move |group| {
        let rank = group.rank();
        let (disk, path) = own(by_folder, &nodes[at(rank).0 as usize]);
        let splits = std::cell::Cell::new(0);
        let split = |part| {
            splits.set(splits.get() + 1);
            Ok(parts.join(splits.get(), part))
        };
        let set = NewSet { storage: &disk, path: &path, options: &options };
        let prepare = |_, _: &fs::File| Ok(());
        let mut writer =
            BuddyWriter::create_apart(group, set, levels, Ok(task(rank)), &split, prepare).unwrap();
        assert!(writer.is_apart() && writer.write(b"alone").is_err());
        for call in 0..12 {
            let bytes = data(rank, call);
            writer.ensure(bytes.len() as u64).unwrap();
            writer.write_together(&bytes).unwrap();
        }
        writer.close(group).unwrap();
    });
}

type Read = Result<Vec<u8>, multifile::Error>;

fn read(nodes: &[PathBuf], by_folder: bool, levels: u32) -> Vec<Read> {
    let (nodes, parts) = (nodes.to_vec(), Parts::default());
    on_ranks(7, move |group| {
        let (file, local_rank) = at(group.rank());
        let (disk, path) = own(by_folder, &nodes[file as usize]);
        let splits = std::cell::Cell::new(0);
        let split = |part| {
            splits.set(splits.get() + 1);
            Ok(parts.join(splits.get(), part))
        };
        let seat = Seat { file, file_count: 4, local_rank, team: 1, split: &split };
        let mut reader =
            ParReader::open_with_buddies_apart(group, &disk, &path, levels, &seat, |_| Ok(()))?;
        let found = &mut reader.tasks_mut()[0];
        assert_eq!((found.task.file, found.task.global_rank), (file, i64::from(group.rank())));
        found.stream.read_rest()
    })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Format rule 9.3: the files are those of a set on storage that all ranks reach.
#[test]
fn copies_are_kept_on_the_node_of_the_next_file() {
    for (by_folder, levels, checksums) in [(true, 1, false), (false, 2, true), (true, 3, false)] {
        let (folder, whole) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let nodes = nodes(&folder);
        let options = Options { checksums, ..options() };
        write(&nodes, by_folder, levels, &options);
        let disk = Disk::in_folder(whole.path());
        on_ranks(7, move |group| {
            let (rank, path) = (group.rank(), Path::new(NAME));
            let set = NewSet { storage: &disk, path, options: &options };
            let mut writer = BuddyWriter::create(group, set, levels, task(rank)).unwrap();
            for call in 0..12 {
                let bytes = data(rank, call);
                writer.ensure(bytes.len() as u64).unwrap();
                writer.write_together(&bytes).unwrap();
            }
            writer.close(group).unwrap();
        });
        let mut found = Vec::new();
        for (number, node) in (0u32..).zip(&nodes) {
            for name in names(node) {
                let level = name.find("_BUDDY_").map(|at| name[at + 7..at + 9].parse::<u32>());
                let file = name.rsplit_once(".0").map_or(Ok(0), |(_, file)| file.parse::<u32>());
                let keeps = level.map_or(0, |level| level.unwrap() + 1);
                assert_eq!((file.unwrap() + keeps) % 4, number, "{name}");
                let (ours, theirs) =
                    (fs::read(node.join(&name)), fs::read(whole.path().join(&name)));
                // By a path, each header has the path of its own node.
                let same = if by_folder { 0 } else { 1076 };
                assert!(ours.unwrap()[same..] == theirs.unwrap()[same..], "{name}");
                found.push(name);
            }
        }
        found.sort();
        assert_eq!(found, names(whole.path()));
    }
}

/// Format rule 9.2.
#[test]
fn streams_of_a_lost_node_are_sent_by_the_node_of_its_copy() {
    for (lost, levels) in [(&[][..], 1), (&[1], 1), (&[0], 1), (&[1, 2], 2), (&[0, 3, 2], 3)] {
        for by_folder in [true, false] {
            let folder = TempDir::new().unwrap();
            let nodes = nodes(&folder);
            write(&nodes, by_folder, levels, &options());
            for node in lost {
                let node: &PathBuf = &nodes[*node];
                fs::remove_dir_all(node).unwrap();
                fs::create_dir(node).unwrap();
            }
            for (rank, found) in (0u32..).zip(read(&nodes, by_folder, levels)) {
                assert!(found == Ok(stream(rank)), "rank {rank} without {lost:?}: {found:?}");
            }
            let left = lost.iter().flat_map(|node| names(&nodes[*node]));
            assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
        }
    }
}

#[test]
fn file_that_is_lost_with_its_copies_is_missed_by_all_ranks() {
    let folder = TempDir::new().unwrap();
    let nodes = nodes(&folder);
    write(&nodes, true, 1, &options());
    for node in [&nodes[1], &nodes[2]] {
        fs::remove_dir_all(node).unwrap();
        fs::create_dir(node).unwrap();
    }
    let found = read(&nodes, true, 1);
    let same = found.windows(2).all(|pair| pair[0] == pair[1]);
    assert!(same && found[0].is_err(), "{found:?}");
}

/// A block of the copy that cannot be read ends the open for all.
#[test]
fn damaged_copy_fails_all_ranks() {
    let folder = TempDir::new().unwrap();
    let nodes = nodes(&folder);
    write(&nodes, true, 1, &options());
    fs::remove_file(nodes[1].join("a.sion.000001")).unwrap();
    let copy = nodes[2].join("a.sion_BUDDY_00.000001");
    let mut bytes = fs::read(&copy).unwrap();
    // The global rank of the first copied task.
    bytes[1076 + 8] ^= 0x40;
    fs::write(&copy, bytes).unwrap();
    let found = read(&nodes, true, 1);
    assert!(found.iter().all(Result::is_err), "{found:?}");
}
