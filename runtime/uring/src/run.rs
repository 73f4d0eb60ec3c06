//! Operations that go to the kernel as one entry, and to the device as one request.
//!
//! Mostly one. Short transfers that continue each other in a file go together: each by itself takes
//! more CPU time than to copy its bytes. So do longer writes, whose results nobody waits for one by
//! one. Where such a run ends early, the operation it ends in is short, and those behind are
//! executed one by one: so each has its own result, and nothing is written twice, not to a file
//! that is appended to either.

use std::{io, iter};

use crate::{
    engine::Token,
    memory::BUFFER_COUNT_MAX,
    operation::Operation,
    span::{SHORT_LEN_MAX, Span},
    vectors::{Vectors, places},
};

/// Longest merged transfer, bytes.
const LEN_MAX: usize = 1 << 20;
/// Longest write that is merged, bytes. Of reads, for whose results somebody waits, only short ones
/// go together.
const WRITE_LEN_MAX: usize = 256 << 10;

/// Operations in the order of the file, at least one.
#[derive(Debug)]
pub(crate) struct Run {
    first: (Token, Operation),
    rest: Vec<(Token, Operation)>,
    /// The operations are executed one by one.
    is_broken: bool,
}

/// Size of a run that others may join.
#[derive(Debug)]
pub(crate) struct RunSize {
    span: Span,
    /// Places in memory, at most [`BUFFER_COUNT_MAX`].
    vector_count: usize,
}

impl RunSize {
    /// Of a run of one operation, which goes to `span`; `None` when it goes by itself.
    pub(crate) fn new(operation: &Operation, span: Option<Span>) -> Option<Self> {
        let span = span.filter(may_go_together)?;
        Some(Self { span, vector_count: vector_count(operation) })
    }

    /// True if the run takes in this operation, which goes to `span`.
    pub(crate) fn takes(&mut self, operation: &Operation, span: Option<&Span>) -> bool {
        let Some(part) = span else { return false };
        let whole = &mut self.span;
        let continues = part.continues(whole) && part.is_write == whole.is_write;
        if !continues || !may_go_together(part) || whole.len + part.len > LEN_MAX {
            return false;
        }
        let vector_count = self.vector_count + vector_count(operation);
        let fits = vector_count <= BUFFER_COUNT_MAX;
        if fits {
            whole.len += part.len;
            self.vector_count = vector_count;
        }
        fits
    }
}

impl Run {
    pub(crate) fn new(operation: Operation, token: Token) -> Self {
        Self { first: (token, operation), rest: Vec::new(), is_broken: false }
    }

    /// Adds an operation that its [`RunSize`] takes.
    pub(crate) fn join(&mut self, operation: Operation, token: Token) {
        self.rest.push((token, operation));
    }

    /// The first of the operations that the kernel is to execute now.
    pub(crate) fn first(&self) -> &Operation {
        &self.first.1
    }

    /// Those that go with it.
    fn joined(&self) -> &[(Token, Operation)] {
        if self.is_broken { &[] } else { &self.rest }
    }

    /// All operations that the kernel is to execute now.
    pub(crate) fn operations(&self) -> impl Iterator<Item = &Operation> {
        iter::once(&self.first).chain(self.joined()).map(|(_, operation)| operation)
    }

    /// The places in memory of the first `limit` bytes of these, if they are transfers.
    pub(crate) fn vectors(&self, limit: usize) -> Vectors {
        match (self.first().transfer(), self.joined()) {
            (Some((.., buffers)), []) => Vectors::of(buffers, limit),
            _ => {
                let transfers = self.operations().filter_map(Operation::transfer);
                Vectors::collect(transfers.flat_map(|(.., buffers)| buffers.as_slice()), limit)
            }
        }
    }

    /// Tells `done` what operations have come to, each after it was freed; returns those that are
    /// still to be executed.
    pub(crate) fn finish(
        self,
        result: io::Result<u64>,
        done: &mut dyn FnMut(Token, io::Result<u64>),
    ) -> Option<Self> {
        let Self { first, rest, is_broken, .. } = self;
        if is_broken || rest.is_empty() {
            let (token, operation) = first;
            drop(operation);
            done(token, result);
            return Self::one_by_one(rest);
        }
        let mut left = result.unwrap_or(0);
        let mut unfinished = Vec::new();
        for (token, operation) in iter::once(first).chain(rest) {
            let len = operation.transfer().map_or(0, |(.., buffers)| buffers.len() as u64);
            let reached = left.min(len);
            left -= reached;
            if reached == 0 {
                unfinished.push((token, operation));
                continue;
            }
            drop(operation);
            done(token, Ok(reached));
        }
        Self::one_by_one(unfinished)
    }

    /// All of its operations, of which none has been executed.
    pub(crate) fn into_operations(self) -> impl Iterator<Item = (Token, Operation)> {
        iter::once(self.first).chain(self.rest)
    }

    fn one_by_one(operations: Vec<(Token, Operation)>) -> Option<Self> {
        let mut operations = operations.into_iter();
        let first = operations.next()?;
        let rest = operations.collect();
        Some(Self { rest, is_broken: true, ..Self::new(first.1, first.0) })
    }
}

/// True if what goes there may go with others.
fn may_go_together(span: &Span) -> bool {
    let len_max = if span.is_write { WRITE_LEN_MAX } else { SHORT_LEN_MAX };
    (1..=len_max).contains(&span.len)
}

/// Vectors that the buffers of a transfer take.
fn vector_count(operation: &Operation) -> usize {
    let Some((.., buffers)) = operation.transfer() else { return 0 };
    match buffers.as_slice() {
        [_one] => 1,
        many => places(many.iter(), usize::MAX).count(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd, sync::Arc};

    use rustix::io::Errno;

    use super::*;
    use crate::memory::{Buffers, Heap};

    fn null() -> Arc<OwnedFd> {
        Arc::new(OwnedFd::from(File::open("/dev/null").expect("is there")))
    }

    fn write(file: &Arc<OwnedFd>, at: u64, len: usize) -> Operation {
        Operation::Write {
            file: Arc::clone(file),
            at,
            from: Heap::buffer(len).into(),
            is_whole: false,
        }
    }

    /// Three writes of ten bytes; the first has token 0.
    fn three() -> Run {
        let file = null();
        let mut run = Run::new(write(&file, 5, 10), Token(0));
        run.join(write(&file, 15, 10), Token(1));
        run.join(write(&file, 25, 10), Token(2));
        run
    }

    fn size(first: &Operation) -> RunSize {
        RunSize::new(first, Span::of(first)).expect("others may join it")
    }

    /// True if the next operation is taken.
    fn takes(size: &mut RunSize, next: &Operation) -> bool {
        size.takes(next, Span::of(next).as_ref())
    }

    /// Tokens and results of what is over, and how many operations are not.
    fn finish(run: Run, result: io::Result<u64>) -> (Vec<(u64, Option<u64>)>, Option<Run>) {
        let mut over = Vec::new();
        let rest = run.finish(result, &mut |token, result| over.push((token.0, result.ok())));
        (over, rest)
    }

    #[test]
    fn only_what_continues_a_run_in_its_file_joins_it() {
        let (file, other) = (null(), null());
        let read = |at| Operation::Read { file: file.clone(), at, into: Heap::buffer(10).into() };
        let pair = Buffers::new(vec![Heap::buffer(5), Heap::buffer(5)]).expect("two");
        let mut run = size(&write(&file, 5, 10));
        for elsewhere in [
            write(&file, 14, 10),
            write(&file, 16, 10),
            write(&file, 5, 10),
            write(&other, 15, 10),
            write(&file, 15, WRITE_LEN_MAX + 1),
            write(&file, 15, 0),
            Operation::Sync { file: file.clone(), data_only: true },
            read(15),
        ] {
            assert!(!takes(&mut run, &elsewhere), "{elsewhere:?} goes by itself");
        }
        assert!(takes(&mut run, &write(&file, 15, WRITE_LEN_MAX)));
        let pair =
            Operation::Write { file, at: 15 + WRITE_LEN_MAX as u64, from: pair, is_whole: false };
        assert!(takes(&mut run, &pair));

        let read =
            |at, len| Operation::Read { file: other.clone(), at, into: Heap::buffer(len).into() };
        let mut run = size(&read(0, 10));
        assert!(!takes(&mut run, &read(10, SHORT_LEN_MAX + 1)), "it is waited for by itself");
        assert!(takes(&mut run, &read(10, SHORT_LEN_MAX)));
        let alone = read(0, SHORT_LEN_MAX + 1);
        assert!(RunSize::new(&alone, Span::of(&alone)).is_none());
    }

    #[test]
    fn a_run_names_as_many_places_in_memory_as_one_entry_may() {
        let (file, all) = (null(), Heap::buffer(BUFFER_COUNT_MAX));
        let parts = |step: usize| {
            let parts = (0..BUFFER_COUNT_MAX / step).map(|at| all.suffix(at * step).prefix(1));
            Buffers::new(parts.collect()).expect("as many as may be")
        };
        let write =
            |at: u64, from| Operation::Write { file: file.clone(), at, from, is_whole: false };
        let whole = BUFFER_COUNT_MAX as u64;
        let mut run = size(&write(0, parts(1)));
        assert!(takes(&mut run, &write(whole, parts(2))), "the first is one place");
        assert!(!takes(&mut run, &write(whole * 3 / 2, parts(2))), "one too many");
        assert!(takes(&mut run, &write(whole * 3 / 2, parts(4))), "half as many");
    }

    #[test]
    fn a_run_is_no_longer_than_one_request() {
        for (len, count) in [(1, BUFFER_COUNT_MAX), (4 << 10, 64), (64 << 10, 16), (256 << 10, 4)] {
            let file = null();
            let mut run = size(&write(&file, 0, len));
            let taken =
                (1..).take_while(|number| takes(&mut run, &write(&file, number * len as u64, len)));
            assert_eq!(1 + taken.count(), count, "{len} bytes");
        }
    }

    #[test]
    fn each_operation_of_a_whole_run_has_its_length() {
        let (over, rest) = finish(three(), Ok(30));
        assert_eq!(over, [(0, Some(10)), (1, Some(10)), (2, Some(10))]);
        assert!(rest.is_none());
    }

    #[test]
    fn what_a_short_run_has_not_reached_is_executed_one_by_one() {
        for (len, lens) in [(0, &[][..]), (9, &[9][..]), (10, &[10][..]), (19, &[10, 9][..])] {
            let (over, mut rest) = finish(three(), Ok(len));
            let reached: Vec<_> = over.iter().filter_map(|(_, len)| *len).collect();
            assert_eq!(reached, lens, "{len} bytes");
            for token in lens.len() as u64..3 {
                let run = rest.expect("is not over");
                assert_eq!(run.operations().count(), 1);
                let over;
                (over, rest) = finish(run, Ok(token));
                assert_eq!(over, [(token, Some(token))]);
            }
            assert!(rest.is_none());
        }
    }

    #[test]
    fn a_failure_is_of_one_operation() {
        let (over, rest) = finish(three(), Err(Errno::INVAL.into()));
        assert!(over.is_empty());
        let (over, rest) = finish(rest.expect("none is over"), Err(Errno::INVAL.into()));
        assert_eq!(over, [(0, None)]);
        let (over, rest) = finish(rest.expect("two are not over"), Ok(10));
        assert_eq!(over, [(1, Some(10))]);

        let rest: Vec<_> = rest.expect("one is not over").into_operations().collect();

        assert_eq!(rest.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [2]);
    }
}
