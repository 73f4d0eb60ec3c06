//! Where streams receive ahead of the place of what they receive.
//!
//! A stage is held only while something lies on it that has not been taken, so many streams share
//! few, and these stay in the cache. A small body may stay where it lies: then nothing is received
//! over it before its last buffer is gone.

use std::{cell::RefCell, ops::Range, rc::Rc};

use executor::Handle;

use super::turns::Turns;
use crate::memory::{Buffer, Heap};

/// Most bytes received ahead of their place: 64 KiB in small frames, and their heads.
pub(super) const STAGE_LEN: usize = 68 * 1024;

/// Stages that are kept for later, those included on which bodies lie.
const STAGES_MAX: usize = 16;

/// Where streams of one executor receive ahead. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    kept: Rc<RefCell<Vec<Buffer>>>,
    /// Turns to receive; `None`: no order.
    pub(super) turns: Option<Turns>,
}

impl Stages {
    /// Stages of streams that receive in turns, on the executor of `handle`: of all together about
    /// 8 MiB have been received and are not yet served, of each up to 256 KiB that belong together.
    #[must_use]
    pub fn in_turns(handle: &Handle) -> Self {
        Self { turns: Some(Turns::new(handle)), ..Self::default() }
    }

    /// A stage on which nothing lies.
    pub(super) fn take(&self) -> Buffer {
        let mut kept = self.kept.borrow_mut();
        let free = kept.iter_mut().rposition(Buffer::is_sole);
        free.map_or_else(|| Heap::buffer(STAGE_LEN), |index| kept.swap_remove(index))
    }

    /// A stage that begins with the `staged` part of another one.
    pub(super) fn renew(&self, mut stage: Buffer, staged: Range<usize>) -> Buffer {
        let is_free = stage.is_sole();
        let next = if is_free { stage.clone() } else { self.take() };
        next.copy_from(stage.bytes().get(staged).unwrap_or_default());
        if !is_free {
            self.give_back(stage);
        }
        next
    }

    /// Takes back a stage of which everything has been taken.
    pub(super) fn give_back(&self, stage: Buffer) {
        if self.has_room() {
            self.kept.borrow_mut().push(stage);
        }
    }

    /// True if bodies may stay where they lie. With as many stages as are kept, all that is held
    /// for long has a place of its own.
    pub(super) fn has_room(&self) -> bool {
        self.kept.borrow().len() < STAGES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_used_again_once_nothing_lies_on_it() {
        let stages = Stages::default();
        let stage = stages.take();
        let (start, body) = (stage.bytes().as_ptr(), stage.prefix(10));
        stages.give_back(stage);
        assert_ne!(stages.take().bytes().as_ptr(), start);

        drop(body);

        assert_eq!(stages.take().bytes().as_ptr(), start);
    }

    #[test]
    fn what_is_staged_moves_to_another_stage_only_when_a_body_lies_there() {
        let stages = Stages::default();
        let stage = stages.take();
        let start = stage.bytes().as_ptr();
        stage.store(b"abcdef");
        let stage = stages.renew(stage, 2..6);
        assert_eq!(stage.bytes().as_ptr(), start);

        let body = stage.prefix(2);
        let stage = stages.renew(stage, 2..4);

        assert_ne!(stage.bytes().as_ptr(), start);
        let mut bytes = *b"    ";
        stage.prefix(2).load(&mut bytes);
        body.load(bytes.get_mut(2..).expect("two more"));
        assert_eq!(&bytes, b"efcd");
    }

    #[test]
    fn bodies_lie_on_so_many_stages_and_no_more() {
        let stages = Stages::default();
        let mut bodies = Vec::new();
        while stages.has_room() {
            let stage = stages.take();
            bodies.push(stage.prefix(1));
            stages.give_back(stage);
        }
        assert_eq!(bodies.len(), STAGES_MAX);
    }
}
