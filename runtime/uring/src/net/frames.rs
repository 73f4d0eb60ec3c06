//! A stream cut into frames, each received into a buffer of its own.
//!
//! A frame is a head of fixed length and a body whose length the head tells. Who receives admits
//! each frame by its head, before anything is taken for it, and may cut the peer off. Bodies are
//! received into buffers of a pool, for which they wait; so what a peer can make this side hold is
//! bounded.
//!
//! Bytes that a call brings land on a *stage*. Small bodies are copied from there, or stay if they
//! need no buffer of the pool; a large one is received in its place, and one longer than a buffer
//! in parts, so that what is done with a part finds it in the cache. An inlet that has the rest of
//! a large body in memory already [lends](Inlet::lend) it instead. With [`Stages::in_turns`] what
//! has been taken stays in the cache, too: then who receives takes a [share](Frames::share) of its
//! turn for every frame, and gives it back when that is served.

use std::{error, fmt, future, io, sync::atomic::AtomicU8};

use executor::Credit;

use super::{
    stages::{STAGE_LEN, Stages},
    turns,
};
use crate::{
    memory::{Buffer, Buffers, load},
    pool::Pool,
};

/// A body up to this long is cheaper to copy than to receive by a call of its own.
const COPIED_LEN_MAX: usize = 16 * 1024;

/// Where a [`Frames`] receives from.
pub trait Inlet {
    /// Waits until there may be something to receive, or an end of it.
    fn ready(&mut self) -> impl Future<Output = ()>;

    /// Receives what has come; 0 when the peer sends no more.
    ///
    /// # Errors
    ///
    /// `WouldBlock`: nothing has come. Any other: the connection is broken.
    fn receive_now(&mut self, into: &Buffers) -> io::Result<usize>;

    /// Ends the connection, if it can, in both directions.
    fn cut(&mut self);

    /// True if a call brings nothing of what could be lent, however much room there is.
    fn lends(&self) -> bool {
        false
    }

    /// Waits for the next `len` bytes, and receives them where they are; `None`: they are not in
    /// memory that could be had, and nothing was received.
    fn lend(&mut self, _len: usize) -> impl Future<Output = Option<Buffers>> {
        future::ready(None)
    }
}

/// Receives frames with heads of `HEAD` bytes.
#[derive(Debug)]
pub struct Frames<R, const HEAD: usize> {
    inlet: R,
    pool: Pool,
    /// Bodies up to this long are no matter of the pool.
    own_len_max: usize,
    stages: Stages,
    /// `None` while nothing is staged.
    stage: Option<Buffer>,
    /// Received and not yet taken, as a part of `stage`.
    start: usize,
    end: usize,
    /// Length of the last body: the next is expected to be like it.
    expected_len: usize,
    /// The frame of which parts are still to come.
    rest: Option<Rest<HEAD>>,
    /// Remainder of its turn to receive.
    turn: Option<Credit>,
}

#[derive(Debug)]
struct Rest<const HEAD: usize> {
    head: [u8; HEAD],
    at: usize,
    len: usize,
}

/// A head and its body, or a part of it.
#[derive(Debug)]
pub struct Frame<const HEAD: usize> {
    /// As it was sent; with every part.
    pub head: [u8; HEAD],
    /// In a buffer of the pool, and as long as that but for the last part, or in memory that is no
    /// matter of it; `None` when the body's length is 0.
    pub body: Option<Buffer>,
    /// Bytes that follow in the body, where the inlet had them.
    pub lent: Option<Buffers>,
    /// Where in the whole body it begins, bytes.
    pub at: usize,
    /// True if it ends the frame.
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

impl<R: Inlet, const HEAD: usize> Frames<R, HEAD> {
    /// Frames from `inlet` into buffers of `pool`.
    #[must_use]
    pub fn new(inlet: R, pool: Pool, stages: &Stages) -> Self {
        let (stage, stages) = (None, stages.clone());
        let (expected_len, rest, own_len_max) = (0, None, 0);
        let (start, end, turn) = (0, 0, None);
        Self { inlet, pool, own_len_max, stages, stage, start, end, expected_len, rest, turn }
    }

    /// The same, with bodies up to `len` bytes where they were received, or in memory of their own:
    /// for peers whose small frames are bounded by their number.
    #[must_use]
    pub fn with_own_up_to(self, len: usize) -> Self {
        Self { own_len_max: len.min(COPIED_LEN_MAX), ..self }
    }

    /// Where the frames come from.
    pub fn inlet(&mut self) -> &mut R {
        &mut self.inlet
    }

    /// Goes on, between two frames, with buffers of another pool and among other streams.
    pub fn move_to(&mut self, pool: Pool, stages: &Stages) {
        (self.pool, self.stages, self.turn) = (pool, stages.clone(), None);
    }

    /// Takes what is left of the stream's turn, at most `len` bytes, for the frame that came last.
    ///
    /// To be kept until the frame is served, and to be taken for every frame: else the turn never
    /// ends. `None` where streams do not take turns.
    pub fn share(&mut self, len: usize) -> Option<Credit> {
        self.turn.as_mut().map(|turn| turn.split(len as u64))
    }

    /// Waits for something else than the next frame. Until then it is another stream's turn.
    pub async fn wait<T>(&mut self, other: impl Future<Output = T>) -> T {
        turns::wait(&mut self.turn, other).await
    }

    /// Waits for the next frame, or the next part of one whose body is longer than a buffer; `None`
    /// when the peer sends no more.
    ///
    /// `admit` gives the length of the body in bytes by the head, or says why the frame is refused.
    /// Dropping the future may lose a part of the stream: then drop the stream too. A part waits
    /// for a buffer while all are held, also by earlier parts of the same frame.
    ///
    /// # Errors
    ///
    /// Those of [`FrameError`]. After any of them the connection is cut in both directions.
    pub async fn next(
        &mut self,
        admit: impl Fn(&[u8; HEAD]) -> Result<usize, FrameError>,
    ) -> Result<Option<Frame<HEAD>>, FrameError> {
        let next = self.try_next(admit).await;
        if next.is_err() {
            self.inlet.cut();
        }
        next
    }

    async fn try_next(
        &mut self,
        admit: impl Fn(&[u8; HEAD]) -> Result<usize, FrameError>,
    ) -> Result<Option<Frame<HEAD>>, FrameError> {
        let Rest { head, at, len } = match self.rest.take() {
            Some(rest) => rest,
            None if self.stage_up_to(HEAD).await? => self.begin(admit)?,
            None if self.stage.is_none() => return Ok(None),
            None => return Err(ended()),
        };
        let is_own = len <= self.own_len_max;
        let buffer_len = if is_own { len } else { self.pool.buffer_len() };
        let end = len.min(at.saturating_add(buffer_len));
        let is_last = end == len;
        if !is_own && at == 0 {
            if let Some((start, rest)) = self.lent(len).await? {
                return Ok(Some(Frame { head, body: start, lent: Some(rest), at, is_last: true }));
            }
        }
        let body = match end - at {
            0 => None,
            len if is_own && self.stages.has_room() => Some(self.staged_body(len).await?),
            len if is_own => Some(self.body(vec![0; len].into(), is_last).await?),
            len => {
                let buffer = turns::wait(&mut self.turn, self.pool.take()).await;
                Some(self.body(buffer.prefix(len), is_last).await?)
            }
        };
        if !is_last {
            self.rest = Some(Rest { head, at: end, len });
        }
        Ok(Some(Frame { head, body, lent: None, at, is_last }))
    }

    /// Takes the staged head.
    fn begin(
        &mut self,
        admit: impl Fn(&[u8; HEAD]) -> Result<usize, FrameError>,
    ) -> Result<Rest<HEAD>, FrameError> {
        let mut head = [0; HEAD];
        self.take_staged(|staged| {
            load(staged, &mut head);
            HEAD
        });
        let len = admit(&head)?;
        self.expected_len = len;
        Ok(Rest { head, at: 0, len })
    }

    /// Waits until there may be something to receive, and it is this stream's turn.
    async fn ready(&mut self) {
        turns::wait(&mut self.turn, self.inlet.ready()).await;
        let is_over = self.turn.as_ref().is_none_or(|turn| turn.amount() == 0);
        if let (Some(turns), true) = (&self.stages.turns, is_over) {
            self.turn = turns.next().await;
        }
    }

    /// Receives until `len` bytes are staged; `false` when the stream ends before.
    async fn stage_up_to(&mut self, len: usize) -> Result<bool, FrameError> {
        while self.end - self.start < len {
            self.ready().await;
            let stage = match self.stage.take() {
                Some(stage) => self.stages.renew(stage, self.start..self.end),
                None => self.stages.take(),
            };
            (self.start, self.end) = (0, self.end - self.start);
            let room = stage.suffix(self.end).prefix(self.ahead_len());
            let received = received(self.inlet.receive_now(&room.into()))?;
            self.end += received.unwrap_or(0);
            self.hold(stage);
            if received == Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Receives a whole body, which stays on the stage.
    async fn staged_body(&mut self, len: usize) -> Result<Buffer, FrameError> {
        if !self.stage_up_to(len).await? {
            return Err(ended());
        }
        let body = self.stage.as_ref().map(|stage| stage.suffix(self.start).prefix(len));
        self.take_staged(|_| len);
        body.ok_or_else(ended)
    }

    /// Receives a body of `len` bytes, of which the inlet lends what is not staged.
    async fn lent(&mut self, len: usize) -> Result<Option<(Option<Buffer>, Buffers)>, FrameError> {
        let staged_len = self.end - self.start;
        let left = len.checked_sub(staged_len).filter(|left| *left > 0);
        let Some(left) = left else { return Ok(None) };
        let lent = turns::wait(&mut self.turn, self.inlet.lend(left)).await;
        let Some(lent) = lent else { return Ok(None) };
        let mut start = vec![0; staged_len];
        self.take_staged(|staged| {
            load(staged, &mut start);
            staged_len
        });
        debug_assert_eq!(lent.len(), left, "all of it is lent");
        Ok(Some(((staged_len > 0).then(|| start.into()), lent)))
    }

    /// Receives a part of a body: what is staged of it, then the rest in its place.
    async fn body(&mut self, body: Buffer, is_last: bool) -> Result<Buffer, FrameError> {
        let mut done = 0;
        self.take_staged(|staged| {
            body.copy_from(staged);
            done = staged.len().min(body.len());
            done
        });
        while done < body.len() {
            self.ready().await;
            // Nothing is staged: else it would be here.
            let stage = self.stages.take();
            let ahead = stage.prefix(if is_last { self.ahead_len() } else { 0 });
            let into = Buffers::new(vec![body.suffix(done), ahead]);
            let into = into.unwrap_or_else(|| body.suffix(done).into());
            let received = received(self.inlet.receive_now(&into))?;
            if received == Some(0) {
                return Err(ended());
            }
            let received = received.unwrap_or(0);
            let in_place = received.min(body.len() - done);
            done += in_place;
            (self.start, self.end) = (0, received - in_place);
            self.hold(stage);
        }
        Ok(body)
    }

    /// How much to receive ahead: when large bodies are expected, no byte that would be copied.
    fn ahead_len(&self) -> usize {
        let is_copied = self.expected_len <= COPIED_LEN_MAX || self.inlet.lends();
        match is_copied {
            true => STAGE_LEN,
            false => HEAD,
        }
    }

    /// Takes as much off the stage as `take` says.
    fn take_staged(&mut self, take: impl FnOnce(&[AtomicU8]) -> usize) {
        if let Some(stage) = self.stage.take() {
            self.start += take(stage.bytes().get(self.start..self.end).unwrap_or_default());
            self.hold(stage);
        }
    }

    /// Keeps the stage as long as something lies on it.
    fn hold(&mut self, stage: Buffer) {
        if self.start < self.end {
            self.stage = Some(stage);
        } else {
            (self.start, self.end) = (0, 0);
            self.stages.give_back(stage);
        }
    }
}

/// The stream ended within a frame.
fn ended() -> FrameError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

/// `None` when nothing has come.
fn received(result: io::Result<usize>) -> Result<Option<usize>, FrameError> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
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
