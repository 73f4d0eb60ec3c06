//! A network that can be made to stall and to break, between a client and a server on this machine.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Of what is sent at a time before the key is proven.
const GREETING_LEN_MAX: usize = 192;

/// Passes connections on to a port.
pub(crate) struct Proxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    is_stalled: Mutex<bool>,
    /// Something of what is passed on next is to be changed.
    damages: AtomicBool,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A server that is away: the connection is dropped.
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                shared.join(&stream, &far);
            }
        });
        Self { port, state }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Breaks every connection; what is on the way is lost.
    pub(crate) fn cut(&self) {
        for stream in self.state.streams.lock().expect("no panics").drain(..) {
            stream.shutdown(Shutdown::Both).ok(); // It may be broken already.
        }
    }

    /// Passes nothing on, and breaks nothing.
    pub(crate) fn stall(&self) {
        *self.state.is_stalled.lock().expect("no panics") = true;
    }

    /// Changes one bit of what is passed on next, but of no greeting.
    pub(crate) fn damage(&self) {
        self.state.damages.store(true, Ordering::Relaxed);
    }

    /// True if that is still to come.
    pub(crate) fn is_damaging(&self) -> bool {
        self.state.damages.load(Ordering::Relaxed)
    }

    pub(crate) fn go_on(&self) {
        *self.state.is_stalled.lock().expect("no panics") = false;
        self.state.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        self.go_on();
        self.cut();
        TcpStream::connect(("127.0.0.1", self.port)).ok(); // Wakes the listener.
    }
}

impl State {
    fn join(self: &Arc<Self>, near: &TcpStream, far: &TcpStream) {
        let clone = |stream: &TcpStream| stream.try_clone().expect("descriptor");
        self.streams.lock().expect("no panics").extend([clone(near), clone(far)]);
        for (from, to) in [(clone(near), clone(far)), (clone(far), clone(near))] {
            let state = Arc::clone(self);
            thread::spawn(move || state.pass(from, to));
        }
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 16 << 10];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let mut is_stalled = self.is_stalled.lock().expect("no panics");
            while *is_stalled {
                let waited = self.changed.wait_timeout(is_stalled, Duration::from_secs(1));
                is_stalled = waited.expect("no panics").0;
            }
            drop(is_stalled);
            if len > GREETING_LEN_MAX && self.damages.swap(false, Ordering::Relaxed) {
                bytes[len / 2] ^= 0x10;
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            stream.shutdown(Shutdown::Both).ok(); // The other direction may have done so.
        }
    }
}
