//! Buddy sets: written as SIONlib writes them, read when a physical file is lost.

use std::{fs, io::Read, path::Path};

use multifile::{
    Argument, Disk, Error, Group, NewTask, Options, Reader, Style,
    error::Cause,
    parallel::{BuddyWriter, NewSet},
};
use tempfile::TempDir;

use crate::{
    golden::{Golden, list, text},
    ranks::on_ranks,
};

const NAME: &str = "mpi_n4_buddy_f2.sion";

fn stream(reader: &Reader<fs::File>, task: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Format rule 9.1.
#[test]
fn buddy_sets_are_written_byte_for_byte() {
    let golden = Golden::unpack();
    let folder = TempDir::new().unwrap();
    let (disk, source) = (Disk::in_folder(folder.path()), golden.folder.path().join(NAME));
    on_ranks(4, move |group| {
        let rank = group.rank();
        let bytes = stream(&Reader::open(&Disk::new(), &source).unwrap(), rank as usize);
        let (file, local_rank, global_rank) = (rank % 2, rank / 2, i64::from(rank));
        let task = NewTask { file, local_rank, global_rank, chunk_len: 1000 };
        let (style, hints) = (Style::Parallel, false);
        let options = Options { fs_block_len: Some(512), style, hints, ..Options::default() };
        let path = Path::new(NAME);
        let set = NewSet { storage: &disk, path, options: &options };
        let mut writer = BuddyWriter::create(group, set, 1, task).unwrap();
        writer.ensure(100).unwrap();
        writer.write(&bytes).unwrap();
        writer.close(group).unwrap();
        assert_eq!(group.calls(), 4);
    });
    for name in
        list(&golden.case("mpi_n4_buddy_f2")["files"], |file| text(&file["name"]).to_owned())
    {
        let ours = fs::read(folder.path().join(&name)).unwrap();
        assert_eq!(ours, fs::read(golden.folder.path().join(&name)).unwrap(), "{name}");
    }
}

/// Format rule 9.2.
#[test]
fn a_lost_physical_file_is_read_from_its_copy() {
    for lost in [NAME, "mpi_n4_buddy_f2.sion.000001"] {
        let golden = Golden::unpack();
        let path = golden.folder.path().join(NAME);
        let before = Reader::open(&Disk::new(), &path).unwrap();
        let expected: Vec<_> = (0..4).map(|task| stream(&before, task)).collect();
        fs::remove_file(golden.folder.path().join(lost)).unwrap();
        assert!(Reader::open(&Disk::new(), &path).is_err());
        let reader = Reader::open_with_buddies(&Disk::new(), &path, 1).unwrap();
        let read: Vec<_> = (0..4).map(|task| stream(&reader, task)).collect();
        assert_eq!(read, expected);
        assert!(Reader::open_with_buddies(&Disk::new(), &path, 0).is_err());
    }
}

/// Sets of more files than rank 0 describes one by one, at several levels, in two calls each way.
#[test]
fn all_levels_are_opened_and_closed_together() {
    for (ranks, files, levels) in [(3, 1, 1), (7, 3, 2), (40, 20, 3)] {
        let folder = TempDir::new().unwrap();
        let disk = Disk::in_folder(folder.path());
        let data = |rank: u32| vec![u8::try_from(rank + 1).unwrap(); 600 + 10 * rank as usize];
        let disk_of = disk.clone();
        let calls = on_ranks(ranks, move |group| {
            let task = NewTask::in_files(&vec![500; ranks as usize], files)[group.rank() as usize];
            let (style, path) = (Style::Parallel, Path::new(NAME));
            let options = Options { fs_block_len: Some(512), style, ..Options::default() };
            let set = NewSet { storage: &disk_of, path, options: &options };
            let mut writer = BuddyWriter::create(group, set, levels, task).unwrap();
            let opening = group.calls();
            writer.write(&data(group.rank())).unwrap();
            writer.close(group).unwrap();
            (opening, group.calls())
        });
        assert_eq!(calls, vec![(2, 2); ranks as usize]);
        // All files but the last of the set itself are lost.
        for file in 0..files - 1 {
            fs::remove_file(folder.path().join(multifile::name::physical(Path::new(NAME), file)))
                .unwrap();
        }
        let reader = Reader::open_with_buddies(&disk, Path::new(NAME), levels).unwrap();
        for rank in 0..ranks {
            assert_eq!(stream(&reader, rank as usize), data(rank), "{rank} of {ranks}");
        }
    }
}

/// E5: what one rank knows to be wrong fails all, whatever is written.
#[test]
fn a_rank_without_a_task_refuses_all_levels_for_all() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let outcomes = on_ranks(3, move |group| {
        let task = NewTask::in_one_file(&[10; 3])[group.rank() as usize];
        let task = if group.rank() == 1 { Err(Argument::Mapping.into()) } else { Ok(task) };
        let (options, path) = (Options::default(), Path::new(NAME));
        let set = NewSet { storage: &disk, path, options: &options };
        BuddyWriter::create_with(group, set, 2, task, |_, _| Ok(())).map(|_| ()).err()
    });
    let cause = Cause::Argument(Argument::Mapping);
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 1, cause }); 3]);
}

/// A copy that cannot be completed does not keep the set itself, or another copy, from it.
#[test]
fn a_level_that_fails_leaves_the_others_complete() {
    let folder = TempDir::new().unwrap();
    let disk = Disk::in_folder(folder.path());
    let (disk_of, lost) = (disk.clone(), folder.path().join("mpi_n4_buddy_f2.sion_BUDDY_00"));
    let outcomes = on_ranks(2, move |group| {
        let task = NewTask::in_one_file(&[10; 2])[group.rank() as usize];
        let (options, path) = (Options::default(), Path::new(NAME));
        let set = NewSet { storage: &disk_of, path, options: &options };
        let mut writer = BuddyWriter::create(group, set, 2, task).unwrap();
        writer.write(b"kept").unwrap();
        if group.rank() == 0 {
            fs::remove_file(&lost).unwrap();
        }
        writer.close(group).err()
    });
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 0, cause: Cause::Io(0, 2) }); 2]);
    for name in [NAME, "mpi_n4_buddy_f2.sion_BUDDY_01"] {
        let reader = Reader::open(&disk, Path::new(name)).unwrap();
        assert!((0..reader.task_count()).any(|task| stream(&reader, task) == b"kept"), "{name}");
    }
}
