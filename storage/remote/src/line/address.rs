//! Where a server is met, and what carries the frames from then on.

use std::{fmt, path::Path, str::FromStr};

use uring::InvalidAddress;

const SCHEME: &str = "ucx://";
/// How the place is written where a stream carries everything.
const STREAM_SCHEME: &str = "tcp://";

/// `tcp://HOST:PORT`, `unix://PATH`, or `ucx://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where client and server meet.
    pub place: uring::Address,
    /// How they go on.
    pub carrier: Carrier,
}

/// Transport of frames once both sides have proven the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The stream they met on.
    Stream,
    /// UCX messages; the stream stays open beside them.
    Ucx,
}

impl Address {
    /// The same, the path of a Unix socket starting at `folder`.
    #[must_use]
    pub fn starting_at(mut self, folder: &Path) -> Self {
        if let uring::Address::Unix(path) = &mut self.place {
            *path = folder.join(&path);
        }
        self
    }

    /// The path of a Unix socket.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.place {
            uring::Address::Unix(path) => Some(path),
            uring::Address::Tcp { .. } => None,
        }
    }

    /// True if who comes there has to prove the job key: whose a process on another machine is,
    /// nobody says.
    #[must_use]
    pub fn needs_key(&self) -> bool {
        self.socket().is_none()
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let Some(place) = text.strip_prefix(SCHEME) else {
            return Ok(Self { place: text.parse()?, carrier: Carrier::Stream });
        };
        let place = format!("{STREAM_SCHEME}{place}").parse()?;
        Ok(Self { place, carrier: Carrier::Ucx })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.to_string();
        match (self.carrier, place.strip_prefix(STREAM_SCHEME)) {
            (Carrier::Ucx, Some(place)) => write!(f, "{SCHEME}{place}"),
            _ => f.write_str(&place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["tcp://node7:9000", "ucx://node7:9000", "ucx://[::1]:0", "unix:///run/a"] {
            let address: Address = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
            assert_eq!(address.carrier == Carrier::Ucx, text.starts_with("ucx"));
            assert_eq!(address.needs_key(), !text.starts_with("unix"));
        }
        for text in ["ucx://", "ucx://node7", "ucx://tcp://a:1:2", "ib://node7:1"] {
            assert_eq!(text.parse::<Address>(), Err(InvalidAddress), "{text}");
        }
    }
}
