//! Transfers that continue each other in a file, and are given to the kernel together: each has the
//! result that it would have by itself.

use std::{cell::RefCell, fs::File as StdFile, io, rc::Rc};

use executor::Class;
use uring::{Buffer, File, Heap, Pool};

use crate::support::{CHOICES, Core, buffer, content, dirs, open};

const COUNT: usize = 100;
const LEN: usize = 10;

type Results = Vec<io::Result<usize>>;

/// Returns the results of one transfer after the other, all begun at once.
fn results<T: Future<Output = io::Result<usize>> + 'static>(
    core: &mut Core,
    transfers: impl Iterator<Item = T>,
) -> Results {
    let over = Rc::new(RefCell::new(Vec::new()));
    let mut count = 0;
    for (index, transfer) in transfers.enumerate() {
        let over = Rc::clone(&over);
        count += 1;
        core.executor.handle().spawn(Class::Latency, async move {
            let result = transfer.await;
            over.borrow_mut().push((index, result));
        });
    }
    core.turn_until(|| over.borrow().len() == count);
    let mut over = over.take();
    over.sort_by_key(|(index, _)| *index);
    over.into_iter().map(|(_, result)| result).collect()
}

fn at(index: usize) -> u64 {
    (index * LEN) as u64
}

fn value(index: usize) -> u8 {
    u8::try_from(index).expect("few")
}

#[test]
fn all_are_done_wherever_their_buffers_are() {
    for choice in CHOICES {
        for dir in dirs() {
            let mut core = Core::new(choice, 2);
            let (engines, file) = (core.engines.clone(), open(&dir, "data").expect("created"));
            let pool = Pool::new(LEN, COUNT);
            let mut buffers: Vec<Buffer> = Vec::new();
            for index in 0..COUNT {
                let pooled = core.run(pool.take());
                let one = if index % 7 == 3 { Heap::buffer(LEN) } else { pooled };
                one.store(&[value(index); LEN]);
                buffers.push(one);
            }

            let writes = buffers
                .iter()
                .enumerate()
                .map(|(index, from)| engines.write(&file, at(index), from.clone().into()));
            let written = results(&mut core, writes);

            assert!(written.iter().all(|result| matches!(result, Ok(LEN))), "{choice:?}");
            let expected: Vec<u8> = (0..COUNT).flat_map(|index| [value(index); LEN]).collect();
            assert_eq!(std::fs::read(dir.path().join("data")).expect("a file"), expected);
        }
    }
}

#[test]
fn those_at_the_end_of_a_file_read_what_is_there() {
    for choice in CHOICES {
        for dir in dirs() {
            let mut core = Core::new(choice, 2);
            let (engines, file) = (core.engines.clone(), open(&dir, "data").expect("created"));
            core.run(engines.write(&file, 0, buffer(&[7; 25]).into())).expect("written");
            let buffers: Vec<_> = (0..COUNT).map(|_| Heap::buffer(LEN)).collect();

            let reads = buffers
                .iter()
                .enumerate()
                .map(|(index, into)| engines.read(&file, at(index), into.clone().into()));
            let read = results(&mut core, reads);

            let lens: Vec<_> = read.into_iter().map(|result| result.expect("read")).collect();
            assert_eq!(lens[..4], [10, 10, 5, 0], "{choice:?}");
            assert!(lens[4..].iter().all(|len| *len == 0), "{choice:?}");
            assert_eq!(content(&buffers[2]), [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
        }
    }
}

#[test]
fn each_that_finds_no_room_says_so() {
    for choice in CHOICES {
        let mut core = Core::new(choice, 2);
        let full = StdFile::options().write(true).open("/dev/full").expect("is there");
        let (engines, file) = (core.engines.clone(), File::new(full.into()).expect("a device"));

        let writes =
            (0..COUNT).map(|index| engines.write(&file, at(index), buffer(&[1; LEN]).into()));
        let written = results(&mut core, writes);

        assert_eq!(written.len(), COUNT);
        for result in written {
            assert_eq!(result.expect_err("full").kind(), io::ErrorKind::StorageFull, "{choice:?}");
        }
    }
}
