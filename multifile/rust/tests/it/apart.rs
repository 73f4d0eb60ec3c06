//! Sets of which each physical file is on the storage of its own ranks' node.

use std::{fs, path::Path};

use multifile::{
    Disk, Group, NewTask, Options, Packing, ParReader, ParWriter, Reader, Style,
    parallel::{BuddyWriter, NewSet},
};
use tempfile::TempDir;

use crate::{
    golden::{Golden, list, sha256, text},
    ranks::on_ranks,
};

const NAME: &str = "a.sion";
const RANKS: [u64; 6] = [100, 700, 0, 512, 64, 3000];
/// The file of each rank.
const FILES: [u32; 6] = [0, 0, 1, 1, 1, 2];

/// The storage of the nodes: a folder each.
fn nodes(folder: &TempDir) -> Vec<std::path::PathBuf> {
    let nodes = (0..3).map(|node| folder.path().join(format!("node{node}")));
    let nodes: Vec<_> = nodes.collect();
    nodes.iter().for_each(|node| fs::create_dir_all(node).unwrap());
    nodes
}

fn options() -> Options {
    let (fs_block_len, style) = (Some(512), Style::Parallel);
    Options { fs_block_len, style, apart: true, buffer_len: 0, ..Options::default() }
}

fn task(rank: usize) -> NewTask {
    let local = FILES[..rank].iter().filter(|file| **file == FILES[rank]).count();
    NewTask {
        file: FILES[rank],
        local_rank: u32::try_from(local).unwrap(),
        global_rank: i64::try_from(rank).unwrap(),
        chunk_len: RANKS[rank],
    }
}

/// Returns the data of rank `rank`: many blocks, some of them ending in zeros, or nothing.
fn data(rank: usize) -> Vec<u8> {
    let len = if RANKS[rank] == 0 { 0 } else { 5000 * rank };
    (0..len).map(|at| u8::try_from(at % 251 % 7 * rank % 251).unwrap()).collect()
}

/// How a rank names its file: the storage, and the path in it.
fn name(by_folder: bool, node: &Path) -> (Disk, std::path::PathBuf) {
    if by_folder { (Disk::in_folder(node), NAME.into()) } else { (Disk::new(), node.join(NAME)) }
}

fn write(nodes: &[std::path::PathBuf], by_folder: bool, options: &Options) {
    let (nodes, options) = (nodes.to_vec(), options.clone());
    on_ranks(6, move |group| {
        let rank = usize::try_from(group.rank()).unwrap();
        let (disk, path) = name(by_folder, &nodes[usize::try_from(FILES[rank]).unwrap()]);
        let mut writer = ParWriter::create(group, &disk, &path, task(rank), &options).unwrap();
        if RANKS[rank] > 0 {
            writer.task(0).unwrap().write(&data(rank)).unwrap();
        }
        writer.close(group).unwrap();
    });
}

/// Returns the data each rank reads, from the folder of its own file.
fn read(nodes: &[std::path::PathBuf], by_folder: bool) -> Vec<Vec<u8>> {
    let nodes = nodes.to_vec();
    on_ranks(6, move |group| {
        let rank = usize::try_from(group.rank()).unwrap();
        let (disk, path) = name(by_folder, &nodes[usize::try_from(FILES[rank]).unwrap()]);
        let by_each = ParReader::open_by_each(group, &disk, &path, |_| Ok(())).unwrap();
        let mut reader = ParReader::open(group, &disk, &path).unwrap();
        let local = &mut reader.tasks_mut()[0];
        assert_eq!(by_each.tasks()[0].task, local.task);
        assert_eq!(
            (local.task.file, local.task.global_rank),
            (FILES[rank], i64::from(group.rank()))
        );
        local.stream.read_rest().unwrap()
    })
}

/// Format rule 6.1. By working folder, and by file name.
#[test]
fn set_of_local_files_is_complete_on_each_node() {
    let variants = [
        options(),
        Options { checksums: true, ..options() },
        Options { journal: false, packing: Packing::Collective { size: None }, ..options() },
    ];
    for (by_folder, options) in
        [true, false].iter().flat_map(|by| variants.iter().map(|o| (*by, o)))
    {
        let folder = TempDir::new().unwrap();
        let nodes = nodes(&folder);
        // What an earlier run left on the first node, which no rank there writes.
        fs::write(nodes[0].join("a.sion.000002"), "stale").unwrap();
        write(&nodes, by_folder, options);
        let names = |node: usize| {
            let entries = fs::read_dir(&nodes[node]).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(0), ["a.sion", "a.sion.000002"]);
        assert_eq!(
            (names(1), names(2)),
            (vec!["a.sion.000001".into()], vec!["a.sion.000002".into()])
        );
        fs::remove_file(nodes[0].join("a.sion.000002")).unwrap();
        for (rank, found) in read(&nodes, by_folder).into_iter().enumerate() {
            assert!(found == data(rank), "rank {rank}: {} bytes", found.len());
        }
        // On its own node, a file says nothing of the others.
        let first = Reader::open(&Disk::in_folder(&nodes[0]), Path::new(NAME));
        assert!(matches!(first, Err(multifile::Error::Io { file: 1, .. })), "{first:?}");
        let own = Reader::open(&Disk::in_folder(&nodes[1]), Path::new("a.sion.000001")).unwrap();
        assert_eq!(own.task_count(), 3);
        own.check().unwrap();
        // Brought together they are the set that any other writer would have made.
        for (node, name) in [(1, "a.sion.000001"), (2, "a.sion.000002")] {
            fs::copy(nodes[node].join(name), nodes[0].join(name)).unwrap();
        }
        let reader = Reader::open(&Disk::in_folder(&nodes[0]), Path::new(NAME)).unwrap();
        reader.check().unwrap();
        for rank in 0..6 {
            assert!(reader.stream(rank).unwrap().read_rest().unwrap() == data(rank), "{rank}");
            assert_eq!(reader.verify(rank), Ok(options.checksums));
        }
        let together = Options { apart: false, name: options.name.clone(), ..options.clone() };
        if by_folder {
            let whole = TempDir::new().unwrap();
            let same = vec![whole.path().to_owned(); 3];
            write(&same, true, &together);
            for name in ["a.sion", "a.sion.000001", "a.sion.000002"] {
                let equal = fs::read(whole.path().join(name)).unwrap()
                    == fs::read(nodes[0].join(name)).unwrap();
                assert!(equal, "{name}");
            }
        }
    }
}

/// Without a word of where its files are, a set is one that all ranks reach; if they do not,
/// closing says so. Buddy copies need that.
#[test]
fn set_whose_files_rank_0_does_not_see_fails_to_close() {
    for levels in [0, 1] {
        let folder = TempDir::new().unwrap();
        let own = nodes(&folder);
        let failed = on_ranks(6, move |group| {
            let rank = usize::try_from(group.rank()).unwrap();
            let disk = Disk::in_folder(&own[usize::try_from(FILES[rank]).unwrap()]);
            let (path, options) = (Path::new(NAME), Options { apart: false, ..options() });
            if levels > 0 {
                let set = NewSet { storage: &disk, path, options: &options };
                let writer = BuddyWriter::create(group, set, levels, task(rank)).unwrap();
                return writer.close(group).is_err();
            }
            let writer = ParWriter::create(group, &disk, path, task(rank), &options).unwrap();
            writer.close(group).is_err()
        });
        assert_eq!(failed, [true; 6]);
    }
}

/// A set left on the first node by a run that had all files there.
#[test]
fn rank_reads_its_own_file_rather_than_the_one_rank_0_sees() {
    let folder = TempDir::new().unwrap();
    let nodes = nodes(&folder);
    let here = vec![nodes[0].clone(); 3];
    write(&here, true, &Options { fs_block_len: Some(64), ..options() });
    write(&nodes, true, &options());
    for (rank, found) in read(&nodes, true).into_iter().enumerate() {
        assert!(found == data(rank), "rank {rank}: {} bytes", found.len());
    }
}

/// Sets of SIONlib, each file moved to the storage of a node.
#[test]
fn local_files_of_sionlib_are_read_by_their_ranks() {
    let golden = Golden::unpack();
    let case = golden.case("mpi_n6_lcomm2");
    let folder = TempDir::new().unwrap();
    let nodes = nodes(&folder);
    let names = list(&case["files"], |file| text(&file["name"]).to_owned());
    for (name, node) in names.iter().zip(&nodes) {
        fs::copy(golden.folder.path().join(name), node.join(name)).unwrap();
    }
    let set = names[0].clone();
    let files: Vec<usize> = {
        let reader = Reader::open(&Disk::in_folder(golden.folder.path()), Path::new(&set)).unwrap();
        let file = |task| usize::try_from(reader.task(task).unwrap().file).unwrap();
        (0..reader.task_count()).map(file).collect()
    };
    let sums = on_ranks(6, move |group| {
        let rank = usize::try_from(group.rank()).unwrap();
        let disk = Disk::in_folder(&nodes[files[rank]]);
        let mut reader = ParReader::open(group, &disk, Path::new(&set)).unwrap();
        sha256(&reader.tasks_mut()[0].stream.read_rest().unwrap())
    });
    for (task, sum) in case["tasks"].as_array().unwrap().iter().zip(sums) {
        assert_eq!(task["sha256"], sum);
    }
}

/// The set that was there before stays when the new one cannot be.
#[test]
fn refused_set_of_local_files_leaves_the_one_before_whole() {
    let folder = TempDir::new().unwrap();
    let nodes = nodes(&folder);
    write(&nodes, true, &options());
    let own = nodes.clone();
    let refused = on_ranks(6, move |group| {
        let rank = usize::try_from(group.rank()).unwrap();
        let disk = Disk::in_folder(&own[usize::try_from(FILES[rank]).unwrap()]);
        // The last rank asks for another block size than the others.
        let fs_block_len = Some(if rank == 5 { 1024 } else { 512 });
        let options = Options { fs_block_len, ..options() };
        ParWriter::create(group, &disk, Path::new(NAME), task(rank), &options).is_err()
    });
    assert_eq!(refused, [true; 6]);
    assert!(read(&nodes, true).into_iter().enumerate().all(|(rank, found)| found == data(rank)));
}
