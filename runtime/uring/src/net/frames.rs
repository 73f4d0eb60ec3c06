//! A stream cut into frames, each received into a buffer that the peer holds a credit for.
//!
//! A frame is a head of fixed length and a body whose length the head tells. The peer may send as
//! many frames as it was granted; one more, and it is cut off. So what a peer can make this side
//! hold is bounded when its credits are, and a peer that is within them never waits for a buffer
//! provided that the pool has a buffer for every part of as many frames as credits are granted.
//!
//! Small bodies are copied out of what one call brought; a large one is received in its place, and
//! one longer than a buffer in parts, so that what is done with a part finds it in the cache.

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
    /// The frame of which parts are still to come.
    rest: Option<Rest<HEAD>>,
}

#[derive(Debug)]
struct Rest<const HEAD: usize> {
    head: [u8; HEAD],
    at: usize,
    len: usize,
}

/// Frames the peer of a [`Frames`] may still send. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Grants(Rc<Cell<u32>>);

/// A head and its body, or a part of it.
#[derive(Debug)]
pub struct Frame<const HEAD: usize> {
    /// As it was sent; with every part.
    pub head: [u8; HEAD],
    /// In a buffer of the pool, and as long as that but for the last part; `None` when the body's
    /// length is 0.
    pub body: Option<Buffer>,
    /// Where in the whole body it begins, bytes.
    pub at: usize,
    /// Whether it ends the frame.
    pub is_last: bool,
}

/// Why there are no more frames.
#[derive(Debug)]
#[non_exhaustive]
pub enum FrameError {
    /// The peer sent a frame it had no credit for.
    NoCredit,
    /// The peer sent a head that makes no sense.
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
        let (expected_len, rest) = (0, None);
        Self { receiver, pool, grants, stage, start: 0, end: 0, expected_len, rest }
    }

    /// The way to grant more, also while a frame is waited for.
    #[must_use]
    pub fn grants(&self) -> Grants {
        self.grants.clone()
    }

    /// Waits for the next frame, or the next part of one whose body is longer than a buffer; `None`
    /// when the peer sends no more.
    ///
    /// `body_len` reads the body's length in bytes out of the head, `None` if the head is wrong or
    /// the body too long. Dropping the future may lose a part of the stream: then drop the stream
    /// too. A part waits for a buffer while all are held, also by earlier parts of the same frame.
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
        let Rest { head, at, len } = match self.rest.take() {
            Some(rest) => rest,
            None if self.stage_head().await? => self.begin(body_len)?,
            None => return Ok(None),
        };
        let end = len.min(at.saturating_add(self.pool.buffer_len()));
        let is_last = end == len;
        let body = if len == 0 { None } else { Some(self.body(end - at, is_last).await?) };
        if !is_last {
            self.rest = Some(Rest { head, at: end, len });
        }
        Ok(Some(Frame { head, body, at, is_last }))
    }

    /// Takes the staged head.
    fn begin(
        &mut self,
        body_len: impl Fn(&[u8; HEAD]) -> Option<usize>,
    ) -> Result<Rest<HEAD>, FrameError> {
        let mut head = [0; HEAD];
        self.staged().load(&mut head);
        self.start += HEAD;
        let len = body_len(&head).ok_or(FrameError::BadHead)?;
        self.grants.spend()?;
        self.expected_len = len;
        Ok(Rest { head, at: 0, len })
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

    /// Receives a part of a body: what is staged of it, then the rest in its place.
    async fn body(&mut self, len: usize, is_last: bool) -> Result<Buffer, FrameError> {
        let body = self.pool.take().await.prefix(len);
        let staged = self.staged().prefix(len);
        body.copy_from(&staged);
        self.start += staged.len();
        let mut received = staged.len();
        while received < len {
            let ahead = self.stage.prefix(if is_last { self.stage_len() } else { 0 });
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
