//! Where a stream socket listens.

use std::{
    error, fmt, io,
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use crate::engines::Engines;

/// `tcp://HOST:PORT` or `unix://PATH`; an IPv6 address stands in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// In a listener, 0 lets the system choose.
        port: u16,
    },
    /// A Unix socket, by its path.
    Unix(PathBuf),
}

/// Text that is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAddress;

impl Address {
    /// The addresses of a TCP host, in the order to try them, looked up on an engine thread.
    ///
    /// # Errors
    ///
    /// `NotFound` with what `getaddrinfo` says; `InvalidInput` for a Unix socket.
    pub(crate) async fn resolve(&self, engines: &Engines) -> io::Result<Vec<SocketAddr>> {
        let Self::Tcp { host, port } = self else { return Err(io::ErrorKind::InvalidInput.into()) };
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, *port)]);
        }
        let (name, found) = ((host.clone(), *port), Arc::new(Mutex::default()));
        let place = Arc::clone(&found);
        let look_up = move || {
            let unknown = |why| io::Error::new(io::ErrorKind::NotFound, why);
            let addresses: Vec<_> = name.to_socket_addrs().map_err(unknown)?.collect();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
            Ok(0)
        };
        engines.call(look_up).await?;
        let addresses = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(addresses)
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.is_empty() { Err(InvalidAddress) } else { Ok(Self::Unix(path.into())) };
        }
        let place = text.strip_prefix("tcp://").ok_or(InvalidAddress)?;
        let (host, port) = place.rsplit_once(':').ok_or(InvalidAddress)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bare {
            Some(host) => host,
            None if host.contains(':') => return Err(InvalidAddress), // A colon too many.
            None => host,
        };
        let port = port.parse().map_err(|_| InvalidAddress)?;
        if host.is_empty() {
            Err(InvalidAddress)
        } else {
            Ok(Self::Tcp { host: host.into(), port })
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl fmt::Display for InvalidAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address is tcp://HOST:PORT or unix://PATH")
    }
}

impl error::Error for InvalidAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in [
            "tcp://node7:9000",
            "tcp://10.0.0.1:0",
            "tcp://[::1]:65535",
            "unix:///run/a b",
            "unix://a",
        ] {
            assert_eq!(text.parse::<Address>().expect("an address").to_string(), text);
        }
    }

    #[test]
    fn other_text_is_no_address() {
        for text in [
            "",
            "node7:9000",
            "tcp://",
            "tcp://node7",
            "tcp://:1",
            "tcp://a:65536",
            "tcp://::1:1",
            "tcp://[]:1",
            "unix://",
            "ucx://a:1",
        ] {
            assert_eq!(text.parse::<Address>(), Err(InvalidAddress), "{text}");
        }
    }
}
