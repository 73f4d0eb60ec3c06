//! Buffers are checked parts of memory.

use std::{
    future::Future as _,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use uring::{BUFFER_COUNT_MAX, Buffer, Buffers, Heap, Memory, Pool};

#[test]
fn a_buffer_is_within_its_memory() {
    let memory = Arc::new(Heap::new(10));
    let buffer = |at, len| Buffer::new(memory.clone(), at, len);
    assert_eq!(buffer(2, 8).expect("within").bytes().len(), 8);
    assert!(buffer(10, 0).expect("at the end").is_empty());
    for (at, len) in [(0, 11), (11, 0), (5, 6), (usize::MAX, 1), (1, usize::MAX)] {
        assert!(buffer(at, len).is_none(), "{len} bytes at {at}");
    }
}

#[test]
fn heap_memory_is_page_aligned_and_zero() {
    for len in [0, 1, 4096, 10_000] {
        let heap = Heap::new(len);
        assert_eq!(heap.bytes().len(), len);
        assert_eq!(heap.bytes().as_ptr().addr() % 4096, 0);
        assert!(heap.bytes().iter().all(|byte| byte.load(Ordering::Relaxed) == 0));
    }
}

#[test]
fn a_pool_of_long_buffers_begins_where_a_huge_page_may() {
    for count in [1, 8, 9, 20] {
        let memory = Pool::new(256 << 10, count).memory();
        assert_eq!(memory.bytes().len(), count * (256 << 10));
        assert_eq!(memory.bytes().as_ptr().addr() % (2 << 20), 0);
    }
}

#[test]
fn an_operation_has_one_to_64_buffers() {
    let buffers = |count| Buffers::new(vec![Heap::buffer(3); count]);
    assert!(buffers(0).is_none());
    assert_eq!(buffers(BUFFER_COUNT_MAX).expect("the limit").len(), 3 * BUFFER_COUNT_MAX);
    assert!(buffers(BUFFER_COUNT_MAX + 1).is_none());
}

#[test]
fn what_is_left_of_buffers_is_what_follows() {
    let text = b"one, two, three";
    let buffers = [&text[..3], b"", &text[3..9], &text[9..]].map(|part| {
        let buffer = Heap::buffer(part.len());
        buffer.store(part);
        buffer
    });
    let buffers = Buffers::new(buffers.to_vec()).expect("four");
    for at in 0..text.len() {
        let mut left = Vec::new();
        let suffix = buffers.suffix(at).expect("more bytes");
        suffix.as_slice().iter().for_each(|buffer| buffer.append_to(&mut left));
        assert_eq!(left, text[at..]);
    }
    assert!(buffers.suffix(text.len()).is_none() && buffers.suffix(usize::MAX).is_none());
}

#[test]
fn memory_that_shrinks_against_its_word_yields_fewer_bytes() {
    use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    #[derive(Default)]
    struct Shrinks([AtomicU8; 8], AtomicBool);
    impl Memory for Shrinks {
        fn bytes(&self) -> &[AtomicU8] {
            if self.1.swap(true, Ordering::Relaxed) { self.0.split_at(3).0 } else { &self.0 }
        }
    }
    let buffer = Buffer::new(Arc::new(Shrinks::default()), 2, 6).expect("within at first");

    assert_eq!(buffer.bytes().len(), 1);
}

/// One that waits in front, and has its part by then, keeps no buffer from who has none.
#[test]
fn members_that_join_do_not_keep_a_free_buffer_from_who_waits_for_it() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let pool = Pool::reserve(16, 8);
    let (one, two) = (pool.join(), pool.join());
    let _held: Vec<_> = (0..4).map(|_| one.try_take().expect("half")).collect();
    let _one = two.try_take().expect("some are left");
    let mut rest: Vec<_> = (0..3).map(|_| pool.try_take().expect("some are left")).collect();
    let three = pool.join();
    let (mut second, mut third) = (pin!(two.take()), pin!(three.take()));
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(second.as_mut().poll(&mut nobody).is_pending());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(third.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(rest.pop());
    let _more: Vec<_> = (0..5).map(|_| pool.join()).collect();

    assert!(woken.0.load(Ordering::Relaxed), "nobody was told");
    assert!(third.as_mut().poll(&mut nobody).is_ready());
}
