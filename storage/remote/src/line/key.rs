//! The job key: who has it may speak to the server, and knows it for the right one.
//!
//! Between processes of one machine a Unix socket can do without: the kernel says whose they are.
//! Both sides then prove a key that everybody knows, so a side that was given one meets no other.
//!
//! Each side proves the key by a tag over both nonces, so that a tag serves one connection only,
//! and over its own role, so that nobody is answered by his own tag. What is said afterwards is
//! neither encrypted nor authenticated: the network between the nodes of a job is trusted not to
//! change it.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    rand::{GetRandomFlags, getrandom},
};
use sha2::Sha256;
use uring::Stream;
use wire::{NONCE_LEN, SESSION_LEN, TAG_LEN};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::handshake::{refused, strange};

const ROOT: u32 = 0;
const KEY_LEN: usize = 32;
/// The key of who was given none.
const EVERYBODYS: Key = Key(*b"kakehi: no key but the same user");

/// The shared secret of a job. Its bytes do not stay in memory.
#[derive(Clone, ZeroizeOnDrop)]
pub struct Key([u8; KEY_LEN]);

/// The handshake's messages of both sides, which every tag covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    pub(crate) version: u32,
    pub(crate) session: [u8; SESSION_LEN],
    pub(crate) client_nonce: [u8; NONCE_LEN],
    pub(crate) server_nonce: [u8; NONCE_LEN],
}

/// The side that proves the key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Prover {
    Client,
    Server,
}

impl Key {
    /// The key in a file; without a file everybody's.
    ///
    /// # Errors
    ///
    /// Those of `read`, which is given the file.
    pub fn given(
        file: Option<&Path>,
        read: impl FnOnce(&Path) -> io::Result<Self>,
    ) -> io::Result<Self> {
        file.map_or(Ok(EVERYBODYS), read)
    }

    /// Checks the process at the other end of a stream: without a secret it must be of this user,
    /// or root.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` otherwise; those of `getsockopt`.
    pub(crate) fn admits(&self, stream: &Stream) -> io::Result<()> {
        self.admits_user(stream.peer_user()?)
    }

    fn admits_user(&self, user: Option<u32>) -> io::Result<()> {
        if self.0 != EVERYBODYS.0 {
            return Ok(());
        }
        let us = rustix::process::geteuid().as_raw();
        match user {
            Some(user) if user == us || user == ROOT => Ok(()),
            Some(_) => Err(strange("the socket is another user's; give both sides a key file")),
            None => Err(refused("only a unix:// address can do without a key file")),
        }
    }

    /// Reads a key file: 64 hexadecimal digits, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Those of [`open_regular`] and reading; `PermissionDenied` when the file belongs to somebody
    /// else or others may read it; `InvalidData` when it holds no key.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let found = file.metadata()?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || found.mode() & 0o077 != 0 {
            let why = "a key file has to be this user's, with mode 0600";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(1024));
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
    #[cfg(test)]
    pub(crate) fn read_or_create(path: &Path) -> io::Result<Self> {
        Self::read_or_make(path).map(|(key, _)| key)
    }

    /// The same; true with a key that was made.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and those of creating the file; then none is left.
    pub fn read_or_make(path: &Path) -> io::Result<(Self, bool)> {
        match Self::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read.map(|key| (key, false)),
        }
        let key = Self(random()?);
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".{}", hex::encode(random::<8>()?)));
        let written = key.write(fresh.as_ref());
        // Whole from the beginning: of servers that start together one makes the key of all.
        let linked = written.and_then(|()| fs::hard_link(&fresh, path));
        fs::remove_file(&fresh).ok(); // It may not have been made.
        match linked {
            Ok(()) => Ok((key, true)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Self::read(path).map(|key| (key, false))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a new key file.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", hex::encode(self.0))
    }

    /// The proof of the key by one side.
    pub(crate) fn tag(&self, prover: Prover, said: &Transcript) -> [u8; TAG_LEN] {
        self.mac(prover.label(), said).finalize().into_bytes().into()
    }

    /// True if `tag` is the proof. Takes the same time for every wrong one.
    pub(crate) fn accepts(&self, prover: Prover, said: &Transcript, tag: &[u8; TAG_LEN]) -> bool {
        self.mac(prover.label(), said).verify_slice(tag).is_ok()
    }

    /// Derives the mark of one side's messages, which is never sent on the stream.
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

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole.
    let len = rustix::io::retry_on_intr(|| getrandom(&mut bytes[..], GetRandomFlags::empty()))?;
    if len == N { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// As many bytes as the text has to say, and no others.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(bytes)
}

/// Opens a file to read. Waits for nobody, as a pipe would for who writes to it.
///
/// # Errors
///
/// Those of `open`; `InvalidInput`: it is something else than a regular file.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::fs::PermissionsExt as _, thread};

    use rustix::fs::CWD;

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
    fn only_a_regular_file_is_a_key_file() {
        let folder = tempfile::tempdir().expect("folder");
        let pipe = folder.path().join("pipe");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        for path in [folder.path(), &pipe, Path::new("/dev/zero")] {
            let error = Key::read_or_create(path).expect_err("no file");
            assert!(error.to_string().contains("regular"), "{path:?}: {error}");
        }
    }

    #[test]
    fn servers_that_start_together_have_one_key() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().expect("folder");
            let path = folder.path().join("key");
            let tags: BTreeSet<_> = thread::scope(|scope| {
                let make = || Key::read_or_create(&path).expect("a key").tag(Prover::Client, &SAID);
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                threads.into_iter().map(|thread| thread.join().expect("made")).collect()
            });
            assert_eq!(tags.len(), 1);
            assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1, "left behind");
        }
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
    fn without_a_secret_only_this_user_and_root_are_let_in() {
        let us = rustix::process::geteuid().as_raw();
        let (none, key) = (Key::given(None, Key::read).expect("no file"), Key([7; KEY_LEN]));
        for (user, is_let_in) in
            [(Some(us), true), (Some(ROOT), true), (Some(us + 1), false), (None, false)]
        {
            assert_eq!(none.admits_user(user).is_ok(), is_let_in, "{user:?}");
            key.admits_user(user).expect("it has a secret to prove");
        }
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
