//! A stream cut into frames, each received into a buffer that the peer holds a credit for.
//!
//! A frame is a head of fixed length and a body whose length the head tells. The peer may send as
//! many frames as it was granted; one more, and it is cut off. So what a peer can make this side
//! hold is bounded when its credits are, and a peer that is within them never waits for a buffer
//! provided that no more credits are granted than the pool has buffers.
//!
//! Small bodies are copied out of what one call brought; a large one is received in its place.

use std::{cell::Cell, error, fmt, io, rc::Rc};

use super::stream::Receiver;
use crate::{
    memory::{Buffer, Buffers, Heap},
    pool::Pool,
};

/// Most bytes received ahead of their place.
const STAGE_LEN: usize = 64 * 1024;

/// A body up to this long is cheaper to copy than to receive by a call of its own.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// Receives frames with heads of `HEAD` bytes.
#[derive(Debug)]
pub struct Frames<const HEAD: usize> {
    receiver: Receiver,
    pool: Pool,
    grants: Grants,
    stage: Buffer,
    /// Received and not yet taken, as a part of `stage`.
    start: usize,
    end: usize,
    /// Length of the last body: the next is expected to be like it.
    expected_len: usize,
}

/// Frames the peer of a [`Frames`] may still send. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Grants(Rc<Cell<u32>>);

/// A head and its body.
#[derive(Debug)]
pub struct Frame<const HEAD: usize> {
    /// As it was sent.
    pub head: [u8; HEAD],
    /// In a buffer of the pool; `None` when its length is 0.
    pub body: Option<Buffer>,
}

/// Why there are no more frames.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrameError {
    /// The peer sent a frame it had no credit for.
    NoCredit,
    /// The peer announced a body longer than a buffer, or sent a head that makes no sense.
    BadHead,
    /// The connection is broken, or ended within a frame (`UnexpectedEof`).
    Broken(io::Error),
}

impl<const HEAD: usize> Frames<HEAD> {
    /// Frames from `receiver` into buffers of `pool`. None may come before a credit is granted.
    #[must_use]
    pub fn new(receiver: Receiver, pool: Pool) -> Self {
        let stage = Heap::buffer(STAGE_LEN);
        let grants = Grants::default();
        Self { receiver, pool, grants, stage, start: 0, end: 0, expected_len: 0 }
    }

    /// The way to grant more, also while a frame is waited for.
    #[must_use]
    pub fn grants(&self) -> Grants {
        self.grants.clone()
    }

    /// Waits for the next frame; `None` when the peer sends no more.
    ///
    /// `body_len` reads the body's length in bytes out of the head, `None` if the head is wrong.
    /// Dropping the future may lose a part of the stream: then drop the stream too.
    ///
    /// # Errors
    ///
    /// Those of [`FrameError`]. After any of them the connection is cut in both directions.
    pub async fn next(
        &mut self,
        body_len: impl Fn(&[u8; HEAD]) -> Option<usize>,
    ) -> Result<Option<Frame<HEAD>>, FrameError> {
        let next = self.try_next(body_len).await;
        if next.is_err() {
            self.receiver.cut();
        }
        next
    }

    async fn try_next(
        &mut self,
        body_len: impl Fn(&[u8; HEAD]) -> Option<usize>,
    ) -> Result<Option<Frame<HEAD>>, FrameError> {
        if !self.stage_head().await? {
            return Ok(None);
        }
        let mut head = [0; HEAD];
        self.staged().load(&mut head);
        self.start += HEAD;
        let len = body_len(&head).ok_or(FrameError::BadHead)?;
        if len > self.pool.buffer_len() {
            return Err(FrameError::BadHead);
        }
        self.grants.spend()?;
        self.expected_len = len;
        let body = if len == 0 { None } else { Some(self.body(len).await?) };
        Ok(Some(Frame { head, body }))
    }

    /// Receives until a head is staged; `false` at the end of the stream.
    async fn stage_head(&mut self) -> Result<bool, FrameError> {
        while self.end - self.start < HEAD {
            let rest = self.staged();
            self.stage.copy_from(&rest);
            (self.start, self.end) = (0, rest.len());
            let room = self.stage.suffix(self.end).prefix(self.stage_len());
            let received = self.receiver.receive(&room.into()).await?;
            self.end += received;
            match received {
                0 if self.end == 0 => return Ok(false),
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Receives a body: what is staged of it, then the rest in its place.
    async fn body(&mut self, len: usize) -> Result<Buffer, FrameError> {
        let body = self.pool.take().await.prefix(len);
        let staged = self.staged().prefix(len);
        body.copy_from(&staged);
        self.start += staged.len();
        let mut received = staged.len();
        while received < len {
            let ahead = self.stage.prefix(self.stage_len());
            let into = Buffers::new(vec![body.suffix(received), ahead]);
            let into = into.unwrap_or_else(|| body.suffix(received).into());
            let count = self.receiver.receive(&into).await?;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let in_place = count.min(len - received);
            received += in_place;
            (self.start, self.end) = (0, count - in_place);
        }
        Ok(body)
    }

    /// How much to receive ahead: when large bodies are expected, no byte that would be copied.
    fn stage_len(&self) -> usize {
        if self.expected_len > COPIED_LEN_MAX { HEAD } else { STAGE_LEN }
    }

    fn staged(&self) -> Buffer {
        self.stage.suffix(self.start).prefix(self.end - self.start)
    }
}

impl Grants {
    /// Lets the peer send `count` more frames. Tell it after this call, not before.
    pub fn add(&self, count: u32) {
        self.0.set(self.0.get().saturating_add(count));
    }

    fn spend(&self) -> Result<(), FrameError> {
        self.0.set(self.0.get().checked_sub(1).ok_or(FrameError::NoCredit)?);
        Ok(())
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCredit => f.write_str("the peer sent a frame without credit"),
            Self::BadHead => f.write_str("the peer sent a frame that makes no sense"),
            Self::Broken(error) => write!(f, "the connection is broken: {error}"),
        }
    }
}

impl error::Error for FrameError {}
