//! The plain server: one thread that receives as much as has come, writes what goes to one place
//! by one call, and answers.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::{bail, ensure};
use uring::{SOCKET_LEN_MAX, set_window_min};

use super::{
    packet::{NUMBER_LEN, Run},
    server::Part,
};
use crate::{
    child::say,
    file::side::open,
    meter::{Meter, Sample},
};

const PAGE: usize = 4096;
/// Bytes that are read, and written, by one call at most, but for a longer packet.
const PIECE_LEN: usize = 1 << 20;

/// Serves the one client of a run.
pub(crate) fn serve(part: Part, path: &Path, run: &Run) -> anyhow::Result<Sample> {
    ensure!(run.clients == 1, "one client");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    say(format!("tcp://{}", listener.local_addr()?))?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    set_window_min(&stream, run.window_len())?;
    match part {
        Part::Network => receive_all(&mut stream, run),
        Part::Integrated => serve_packets(&mut stream, &open(path, true)?, run),
        Part::Request => bail!("not by this program"),
    }
}

/// Lets everything come at once, and looks at nothing.
fn receive_all(stream: &mut TcpStream, run: &Run) -> anyhow::Result<Sample> {
    stream.write_all(&run.count.to_le_bytes())?;
    let mut space = vec![0; SOCKET_LEN_MAX];
    let meter = Meter::new(run.count);
    let mut left = run.count * (NUMBER_LEN + run.size) as u64;
    while left > 0 {
        let len = stream.read(&mut space)? as u64;
        ensure!(len > 0, "the client is gone");
        meter.start();
        left -= len;
    }
    stream.write_all(&run.count.to_le_bytes())?;
    Ok(meter.sample())
}

fn serve_packets(stream: &mut TcpStream, file: &File, run: &Run) -> anyhow::Result<Sample> {
    stream.write_all(&u64::from(run.depth).to_le_bytes())?;
    let packet_len = NUMBER_LEN + run.size;
    let mut received = vec![0; PIECE_LEN + packet_len];
    let mut piece = Piece::new(run.size);
    let meter = Meter::new(run.count);
    let (mut len, mut served) = (0, 0);
    while served < run.count {
        let more = stream.read(received.get_mut(len..).unwrap_or_default())?;
        ensure!(more > 0, "the client is gone");
        meter.start();
        len += more;
        let mut packets = received.get(..len).unwrap_or_default().chunks_exact(packet_len);
        let mut credits = 0_u64;
        for packet in &mut packets {
            let (offset, data) = packet.split_at(NUMBER_LEN);
            piece.add(data, u64::from_le_bytes(offset.try_into()?), file)?;
            credits += 1;
        }
        let rest = packets.remainder().len();
        received.copy_within(len - rest..len, 0);
        len = rest;
        if credits > 0 {
            piece.write(file)?;
            stream.write_all(&credits.to_le_bytes())?;
            served += credits;
            meter.served(served);
        }
    }
    Ok(meter.sample())
}

/// Data that goes to one place of the file, aligned for it.
struct Piece {
    space: Vec<u8>,
    start: usize,
    len: usize,
    offset: u64,
}

impl Piece {
    /// One with room for packets of `size`.
    fn new(size: usize) -> Self {
        let space = vec![0; PIECE_LEN.max(size) + PAGE];
        let start = space.as_ptr().align_offset(PAGE);
        Self { space, start, len: 0, offset: 0 }
    }

    /// Adds what goes to `offset`; writes first what it does not follow, or fit behind.
    fn add(&mut self, data: &[u8], offset: u64, file: &File) -> io::Result<()> {
        let is_next = self.offset + self.len as u64 == offset;
        if !is_next || self.start + self.len + data.len() > self.space.len() {
            self.write(file)?;
            self.offset = offset;
        }
        let at = self.start + self.len;
        let room = self.space.get_mut(at..at + data.len()).unwrap_or_default();
        room.copy_from_slice(data);
        self.len += data.len();
        Ok(())
    }

    fn write(&mut self, file: &File) -> io::Result<()> {
        let data = self.space.get(self.start..self.start + self.len).unwrap_or_default();
        file.write_all_at(data, self.offset)?;
        self.offset += self.len as u64;
        self.len = 0;
        Ok(())
    }
}
