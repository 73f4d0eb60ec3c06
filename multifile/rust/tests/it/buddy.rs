//! Buddy sets: written as SIONlib writes them, read when a physical file is lost.

use std::{fs, io::Read, path::Path};

use multifile::{Disk, Group, NewTask, Options, Reader, Style, parallel::BuddyWriter};
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
        let mut writer = BuddyWriter::create(group, &disk, path, task, (1, &options)).unwrap();
        writer.ensure(100).unwrap();
        writer.write(&bytes).unwrap();
        writer.close(group).unwrap();
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
