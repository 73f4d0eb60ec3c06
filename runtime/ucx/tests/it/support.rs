//! A core with a worker, other processes to talk to, and waiting with a deadline.
//!
//! The other processes are this test program again, in the role that [`child`](crate::child)
//! plays. Both sides are joined by a Unix socket, over which addresses are exchanged.

use std::{
    env,
    future::Future,
    io::{self, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    pin::{Pin, pin},
    process::{Child, Command, Stdio},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use executor::{Class, Executor, Handle, Idle, Sleep, Source};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use ucx::{Address, Config, Endpoint, Error, Held, Settings, Worker};
use uring::{Events, SystemClock};

/// The longest any test waits for one thing.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Length of the default receive buffers.
pub(crate) const LARGE: usize = 1 << 20;

/// Resources of a worker of the default configuration without connections.
pub(crate) const IDLE: Held =
    Held { operations: 0, free_buffers: 64, lent: 0, put_off: 0, endpoints: 0 };

/// How two processes of a node may be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    SharedMemory,
}

pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::SharedMemory];

impl Transport {
    pub(crate) fn config(self) -> Config {
        let transports = match self {
            Self::Tcp => "tcp",
            // UCX takes shared memory where it has both.
            Self::SharedMemory => "tcp,posix,sysv,cma",
        };
        let settings = Settings::default().set("TLS", transports).set("NET_DEVICES", "lo");
        Config { settings, ..Config::default() }
    }
}

/// One executor with a worker, which it parks for.
pub(crate) struct Core {
    pub(crate) executor: Executor,
    pub(crate) worker: Worker,
}

impl Core {
    /// `None`, said past the capture of a test's output, where libucp is absent.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        Self::resting(config, Idle::default())
    }

    fn resting(config: &Config, idle: Idle) -> Option<Self> {
        let events = Events::new().expect("epoll");
        let (clock, parker) = (Rc::new(SystemClock), Box::new(events.parker()));
        let bounds = executor::Config { idle, ..executor::Config::default() };
        let executor = Executor::new(clock, parker, bounds);
        let worker = match Worker::new(&executor.handle(), config) {
            Ok(worker) => worker,
            Err(error @ Error::Missing { .. }) => {
                let line = format!("1 SKIPPED: ucx: {error}\n");
                io::stderr().write_all(line.as_bytes()).expect("standard error");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        events.add_fd(&worker, 0).expect("epoll");
        executor.handle().add_source(Box::new(Woken(events)));
        Some(Self { executor, worker })
    }

    /// One that never parks.
    pub(crate) fn spinning(config: &Config) -> Option<Self> {
        Self::resting(config, Idle::Spin)
    }

    /// Runs `future`, which must be ready before the deadline.
    pub(crate) fn run<T>(&mut self, future: impl Future<Output = T>) -> T {
        let handle = self.executor.handle();
        self.executor.run_until(deadline(&handle, future))
    }

    /// Goes on until `condition` holds, which must be before the deadline.
    pub(crate) fn turn_until(&mut self, mut condition: impl FnMut(&Worker) -> bool) {
        let (handle, worker) = (self.executor.handle(), self.worker.clone());
        self.run(async {
            while !condition(&worker) {
                handle.sleep(Duration::from_millis(1)).await;
            }
        });
    }

    /// Goes on for a while, so that what can go wrong does.
    pub(crate) fn turn_for(&mut self, time: Duration) {
        let handle = self.executor.handle();
        self.run(handle.sleep(time));
    }

    /// Starts a task and waits for nothing.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.executor.handle().spawn(Class::Latency, future);
    }

    /// Starts another process in `role` and connects to it.
    pub(crate) fn meet(&self, transport: Transport, role: &str) -> (Peer, Endpoint) {
        let mut peer = Peer::start(transport, role);
        let endpoint = self.connect_worker(&receive_blob(&mut peer.stream));
        self.send_address(&mut peer.stream);
        (peer, endpoint)
    }

    /// Connects to the process that has started this one, and is ready before this one sends.
    pub(crate) fn meet_parent(&self, stream: &mut UnixStream) -> Endpoint {
        self.send_address(stream);
        self.connect_worker(&receive_blob(stream))
    }

    fn send_address(&self, stream: &mut UnixStream) {
        send_blob(stream, self.worker.address().expect("memory").as_bytes());
    }

    fn connect_worker(&self, address: &[u8]) -> Endpoint {
        let address = Address::from_bytes(address).expect("whole");
        self.worker.connect_worker(&address).expect("reachable")
    }
}

/// Another process, killed when dropped.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    process: Child,
    _dir: tempfile::TempDir,
}

/// Variables that tell a child process what to do.
pub(crate) const ROLE: &str = "TEST_ROLE";
pub(crate) const SOCKET: &str = "TEST_SOCKET";

impl Peer {
    pub(crate) fn start(transport: Transport, role: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).expect("socket");
        let process = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "child::plays_its_role", "--ignored", "--nocapture", "-q"])
            .env(ROLE, format!("{role} {transport:?}"))
            .env(SOCKET, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let (stream, _) = listener.accept().expect("the child connects");
        stream.set_read_timeout(Some(DEADLINE)).expect("socket");
        Self { stream, process, _dir: dir }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops the process, which neither reads nor writes from then on.
    pub(crate) fn stop(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("is a child");
        // It goes on until it is next scheduled, and then stops.
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("is a child");
    }

    /// Lets a stopped process go on.
    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.process), Signal::CONT).expect("is a child");
    }

    /// Kills the process. Reaps it as well: UCX takes one that is only dead for alive.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("is a child");
        self.process.wait().expect("is a child");
    }

    /// Waits until the process has ended by itself, and well, with nothing for UCX to complain of:
    /// when a worker is destroyed, it prints what was not given back.
    pub(crate) fn finish(mut self) {
        // The child closes its end of the stream when it ends.
        let read = self.stream.read(&mut [0]).expect("the child ends before the deadline");
        assert_eq!(read, 0);
        let (mut text, output) = (String::new(), self.process.stdout.take());
        output.expect("piped").read_to_string(&mut text).expect("text");
        assert!(!text.contains("UCX"), "{text}");
        assert!(self.process.wait().expect("is a child").success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn send_blob(stream: &mut UnixStream, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("short");
    stream.write_all(&len.to_le_bytes()).expect("the other side reads");
    stream.write_all(bytes).expect("the other side reads");
}

fn receive_blob(stream: &mut UnixStream) -> Vec<u8> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).expect("the other side writes");
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes).expect("the other side writes");
    bytes
}

/// Takes what parks end for out of the events; the worker looks for itself.
struct Woken(Events);

impl Source for Woken {
    fn poll(&mut self, _: usize) -> usize {
        while self.0.pop().is_some() {}
        0
    }

    fn arm(&mut self) -> executor::Armed {
        executor::Armed::Waits
    }
}

pub(crate) async fn deadline<T>(handle: &Handle, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut sleep: Pin<&mut Sleep> = pin!(handle.sleep(DEADLINE));
    std::future::poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(value);
        }
        assert!(sleep.as_mut().poll(context).is_pending(), "not ready before the deadline");
        Poll::Pending
    })
    .await
}
