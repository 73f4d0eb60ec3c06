//! Buffers are checked parts of memory.

use std::sync::Arc;

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
        assert!(
            heap.bytes().iter().all(|byte| byte.load(std::sync::atomic::Ordering::Relaxed) == 0)
        );
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
