//! The job key: who has it may speak to the server, and knows it for the right one.
//!
//! Each side proves the key by a tag over both nonces, so that a tag serves one connection only,
//! and over its own role, so that nobody is answered by his own tag. What is said afterwards is
//! neither encrypted nor authenticated: the network between the nodes of a job is trusted not to
//! change it.

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use hmac::{Hmac, Mac as _};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;
use wire::{NONCE_LEN, SESSION_LEN, TAG_LEN};

const KEY_LEN: usize = 32;

/// The shared secret of a job.
#[derive(Clone)]
pub(crate) struct Key([u8; KEY_LEN]);

/// What both sides of a connection have said, which every tag covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    pub(crate) version: u32,
    pub(crate) session: [u8; SESSION_LEN],
    pub(crate) client_nonce: [u8; NONCE_LEN],
    pub(crate) server_nonce: [u8; NONCE_LEN],
}

/// Who proves that he has the key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prover {
    Client,
    Server,
}

impl Key {
    /// Reads a key file: 64 hexadecimal digits, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Those of opening and reading; `PermissionDenied` when the file belongs to somebody else or
    /// others may read it; `InvalidData` when it holds no key.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        let found = file.metadata()?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || found.mode() & 0o077 != 0 {
            let why = "a key file has to be this user's, with mode 0600";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut bytes = Vec::new();
        file.take(1024).read_to_end(&mut bytes)?;
        let key = std::str::from_utf8(&bytes).ok().and_then(|text| from_hex(text.trim_end()));
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not 64 hexadecimal digits");
        key.map(Self).ok_or_else(wrong)
    }

    /// Reads a key file, or makes a new one when there is none. Of several servers that start at
    /// once one makes it, and nobody finds half of it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and those of creating the file; then none is left.
    pub(crate) fn read_or_create(path: &Path) -> io::Result<Self> {
        match Self::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        let key: [u8; KEY_LEN] = random()?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", hex(&random::<8>()?)));
        let draft = Path::new(&draft);
        let made = write_draft(draft, &key).and_then(|()| fs::hard_link(draft, path));
        fs::remove_file(draft).ok();
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            made => made.map(|()| Self(key)),
        }
    }

    /// The proof of the key by one side.
    pub(crate) fn tag(&self, prover: Prover, said: &Transcript) -> [u8; TAG_LEN] {
        self.mac(prover.label(), said).finalize().into_bytes().into()
    }

    /// Whether `tag` is the proof. Takes the same time for every wrong one.
    pub(crate) fn accepts(&self, prover: Prover, said: &Transcript, tag: &[u8; TAG_LEN]) -> bool {
        self.mac(prover.label(), said).verify_slice(tag).is_ok()
    }

    /// What marks the messages of one side, and is never said on the stream.
    pub(crate) fn secret(&self, sender: Prover, said: &Transcript) -> [u8; TAG_LEN] {
        let label: &[u8] = match sender {
            Prover::Client => b"kakehi client's messages",
            Prover::Server => b"kakehi server's messages",
        };
        self.mac(label, said).finalize().into_bytes().into()
    }

    fn mac(&self, label: &[u8], said: &Transcript) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(label);
        mac.update(&said.version.to_le_bytes());
        mac.update(&said.session);
        mac.update(&said.client_nonce);
        mac.update(&said.server_nonce);
        mac
    }
}

impl Prover {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"kakehi client",
            Self::Server => b"kakehi server",
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

fn write_draft(path: &Path, key: &[u8; KEY_LEN]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", hex(key))
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole.
    let len = rustix::io::retry_on_intr(|| getrandom(&mut bytes[..], GetRandomFlags::empty()))?;
    if len == N { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As many bytes as the text has to say, and no others.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SAID: Transcript = Transcript {
        version: 1,
        session: [1; SESSION_LEN],
        client_nonce: [2; NONCE_LEN],
        server_nonce: [3; NONCE_LEN],
    };

    #[test]
    fn key_file_is_made_once_and_read_afterwards() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("key");
        let made = Key::read_or_create(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let read = Key::read_or_create(&path).expect("read");
        assert_eq!(made.tag(Prover::Client, &SAID), read.tag(Prover::Client, &SAID));
    }

    #[test]
    fn servers_that_start_at_once_have_one_key() {
        let folder = tempfile::tempdir().expect("folder");
        for round in 0..100 {
            let path = folder.path().join(format!("key{round}"));
            let tag = || Key::read_or_create(&path).expect("a key").tag(Prover::Client, &SAID);
            std::thread::scope(|scope| {
                let tags: Vec<_> = (0..8).map(|_| scope.spawn(tag)).collect();
                let tags = tags.into_iter().map(|tag| tag.join().expect("no panic"));
                assert_eq!(tags.collect::<std::collections::HashSet<_>>().len(), 1);
            });
        }
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 100, "and no drafts");
    }

    #[test]
    fn key_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("key");
        Key::read_or_create(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("mode");
        let refused = Key::read(&path).expect_err("readable by the group");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn tag_covers_everything_that_was_said() {
        let (key, other) = (Key([7; KEY_LEN]), Key([8; KEY_LEN]));
        let tag = key.tag(Prover::Client, &SAID);
        assert!(key.accepts(Prover::Client, &SAID, &tag));
        assert!(!key.accepts(Prover::Server, &SAID, &tag), "another role");
        assert!(!other.accepts(Prover::Client, &SAID, &tag), "another key");
        for sender in [Prover::Client, Prover::Server] {
            let secret = key.secret(sender, &SAID);
            assert_ne!(secret, tag, "a secret is no proof");
            assert_ne!(secret, key.secret(sender, &Transcript { session: [9; 16], ..SAID }));
        }
        for changed in [
            Transcript { version: 2, ..SAID },
            Transcript { session: [9; SESSION_LEN], ..SAID },
            Transcript { client_nonce: [9; NONCE_LEN], ..SAID },
            Transcript { server_nonce: [9; NONCE_LEN], ..SAID },
        ] {
            assert!(!key.accepts(Prover::Client, &changed, &tag), "{changed:?}");
        }
    }
}
