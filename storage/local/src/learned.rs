//! Costs of this machine's calls, as whoever executes them finds, and what follows for where.
//!
//! To have an engine thread execute a call costs two changes of threads. The executor makes short
//! calls in place: on a file system of this machine's devices, by what has been learned of it. What
//! may wait for others goes to threads, whatever it has taken.

use std::{fmt, sync::Arc, time::Duration};

use shm::{CallKind, Costs, Sample};

/// Longest call that is made in place, ns: a third of the longest copy that is
/// ([`INLINE_LEN_MAX`](uring::INLINE_LEN_MAX)), so that others do not wait for it.
const IN_PLACE_NS: u64 = 20_000;

/// The table of costs that this machine's files have; without one nothing is learned. Cheap to
/// clone.
#[derive(Clone, Default)]
pub struct Learned(Option<Arc<dyn AsRef<Costs> + Send + Sync>>);

impl Learned {
    /// By a job's table.
    pub fn by(table: Arc<dyn AsRef<Costs> + Send + Sync>) -> Self {
        Self(Some(table))
    }

    /// Learns from a call.
    pub(crate) fn learn(&self, device: u64, kind: CallKind, took: Duration) {
        self.learn_transfer(device, kind, 0, took);
    }

    /// Learns from a transfer of `len` bytes.
    pub(crate) fn learn_transfer(&self, device: u64, kind: CallKind, len: usize, took: Duration) {
        if let Some(table) = &self.0 {
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            let sample = Sample { kind, len: len as u64, ns, calls: 1 };
            (**table).as_ref().learn_call(device, sample);
        }
    }

    /// True if a call is short enough to be made in place; `None`: that is not known.
    pub(crate) fn is_quick(&self, device: u64, kind: CallKind) -> Option<bool> {
        let costs = (**self.0.as_ref()?).as_ref();
        Some(costs.call(device, kind)? < IN_PLACE_NS)
    }
}

impl fmt::Debug for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learned").finish_non_exhaustive()
    }
}
