//! Many ranks open, write, close, and read one multifile.

use std::{fs, io::Read, path::Path};

use multifile::{
    Argument, Disk, Error, Group, NewTask, Options, Packing, ParReader, ParWriter, Reader, Style,
    Writer, error::Cause, group::Callbacks,
};
use tempfile::TempDir;

use crate::{
    golden::{Golden, text},
    memory::Memory,
    ranks::on_ranks,
};

const NAME: &str = "a.sion";

fn disk(folder: &TempDir) -> Disk {
    Disk::in_folder(folder.path())
}

fn options() -> Options {
    Options { fs_block_len: Some(512), style: Style::Parallel, ..Options::default() }
}

/// Task `index`'s data, different for each, and each longer.
fn data(index: u32) -> Vec<u8> {
    (0..index * 300 + 10).map(|at| u8::try_from((at * 7 + index) % 251).unwrap()).collect()
}

/// Writes `data` of every rank; returns collective calls to open and to close.
fn write_set(
    folder: &TempDir,
    ranks: u32,
    tasks: &[NewTask],
    options: &Options,
) -> Vec<(u32, u32)> {
    let (disk, tasks, options) = (disk(folder), tasks.to_vec(), options.clone());
    on_ranks(ranks, move |group| {
        let task = tasks[usize::try_from(group.rank()).unwrap()];
        let mut writer = ParWriter::create(group, &disk, Path::new(NAME), task, &options).unwrap();
        let opening = group.calls();
        writer.task(0).unwrap().write(&data(group.rank())).unwrap();
        writer.close(group).unwrap();
        (opening, group.calls())
    })
}

fn check_set(folder: &TempDir, tasks: u32) {
    let reader = Reader::open(&disk(folder), Path::new(NAME)).unwrap();
    assert_eq!(reader.task_count(), usize::try_from(tasks).unwrap());
    for task in 0..tasks {
        let mut bytes = Vec::new();
        reader.stream(usize::try_from(task).unwrap()).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, data(task));
    }
}

#[test]
fn ranks_write_what_sionlib_writes_byte_for_byte() {
    let golden = Golden::unpack();
    let mut compared = 0;
    for case in golden.cases.iter().filter(|case| case["api"] == "mpi" && case["closed"] == true) {
        let (mode, name) = (text(&case["file_mode"]), text(&case["file"]).to_owned());
        if mode.contains("buddy") || mode.contains("cmerge") {
            continue; // Their data does not go where the task's own stream is.
        }
        let size = mode.split(',').find_map(|part| part.strip_prefix("collsize="));
        let size = size.map(|size| size.parse().unwrap());
        let packing =
            size.map_or(Packing::Aligned, |size| Packing::Collective { size: Some(size) });
        let fs_block_len = case["fsblksize"].as_u64().map(|len| u32::try_from(len).unwrap());
        let keyval = case["keyval"] == true;
        let options = Options { fs_block_len, packing, keyval, hints: false, ..options() };
        let (folder, source) = (TempDir::new().unwrap(), golden.folder.path().join(&name));
        let (disk, case_name, own) = (disk(&folder), name.clone(), case.clone());
        on_ranks(u32::try_from(own["ntasks"].as_u64().unwrap()).unwrap(), move |group| {
            let index = usize::try_from(group.rank()).unwrap();
            let reader = Reader::open(&Disk::new(), &source).unwrap();
            let stored = reader.task(index).unwrap();
            let task = NewTask {
                file: stored.file,
                local_rank: stored.local_rank,
                global_rank: stored.global_rank,
                chunk_len: own["chunksize_requested"][index].as_u64().unwrap(),
            };
            let mut writer =
                ParWriter::create(group, &disk, Path::new(&case_name), task, &options).unwrap();
            let (mut stream, mut out) = (reader.stream(index).unwrap(), writer.task(0).unwrap());
            for (block, len) in reader.block_lens(index).unwrap().iter().enumerate() {
                if block > 0 {
                    out.next_block().unwrap();
                }
                let mut bytes = vec![0; usize::try_from(*len).unwrap()];
                stream.read(&mut bytes).unwrap();
                out.write(&bytes).unwrap();
            }
            writer.close(group).unwrap();
        });
        for file in case["files"].as_array().unwrap() {
            let ours = fs::read(folder.path().join(text(&file["name"]))).unwrap();
            assert_eq!(ours, fs::read(golden.path(&file["name"])).unwrap(), "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 21);
}

#[test]
fn opening_and_closing_take_two_collective_calls() {
    let folder = TempDir::new().unwrap();
    let calls = write_set(&folder, 9, &NewTask::in_files(&[700; 9], 3), &options());
    assert_eq!(calls, [(2, 2); 9]);
    check_set(&folder, 9);
    let disk = disk(&folder);
    let calls = on_ranks(9, move |group| {
        ParReader::open(group, &disk, Path::new(NAME)).unwrap();
        group.calls()
    });
    assert_eq!(calls, [3; 9]);
}

/// Beyond the limits of rank 0 every rank writes its own entries of the header.
#[test]
fn a_set_of_many_files_costs_no_more_calls() {
    for checksums in [false, true] {
        let folder = TempDir::new().unwrap();
        let options = Options { checksums, ..options() };
        let calls = write_set(&folder, 20, &NewTask::in_files(&[40; 20], 20), &options);
        assert_eq!(calls, [(2, 2); 20]);
        check_set(&folder, 20);
        let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
        assert_eq!(reader.verify(19), Ok(checksums));
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 20, "journals are removed");
    }
}

/// A use that does not fit a record at closing is left in the journal, even where none is wanted.
#[test]
fn many_blocks_cost_no_more_calls_to_close() {
    let many = |rank: u32| vec![u8::try_from(rank).unwrap(); 512 * 700 * (rank as usize % 2) + 9];
    for (journal, checksums) in [(true, false), (false, true)] {
        let folder = TempDir::new().unwrap();
        let options = Options { journal, checksums, ..options() };
        let disk_of = disk(&folder);
        let calls = on_ranks(3, move |group| {
            let task = NewTask::in_files(&[512; 3], 2)[group.rank() as usize];
            let path = Path::new(NAME);
            let mut writer = ParWriter::create(group, &disk_of, path, task, &options).unwrap();
            writer.task(0).unwrap().write(&many(group.rank())).unwrap();
            group.calls();
            writer.close(group).unwrap();
            group.calls()
        });
        assert_eq!(calls, [2; 3]);
        let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
        for task in 0..3 {
            let mut bytes = Vec::new();
            reader.stream(task as usize).unwrap().read_to_end(&mut bytes).unwrap();
            assert!(bytes == many(task), "task {task}");
            assert_eq!(reader.verify(task as usize), Ok(checksums));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "journals are removed");
    }
}

/// Ranks with few tasks need one exchange to open, those with more than fit a record another.
#[test]
fn many_tasks_of_a_rank_cost_one_more_exchange_to_open() {
    for (most, expected) in [(3, 2), (256, 2), (257, 4)] {
        let folder = TempDir::new().unwrap();
        let (disk_of, path) = (disk(&folder), Path::new(NAME));
        let calls = on_ranks(3, move |group| {
            // Rank 1 has none, and rank 2 half of what rank 0 has.
            let count = [most, 0, most / 2][group.rank() as usize];
            let first = [0, 0, most][group.rank() as usize];
            let task = |local_rank| NewTask {
                file: 0,
                local_rank,
                global_rank: local_rank.into(),
                chunk_len: 10,
            };
            let tasks: Vec<_> = (first..first + count).map(task).collect();
            let options = Options { style: Style::Mapped, ..options() };
            let mut writer =
                ParWriter::create_mapped(group, &disk_of, path, &tasks, &options).unwrap();
            let opening = group.calls();
            for (local, task) in tasks.iter().enumerate() {
                writer.task(local).unwrap().write(&task.local_rank.to_le_bytes()).unwrap();
            }
            writer.close(group).unwrap();
            (opening, group.calls())
        });
        assert_eq!(calls, [(expected, 2); 3]);
        let reader = Reader::open(&disk(&folder), path).unwrap();
        assert_eq!(reader.task_count(), (most + most / 2) as usize);
        for task in 0..reader.task_count() {
            let mut bytes = Vec::new();
            reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes, u32::try_from(task).unwrap().to_le_bytes());
        }
    }
}

/// Opening to read, with as many ranks as tasks and with fewer, and in every other way.
#[test]
fn reading_takes_three_collective_calls_at_most() {
    let folder = TempDir::new().unwrap();
    write_set(&folder, 9, &NewTask::in_files(&[700; 9], 3), &options());
    for (ranks, way, expected) in [(9, 0, 3), (2, 0, 3), (12, 0, 3), (2, 1, 2), (9, 2, 2)] {
        let disk = disk(&folder);
        let calls = on_ranks(ranks, move |group| {
            let (path, ready) = (Path::new(NAME), |_: &[_]| Ok(()));
            let read = match way {
                0 => ParReader::open(group, &disk, path),
                1 => ParReader::open_by_each(group, &disk, path, ready),
                _ => ParReader::open_mapped(group, &disk, path, &[group.rank()], ready),
            };
            assert!(ranks > 9 || !read.unwrap().tasks().is_empty());
            group.calls()
        });
        assert_eq!(calls, vec![expected; ranks as usize], "{ranks} ranks, way {way}");
    }
}

/// E5: what a rank needs besides its file is part of opening.
#[test]
fn what_one_rank_cannot_prepare_fails_on_all() {
    let folder = TempDir::new().unwrap();
    write_set(&folder, 3, &NewTask::in_files(&[10; 3], 1), &options());
    let disk = disk(&folder);
    let outcomes = on_ranks(3, move |group| {
        let ready = || if group.rank() == 1 { Err(Argument::Position.into()) } else { Ok(()) };
        let path = Path::new(NAME);
        let read = ParReader::open_with(group, &disk, path, |_| ready()).map(|_| ()).err();
        let task = NewTask::in_one_file(&[10; 3])[group.rank() as usize];
        let written =
            ParWriter::create_with(group, &disk, path, Ok(task), &options(), |_, _| ready());
        [read, written.map(|_| ()).err()]
    });
    let cause = Cause::Argument(Argument::Position);
    assert_eq!(outcomes, [[Some(Error::OnRank { rank: 1, cause }); 2]; 3]);
}

/// E6: reading with another number of ranks than wrote is a split, not garbage or a hang.
#[test]
fn any_number_of_ranks_reads_everything_once() {
    let folder = TempDir::new().unwrap();
    write_set(&folder, 7, &NewTask::in_files(&[700; 7], 3), &options());
    for ranks in [1, 2, 3, 7, 9] {
        let disk = disk(&folder);
        let read = on_ranks(ranks, move |group| {
            let mut reader = ParReader::open(group, &disk, Path::new(NAME)).unwrap();
            assert_eq!(reader.set().task_count, 7);
            let mut all = Vec::new();
            for task in reader.tasks_mut() {
                let mut bytes = Vec::new();
                task.stream.read_to_end(&mut bytes).unwrap();
                all.push((task.task.global_rank, bytes));
            }
            all
        });
        let read: Vec<_> = read.into_iter().flatten().collect();
        let expected: Vec<_> = (0..7u32).map(|task| (i64::from(task), data(task))).collect();
        assert_eq!(read, expected, "{ranks} ranks");
    }
}

/// E22: a rank opens file 0, where the mapping is, and the physical files that its tasks are in.
#[test]
fn ranks_open_only_the_physical_files_they_read() {
    let (memory, path) = (Memory::default(), Path::new(NAME));
    let tasks = NewTask::in_files(&[10; 9], 3);
    let mut writer = Writer::create(&memory, path, &tasks, &options()).unwrap();
    for task in 0..9 {
        writer.task(task as usize).unwrap().write(&data(task)).unwrap();
    }
    writer.close().unwrap();
    let opened = |ranks: u32, way: u32| {
        let memory = memory.clone();
        on_ranks(ranks, move |group| {
            let (apart, ready) = (memory.apart(), |_: &[_]| Ok(()));
            let wanted: &[u32] = [&[4][..], &[], &[8, 0]][group.rank() as usize % 3];
            let read = match way {
                0 => ParReader::open(group, &apart, path),
                1 => ParReader::open_by_each(group, &apart, path, ready),
                _ => ParReader::open_mapped(group, &apart, path, wanted, ready),
            };
            for local in read.unwrap().tasks_mut() {
                let mut bytes = Vec::new();
                local.stream.read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes, data(u32::try_from(local.task.global_rank).unwrap()));
            }
            apart.opened().iter().map(|path| number(path)).collect::<Vec<_>>()
        })
    };
    assert_eq!(opened(3, 0), [vec![0], vec![0, 1], vec![0, 2]]);
    assert_eq!(opened(3, 1), [vec![0], vec![0, 1], vec![0, 2]]);
    assert_eq!(opened(3, 2), [vec![0, 1], vec![0], vec![0, 2]]);
    // With a task for each rank, rank 0 tells the others what they would read in file 0.
    let nine = opened(9, 0);
    assert_eq!((&nine[0], &nine[4], &nine[8]), (&vec![0, 1, 2], &vec![1], &vec![2]));
    // Four ranks have two tasks each, the last one three: theirs are in one or two files.
    assert_eq!(opened(4, 0), [vec![0], vec![0, 1], vec![0, 1], vec![0, 2]]);
}

/// The number that the name of a physical file says.
fn number(path: &Path) -> u32 {
    path.extension().and_then(|number| number.to_str()?.parse().ok()).unwrap_or(0)
}

/// Format rule 4.4; E22: a rank may have no task at all.
#[test]
fn mapped_ranks_write_and_read_several_tasks_or_none() {
    let golden = Golden::unpack();
    let folder = TempDir::new().unwrap();
    let source = golden.folder.path().join("map_np3_T7_f2.sion");
    let (disk_of, requested) = (disk(&folder), golden.case("map_np3_T7_f2").clone());
    on_ranks(4, move |group| {
        let own: &[usize] = [&[0, 3, 6][..], &[1, 2], &[], &[4, 5]][group.rank() as usize];
        let reader = Reader::open(&Disk::new(), &source).unwrap();
        let tasks: Vec<_> = own
            .iter()
            .map(|index| {
                let stored = reader.task(*index).unwrap();
                let chunk_len = requested["chunksize_requested"][*index].as_u64().unwrap();
                let (file, local_rank) = (stored.file, stored.local_rank);
                NewTask { file, local_rank, global_rank: stored.global_rank, chunk_len }
            })
            .collect();
        let options = Options { style: Style::Mapped, hints: false, ..options() };
        let path = Path::new("map_np3_T7_f2.sion");
        let mut writer = ParWriter::create_mapped(group, &disk_of, path, &tasks, &options).unwrap();
        for (local, index) in own.iter().enumerate() {
            let mut stream = reader.stream(*index).unwrap();
            for (block, len) in reader.block_lens(*index).unwrap().iter().enumerate() {
                if block > 0 {
                    writer.task(local).unwrap().next_block().unwrap();
                }
                let mut bytes = vec![0; usize::try_from(*len).unwrap()];
                stream.read(&mut bytes).unwrap();
                writer.task(local).unwrap().write(&bytes).unwrap();
            }
        }
        writer.close(group).unwrap();
        let wanted: Vec<u32> = own.iter().map(|index| u32::try_from(*index).unwrap()).collect();
        let back = ParReader::open_mapped(group, &disk_of, path, &wanted, |_| Ok(())).unwrap();
        assert_eq!(back.tasks().len(), own.len());
        for (task, index) in back.tasks().iter().zip(own) {
            assert_eq!(task.task, reader.task(*index).unwrap());
        }
    });
    for name in ["map_np3_T7_f2.sion", "map_np3_T7_f2.sion.000001"] {
        let ours = fs::read(folder.path().join(name)).unwrap();
        assert_eq!(ours, fs::read(golden.folder.path().join(name)).unwrap(), "{name}");
    }
}

/// E8: a block size of zero is refused on all ranks, and no file is touched.
#[test]
fn a_block_size_of_zero_is_refused_by_all_ranks() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(NAME), b"precious").unwrap();
    let disk = disk(&folder);
    let outcomes = on_ranks(3, move |group| {
        let task = NewTask::in_one_file(&[10; 3])[group.rank() as usize];
        let options = Options { fs_block_len: Some(0), ..options() };
        ParWriter::create(group, &disk, Path::new(NAME), task, &options).map(|_| ()).err()
    });
    let cause = Cause::Argument(Argument::FsBlockLen);
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 0, cause }); 3]);
    assert_eq!(fs::read(folder.path().join(NAME)).unwrap(), b"precious");
}

/// E23: several multifiles are opened at once without a common lock or table.
#[test]
fn two_groups_open_their_multifiles_at_the_same_time() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    std::thread::scope(|scope| {
        for folder in &folders {
            scope.spawn(|| write_set(folder, 5, &NewTask::in_files(&[90; 5], 2), &options()));
        }
    });
    folders.iter().for_each(|folder| check_set(folder, 5));
}

/// E20: a set created again with other chunk sizes holds nothing of the first time.
#[test]
fn creating_again_with_other_chunk_sizes_starts_anew() {
    let folder = TempDir::new().unwrap();
    write_set(&folder, 3, &NewTask::in_files(&[5000; 3], 1), &options());
    write_set(&folder, 3, &NewTask::in_files(&[10; 3], 1), &options());
    check_set(&folder, 3);
    let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
    assert_eq!(reader.task(2).unwrap().chunk_len, 512);
}

/// E5: what fails on one rank is the same error on all.
#[test]
fn a_path_that_is_bad_on_one_rank_fails_on_all() {
    let folder = TempDir::new().unwrap();
    let (good, bad) = (disk(&folder), Disk::in_folder(folder.path().join("missing")));
    let outcomes = on_ranks(4, move |group| {
        let task = NewTask::in_one_file(&[10; 4])[group.rank() as usize];
        let storage = if group.rank() == 2 { &bad } else { &good };
        ParWriter::create(group, storage, Path::new(NAME), task, &options()).map(|_| ()).err()
    });
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 2, cause: Cause::Io(0, 2) }); 4]);
}

/// E5: a member of the set that is missing fails on all ranks.
#[test]
fn a_missing_member_fails_on_all_readers() {
    let folder = TempDir::new().unwrap();
    write_set(&folder, 4, &NewTask::in_files(&[10; 4], 2), &options());
    fs::remove_file(folder.path().join("a.sion.000001")).unwrap();
    let disk = disk(&folder);
    let outcomes =
        on_ranks(4, move |group| ParReader::open(group, &disk, Path::new(NAME)).map(|_| ()).err());
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 2, cause: Cause::Io(1, 2) }); 4]);
}

#[test]
fn ranks_that_disagree_are_told_so() {
    let folder = TempDir::new().unwrap();
    let disk = disk(&folder);
    let outcomes = on_ranks(2, move |group| {
        let task = NewTask::in_one_file(&[100; 2])[group.rank() as usize];
        let options = Options { fs_block_len: Some(512 << group.rank()), ..options() };
        ParWriter::create(group, &disk, Path::new(NAME), task, &options).map(|_| ()).err()
    });
    let cause = Cause::Argument(Argument::Disagree);
    assert_eq!(outcomes, [Some(Error::OnRank { rank: 0, cause }); 2]);
}

/// E7: a request larger than a collector's chunk is written like any other.
#[test]
fn merged_data_stands_in_the_order_of_local_ranks_in_the_collectors_stream() {
    [[0, 1, 2, 3], [3, 1, 0, 2]].into_iter().for_each(merged_data_is_in_order);
}

fn merged_data_is_in_order(local_ranks: [u8; 4]) {
    let folder = TempDir::new().unwrap();
    let disk_of = disk(&folder);
    on_ranks(4, move |group| {
        let packing = Packing::Merge { size: Some(2) };
        let options = Options { packing, ..options() };
        let (rank, local_rank) = (group.rank(), local_ranks[group.rank() as usize]);
        let task = NewTask::in_one_file(&[200; 4])[usize::from(local_rank)];
        let (task, path) = (NewTask { global_rank: rank.into(), ..task }, Path::new(NAME));
        let mut writer = ParWriter::create(group, &disk_of, path, task, &options).unwrap();
        let own = local_rank + 1;
        for len in [3, 1000, 0] {
            writer.write_merged(group, &vec![own; len * usize::from(own)]).unwrap();
        }
        writer.close(group).unwrap();
    });
    let reader = Reader::open(&disk(&folder), Path::new(NAME)).unwrap();
    let stream = |task| {
        let mut bytes = Vec::new();
        reader.stream(task).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let run = |own: u8, len: usize| vec![own; len * usize::from(own)];
    assert_eq!(stream(0), [run(1, 3), run(2, 3), run(1, 1000), run(2, 1000)].concat());
    assert_eq!(stream(2), [run(3, 3), run(4, 3), run(3, 1000), run(4, 1000)].concat());
    assert_eq!([stream(1), stream(3)], [b"", b""]);
}

/// The shape of the generic callback API: operations that return 0 or a code.
#[test]
fn a_table_of_callbacks_is_a_group() {
    let folder = TempDir::new().unwrap();
    let disk_of = disk(&folder);
    let outcomes = on_ranks(3, move |threads| {
        let group = |fail: bool| Callbacks {
            rank: threads.rank(),
            size: threads.size(),
            gather: Box::new(move |mine, all| {
                let gathered = threads.gather(mine).unwrap();
                all.copy_from_slice(&gathered);
                if fail { -7 } else { 0 }
            }),
            scatter: Box::new(|all, mine| threads.scatter(all, mine).map_or(1, |()| 0)),
            broadcast: Box::new(|bytes| threads.broadcast(bytes).map_or(1, |()| 0)),
            barrier: Box::new(|| threads.barrier().map_or(1, |()| 0)),
        };
        let task = NewTask::in_one_file(&[700; 3])[group(false).rank as usize];
        let path = Path::new(NAME);
        let mut writer =
            ParWriter::create(&group(false), &disk_of, path, task, &options()).unwrap();
        writer.task(0).unwrap().write(&data(threads.rank())).unwrap();
        writer.close(&group(false)).unwrap();
        ParReader::open(&group(true), &disk_of, path).map(|_| ()).err()
    });
    check_set(&folder, 3);
    assert_eq!(outcomes, [Some(Error::Group { code: -7 }); 3]);
}
