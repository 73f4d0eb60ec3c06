//! Random multifiles against a model so slow and simple that it is right.

use std::{io::Read, path::Path};

use fastrand::Rng;
use multifile::{
    Disk, NewTask, Options, Packing, Reader, Storage, Style, TaskReader, Writer, codec::Order,
    layout::Layout,
};
use tempfile::TempDir;

use crate::failing::Failing;

const NAME: &str = "a.sion";

/// Runs `check` with many seeds, printing the one that fails; `SEED=n` runs only that one, and
/// `ROUNDS=n` as many as wanted.
pub(crate) fn with_seeds(rounds: u64, check: impl Fn(&mut Rng)) {
    let number = |name| option_env(name).map(|value| value.parse().unwrap());
    let seeds = match number("SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ROUNDS").unwrap_or(rounds),
    };
    for seed in seeds {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&mut Rng::with_seed(seed));
        }));
        assert!(outcome.is_ok(), "fails with SEED={seed}");
    }
}

#[expect(clippy::disallowed_methods, reason = "how a test is told to repeat a seed")]
fn option_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Every byte of the first blocks belongs to the task that the rules of format section 2 say.
#[test]
fn layout_agrees_with_a_byte_map() {
    with_seeds(300, |rng| {
        let fs = rng.u32(1..40);
        let requests: Vec<u64> = (0..rng.usize(0..20)).map(|_| rng.u64(0..90)).collect();
        let packing = packing(rng);
        let layout = Layout::new(&requests, fs, packing).unwrap();
        let mut owners = Vec::new();
        for (task, chunk) in layout.chunks().iter().enumerate() {
            owners.extend(std::iter::repeat_n(task, usize::try_from(*chunk).unwrap()));
        }
        assert_eq!(layout.data_at() % u64::from(fs), 0);
        assert!(layout.data_at() >= 1088 + 16 * u64::try_from(requests.len()).unwrap());
        assert_eq!(layout.skip(), u64::try_from(owners.len()).unwrap());
        assert_eq!(layout.skip() % u64::from(fs), 0, "a block of all tasks is aligned");
        for (at, owner) in (layout.data_at()..).zip(&owners) {
            assert_eq!(layout.task_at(at), Some(*owner));
            let place = layout.place(*owner).unwrap();
            assert!((place.start_at..place.start_at + place.chunk_len).contains(&at));
            let third = place.block_at(2).unwrap();
            assert_eq!(third, place.start_at + 2 * layout.skip());
        }
        for (task, request) in requests.iter().enumerate() {
            assert!(layout.place(task).unwrap().chunk_len >= *request);
        }
    });
}

/// Whatever is written is read, in any order, in pieces of any size.
#[test]
fn what_is_written_is_read() {
    with_seeds(250, |rng| {
        let folder = TempDir::new().unwrap();
        if rng.bool() {
            round_trip(rng, &Disk::in_folder(folder.path()));
        } else {
            let step = rng.usize(1..200);
            round_trip(rng, &Failing::in_steps_of(folder.path().to_owned(), step));
        }
    });
}

fn round_trip<S: Storage>(rng: &mut Rng, storage: &S) {
    let requests: Vec<u64> = (0..rng.usize(0..12)).map(|_| rng.u64(0..200)).collect();
    let files = if requests.is_empty() { 1 } else { rng.u32(1..=3) };
    let tasks = NewTask::in_files(&requests, files);
    let options = random_options(rng);
    let mut written = vec![Vec::new(); requests.len()];
    let mut writer = Writer::create(storage, Path::new(NAME), &tasks, &options).unwrap();
    for _ in 0..rng.usize(0..60) {
        let Some(task) = rng.choice(0..requests.len()) else { break };
        let mut out = writer.task(task).unwrap();
        if out.fill().place().chunk_len == 0 {
            assert!(out.write(&[1]).is_err());
            continue;
        }
        match rng.u8(0..10) {
            0 => out.next_block().unwrap(),
            1 => out.flush().unwrap(),
            2 => out.ensure(rng.u64(0..=out.fill().place().chunk_len)).unwrap(),
            _ => {
                let mut bytes = vec![0; rng.usize(0..700)];
                rng.fill(&mut bytes);
                out.write(&bytes).unwrap();
                written[task].extend(bytes);
            }
        }
    }
    writer.close().unwrap();
    let reader = Reader::open(storage, Path::new(NAME)).unwrap();
    assert_eq!(reader.task_count(), requests.len());
    for (task, expected) in written.iter().enumerate() {
        assert_eq!(reader.verify(task), Ok(options.checksums));
        read_in_pieces(rng, reader.stream(task).unwrap(), expected);
        let rank = u32::try_from(task).unwrap();
        let (stream, _, found) = TaskReader::open(storage, Path::new(NAME), rank).unwrap();
        assert_eq!(found, reader.task(task).unwrap());
        read_in_pieces(rng, stream, expected);
    }
}

fn read_in_pieces<F: multifile::storage::File>(
    rng: &mut Rng,
    mut stream: TaskReader<F>,
    expected: &[u8],
) {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert_eq!(all, expected);
    assert_eq!(stream.cursor().left(), 0);
    for _ in 0..10 {
        let at = rng.usize(0..=expected.len());
        let mut piece = vec![0; rng.usize(0..400)];
        stream.seek(u64::try_from(at).unwrap()).unwrap();
        let n = stream.read(&mut piece).unwrap();
        assert_eq!(n, piece.len().min(expected.len() - at), "short only at the end");
        assert_eq!(piece[..n], expected[at..at + n]);
        assert_eq!(stream.cursor().position(), u64::try_from(at + n).unwrap());
    }
}

fn packing(rng: &mut Rng) -> Packing {
    let size = rng.bool().then(|| rng.u32(1..6));
    match rng.u8(0..4) {
        0 => Packing::Aligned,
        1 => Packing::Collective { size },
        2 => Packing::Merge { size },
        _ => Packing::Modular { size: rng.u32(2..6) },
    }
}

fn random_options(rng: &mut Rng) -> Options {
    Options {
        fs_block_len: Some(rng.u32(1..600)),
        order: if rng.bool() { Order::Big } else { Order::Little },
        packing: packing(rng),
        style: *rng.choice(&[Style::Serial, Style::Parallel, Style::Mapped]).unwrap(),
        journal: rng.bool(),
        hints: rng.bool(),
        checksums: rng.bool(),
        buffer_len: rng.usize(0..1000),
        ..Options::default()
    }
}
