//! Delays of requests, and their counts.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// Kinds of requests that are told apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A name is looked up.
    Lookup,
    /// Attributes are read.
    Attributes,
    /// A file is opened or created.
    Open,
    /// A descriptor is closed.
    Close,
    /// A name or an attribute is changed.
    Change,
    Read,
    Write,
    Sync,
}

const KINDS: [(&str, Kind); 8] = [
    ("lookup", Kind::Lookup),
    ("attributes", Kind::Attributes),
    ("open", Kind::Open),
    ("close", Kind::Close),
    ("change", Kind::Change),
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("sync", Kind::Sync),
];

/// The latencies and the bandwidth of every server.
#[derive(Debug)]
pub(crate) struct Delay {
    metadata: Duration,
    data: Duration,
    /// Of a MiB.
    per_mib: Duration,
    counts: [AtomicU64; KINDS.len()],
}

impl Delay {
    pub(crate) fn new(metadata: Duration, data: Duration, mib_per_s: u64) -> Self {
        let ns = 1_000_000_000_u64.checked_div(mib_per_s).unwrap_or(0);
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { metadata, data, per_mib: Duration::from_nanos(ns), counts }
    }

    /// Counts a request that moves `len` bytes, and takes its time.
    pub(crate) fn take(&self, kind: Kind, len: usize) {
        if let Some(count) = self.counts.get(kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let latency = match kind {
            Kind::Read | Kind::Write | Kind::Sync => self.data,
            _ => self.metadata,
        };
        let ns = (self.per_mib.as_nanos() * len as u128) >> 20;
        let time = latency + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        if !time.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "to be slow is what this is for")]
            thread::sleep(time);
        }
    }

    /// A line a kind.
    pub(crate) fn counts(&self) -> String {
        let mut lines = String::new();
        for ((name, _), count) in KINDS.iter().zip(&self.counts) {
            // A string takes everything.
            writeln!(lines, "{name} {}", count.load(Ordering::Relaxed)).ok();
        }
        lines
    }
}

/// `200us`, `5ms`, `1s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "not a time like 200us".to_owned())?;
    match unit {
        "us" => Ok(Duration::from_micros(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        _ => Err("not a time like 200us".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn request_takes_its_latency_and_the_time_of_its_bytes() {
        let delay = Delay::new(Duration::from_millis(1), Duration::from_millis(2), 100);
        for (kind, len, least) in [(Kind::Open, 0, 1), (Kind::Write, 1 << 20, 12)] {
            let began = Instant::now();
            delay.take(kind, len);
            assert!(began.elapsed() >= Duration::from_millis(least), "{kind:?}");
        }
        assert!(delay.counts().contains("open 1\n") && delay.counts().contains("read 0\n"));
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time("200us"), Ok(Duration::from_micros(200)));
        assert_eq!(time("1s"), Ok(Duration::from_secs(1)));
        for text in ["", "200", "us", "1h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
