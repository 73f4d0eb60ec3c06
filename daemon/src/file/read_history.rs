//! History of a file's reads: how far to read ahead.

use std::cell::Cell;

const WINDOW_MIN: u64 = 256 << 10;
const WINDOW_MAX: u64 = 8 << 20;
/// Bytes fetched ahead by one operation.
const STEP_LEN: u64 = 256 << 10;

/// History of a file's reads. Offsets are bytes from its start.
#[derive(Debug, Default)]
pub(crate) struct ReadHistory {
    /// Where the last request ended.
    next_at: Cell<u64>,
    /// Bytes to fetch ahead; zero while reads are not sequential.
    len: Cell<u64>,
    /// Where what is fetched ahead goes on, and up to where. A jump moves both, and so takes the
    /// task that fetches along: it has no business in what was jumped over.
    pub(crate) ahead_at: Cell<u64>,
    pub(crate) fetched_to: Cell<u64>,
    pub(crate) is_running: Cell<bool>,
}

impl ReadHistory {
    /// Notes a request and returns how far to fetch ahead of it, if at all.
    pub(crate) fn note(&self, at: u64, end: u64) -> Option<u64> {
        let sequential = at == self.next_at.replace(end) && at != end;
        let len = match (sequential, self.len.get()) {
            (false, _) => 0,
            (true, 0) => WINDOW_MIN,
            (true, len) => (len * 2).min(WINDOW_MAX),
        };
        self.len.set(len);
        if !sequential {
            self.ahead_at.set(end);
            self.fetched_to.set(end);
            return None;
        }
        self.ahead_at.set(self.ahead_at.get().max(end));
        let target = end.saturating_add(len);
        (target > self.fetched_to.get()).then_some(target)
    }

    /// Returns the range to fetch ahead next: start, and bytes at a time.
    pub(crate) fn ahead(&self) -> Option<(u64, u64)> {
        let at = self.ahead_at.get();
        let len = STEP_LEN.min(self.fetched_to.get().saturating_sub(at));
        (len > 0).then_some((at, len))
    }

    /// Notes that `len` bytes at `at` have been fetched ahead, unless reads are elsewhere by now.
    pub(crate) fn fetched(&self, at: u64, len: u64) {
        if self.ahead_at.get() == at {
            self.ahead_at.set(at.saturating_add(len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_doubles_while_reads_are_sequential() {
        let history = ReadHistory::default();
        assert_eq!(history.note(4096, 8192), None, "not the first of a sequence");
        assert_eq!(history.note(8192, 12288), Some(12288 + WINDOW_MIN));
        history.fetched_to.set(12288 + WINDOW_MIN);
        assert_eq!(history.note(12288, 16384), Some(16384 + 2 * WINDOW_MIN));
        for step in 0..20 {
            let at = 16384 + step * 4096;
            history.note(at, at + 4096);
        }
        assert_eq!(history.len.get(), WINDOW_MAX);
    }

    #[test]
    fn jump_ends_the_window() {
        let history = ReadHistory::default();
        assert_eq!(history.note(0, 4096), Some(4096 + WINDOW_MIN), "a sequence begins here");
        history.note(4096, 8192);
        assert_eq!(history.note(1 << 30, (1 << 30) + 4096), None);
        assert_eq!(history.len.get(), 0);
    }

    #[test]
    fn what_is_jumped_over_is_not_fetched_ahead() {
        const THERE: u64 = 1 << 30;
        let history = ReadHistory::default();
        history.note(0, 4096);
        history.fetched_to.set(history.note(4096, 8192).expect("a sequence"));
        let (at, len) = history.ahead().expect("a history");
        assert_eq!(at, 8192);

        history.note(THERE, THERE + 4096);
        history.fetched(at, len); // It was under way.

        assert_eq!(history.ahead(), None);
        let target = history.note(THERE + 4096, THERE + 8192).expect("a sequence again");
        history.fetched_to.set(target);
        assert_eq!(history.ahead(), Some((THERE + 8192, WINDOW_MIN)));
        history.fetched(THERE + 8192, WINDOW_MIN);
        assert_eq!(history.ahead(), None);
    }
}
