//! Messages on the control socket: one greeting each way, then registrations and doorbells.
//!
//! Every message has [`MESSAGE_LEN`] bytes, little-endian. Layout: `docs/reference/protocol.md`,
//! section 2.

use crate::{VERSION, entry::Invalid};

/// Length of every message in bytes.
pub const MESSAGE_LEN: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"kakehi\0\x01");

/// Role of a connecting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A program whose files are delegated: gets a session.
    Client,
    /// `kakehi run`: the daemon lives as long as one of these is connected.
    Run,
    /// A question, answered with one JSON document.
    Control(Control),
}

/// Request of a control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The daemon's state.
    Status,
    /// Drain everything, then answer.
    Drain,
    /// Drain everything, answer, and stop.
    Stop,
}

/// The first message of a connection, from whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Protocol version spoken; see [`VERSION`].
    pub version: u32,
    /// Purpose of the connection.
    pub role: Role,
    /// Number of the process in its parallel job, if a launcher gave it one.
    pub rank: Option<u32>,
}

/// Why the daemon refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The daemon speaks only the version it answers with.
    Version,
    /// Another user owns the daemon.
    User,
    /// No session, memory, or descriptor is left.
    Full,
    /// The daemon is stopping.
    Stopping,
    /// The daemon cannot watch the client's process, which has no number in its pid namespace.
    Unseen,
}

/// The daemon's answer to a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version the daemon speaks.
    pub version: u32,
    /// `Err`: the connection is of no use and will be closed.
    pub session: Result<u32, Refusal>,
    /// Index of the executor that serves the session.
    pub executor: u32,
    /// Files the session may have registered at one time.
    pub file_credit: u32,
    /// Length of the arena in bytes: the session's staging credit.
    pub arena_len: u64,
    /// True if mapped folders have views; to a run, if these are in mounts of the job's own.
    pub has_view: bool,
}

/// Properties of a registered file; bits of [`Registration::flags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFlags(pub u32);

impl FileFlags {
    /// Writes go to the end of the file, whatever their offset.
    pub const APPEND: Self = Self(1);
    /// The client may read.
    pub const READABLE: Self = Self(2);
    /// The client may write.
    pub const WRITABLE: Self = Self(4);

    /// True if all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Hands an open file to the daemon; its descriptor travels with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Slot the file takes; must be free.
    pub file: u32,
    /// Properties of the file.
    pub flags: FileFlags,
    /// Start of its staging log in the arena, bytes.
    pub log_at: u64,
    /// Length of the log in bytes: a power of two, or zero for a file that is only read.
    pub log_len: u64,
}

/// A message after the greetings, from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Something is ready: wakes a parked daemon.
    Doorbell,
    /// A file is handed over.
    Register(Registration),
}

impl Greeting {
    /// A greeting in this version.
    #[must_use]
    pub const fn new(role: Role) -> Self {
        Self { version: VERSION, role, rank: None }
    }

    /// The message's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; MESSAGE_LEN] {
        let role = match self.role {
            Role::Client => 0,
            Role::Run => 1,
            Role::Control(Control::Status) => 2,
            Role::Control(Control::Drain) => 3,
            Role::Control(Control::Stop) => 4,
        };
        let rank = self.rank.map_or(0, |rank| u64::from(rank) + 1);
        pack([MAGIC, u64::from(self.version), role, rank, 0, 0])
    }

    /// Decodes what a peer sent. The version is the caller's to judge: later fields of another
    /// version's greeting keep their meaning.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when the bytes are no greeting.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let [magic, version, role, rank, ..] = unpack(bytes)?;
        if magic != MAGIC {
            return Err(Invalid::Magic);
        }
        let role = match role {
            0 => Role::Client,
            1 => Role::Run,
            2 => Role::Control(Control::Status),
            3 => Role::Control(Control::Drain),
            4 => Role::Control(Control::Stop),
            _ => return Err(Invalid::Message(low(role))),
        };
        let rank = rank.checked_sub(1).and_then(|rank| u32::try_from(rank).ok());
        Ok(Self { version: low(version), role, rank })
    }
}

impl Welcome {
    /// A refusal.
    #[must_use]
    pub const fn refuse(refusal: Refusal) -> Self {
        let (executor, file_credit, arena_len, has_view) = (0, 0, 0, false);
        let session = Err(refusal);
        Self { version: VERSION, session, executor, file_credit, arena_len, has_view }
    }

    /// The session, if the daemon lets the client in and speaks its version.
    ///
    /// # Errors
    ///
    /// The daemon's reason, or [`Refusal::Version`] of a daemon that did not notice.
    pub const fn outcome(self) -> Result<u32, Refusal> {
        if self.version == VERSION { self.session } else { Err(Refusal::Version) }
    }

    /// The message's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; MESSAGE_LEN] {
        let (refusal, session) = match self.session {
            Ok(session) => (0, session),
            Err(Refusal::Version) => (1, 0),
            Err(Refusal::User) => (2, 0),
            Err(Refusal::Full) => (3, 0),
            Err(Refusal::Stopping) => (4, 0),
            Err(Refusal::Unseen) => (5, 0),
        };
        pack([
            MAGIC,
            u64::from(self.version),
            refusal,
            u64::from(session) | u64::from(self.has_view) << 32,
            u64::from(self.executor) | u64::from(self.file_credit) << 32,
            self.arena_len,
        ])
    }

    /// Decodes the daemon's answer.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when the bytes are no welcome.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let [magic, version, refusal, session, pair, arena_len] = unpack(bytes)?;
        let views = session >> 32;
        if magic != MAGIC {
            return Err(Invalid::Magic);
        }
        let session = match refusal {
            0 => Ok(low(session)),
            1 => Err(Refusal::Version),
            2 => Err(Refusal::User),
            3 => Err(Refusal::Full),
            4 => Err(Refusal::Stopping),
            5 => Err(Refusal::Unseen),
            _ => return Err(Invalid::Message(low(refusal))),
        };
        let (executor, file_credit) = (low(pair), low(pair >> 32));
        let has_view = refusal == 0 && views != 0;
        Ok(Self { version: low(version), session, executor, file_credit, arena_len, has_view })
    }
}

impl Message {
    /// The message's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; MESSAGE_LEN] {
        match self {
            Self::Doorbell => pack([1, 0, 0, 0, 0, 0]),
            Self::Register(Registration { file, flags, log_at, log_len }) => {
                pack([2, u64::from(file), u64::from(flags.0), log_at, log_len, 0])
            }
        }
    }

    /// Decodes what a client sent.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when the bytes are no message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let [kind, file, flags, log_at, log_len, _] = unpack(bytes)?;
        match kind {
            1 => Ok(Self::Doorbell),
            2 => {
                let (file, flags) = (low(file), FileFlags(low(flags)));
                Ok(Self::Register(Registration { file, flags, log_at, log_len }))
            }
            _ => Err(Invalid::Message(low(kind))),
        }
    }
}

const FIELDS: usize = 6;

fn pack(fields: [u64; FIELDS]) -> [u8; MESSAGE_LEN] {
    let mut bytes = [0; MESSAGE_LEN];
    for (slot, field) in bytes.chunks_exact_mut(size_of::<u64>()).zip(fields) {
        slot.copy_from_slice(&field.to_le_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Result<[u64; FIELDS], Invalid> {
    if bytes.len() != MESSAGE_LEN {
        return Err(Invalid::Length(bytes.len()));
    }
    let mut fields = [0; FIELDS];
    for (field, slot) in fields.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
        let mut word = [0; size_of::<u64>()];
        word.copy_from_slice(slot);
        *field = u64::from_le_bytes(word);
    }
    Ok(fields)
}

#[expect(clippy::cast_possible_truncation, reason = "the field is the low half of the word")]
const fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_and_messages_survive_the_socket() {
        let roles = [Control::Status, Control::Drain, Control::Stop].map(Role::Control);
        for role in [Role::Client, Role::Run].into_iter().chain(roles) {
            for rank in [None, Some(0), Some(u32::MAX)] {
                let greeting = Greeting { version: 9, role, rank };
                assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
            }
        }
        let refusals =
            [Refusal::Version, Refusal::User, Refusal::Full, Refusal::Stopping, Refusal::Unseen];
        let refused = Welcome::refuse(Refusal::Full);
        for session in refusals.map(Err).into_iter().chain([Ok(1023)]) {
            let welcome =
                Welcome { session, file_credit: 256, has_view: session.is_ok(), ..refused };
            assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        }
        let flags = FileFlags::APPEND.with(FileFlags::WRITABLE);
        let registration = Registration { file: 7, flags, log_at: 65536, log_len: 1 << 20 };
        for message in [Message::Doorbell, Message::Register(registration)] {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn welcome_in_another_version_is_a_refusal() {
        let welcome = Welcome { session: Ok(7), ..Welcome::refuse(Refusal::Full) };
        assert_eq!(welcome.outcome(), Ok(7));
        let other = Welcome { version: VERSION + 1, ..welcome };
        assert_eq!(other.outcome(), Err(Refusal::Version));
        assert_eq!(Welcome::refuse(Refusal::Full).outcome(), Err(Refusal::Full));
    }

    #[test]
    fn wrong_bytes_are_named() {
        assert_eq!(Greeting::decode(&[0; MESSAGE_LEN]), Err(Invalid::Magic));
        assert_eq!(Message::decode(&[0; MESSAGE_LEN]), Err(Invalid::Message(0)));
        for len in 0..MESSAGE_LEN {
            assert_eq!(Message::decode(&[1; MESSAGE_LEN][..len]), Err(Invalid::Length(len)));
        }
    }
}
