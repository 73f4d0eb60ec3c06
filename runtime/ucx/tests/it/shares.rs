//! Fairness: connections get equal shares of an executor, whatever carries them.
//!
//! Everything happens in this process and on one thread: what one kind is asked for next is asked
//! for as soon as it was served, so how busy the machine is changes nothing but the time this
//! takes.

use std::{
    cell::{Cell, RefCell},
    fs,
    io::{self, Write as _},
    net::TcpListener,
    rc::Rc,
    time::Duration,
};

use executor::{Armed, Class, Executor, Handle, Source, yield_now};
use shm::lane::{Lane, Requester, Responder, SLOTS};
use ucx::{Endpoint, Error, NoPayload, Worker};
use uring::{Address, Choice, Engines, Events, File, Heap, Sockets, SystemClock};

use crate::support::{DEADLINE, Transport};

/// Requests of every kind that are under way, so many that what a kind needs beyond its turns, such
/// as a way through a device, is small against the wait for them.
const UNDER_WAY: usize = 192;
/// A timer's time: over when its next turn would be, and not before it is first looked at.
const TIMER: Duration = Duration::from_micros(20);
/// Requests of the first kind that has them are served before anything is counted, and then as many
/// again ten times.
const WARM_UP: u64 = 2_000;

/// How many requests of a kind were served.
type Served = Rc<Cell<u64>>;

#[test]
fn lanes_files_sockets_messages_and_timers_get_equal_shares_of_an_executor() {
    let events = Events::new().expect("epoll");
    let (clock, parker) = (Rc::new(SystemClock), Box::new(events.parker()));
    let mut executor = Executor::new(clock, parker, executor::Config::default());
    let handle = executor.handle();
    let mut kinds = vec![("lanes", ask_lanes(&handle)), ("timers", ask_timers(&handle))];

    let engines = Engines::new(&handle, Choice::Uring, 2, &events);
    let files = ask_files(&handle, &engines);
    if engines.describe().starts_with("io_uring") {
        kinds.push(("files", files));
    } else {
        skipped("io_uring: how much threads serve is the kernel's affair");
    }
    let sockets = Sockets::new(&handle, &events, &engines).expect("epoll");
    kinds.push(("sockets", executor.run_until(ask_sockets(&handle, &sockets))));
    match ask_workers(&handle, &events) {
        Ok(messages) => kinds.push(("messages", messages)),
        Err(error @ Error::Missing { .. }) => skipped(&format!("ucx: {error}")),
        Err(error) => panic!("{error}"),
    }

    let served = || kinds.iter().map(|(_, served)| served.get()).collect::<Vec<_>>();
    let until = |executor: &mut Executor, count: u64| {
        let begin = served();
        while served().iter().zip(&begin).all(|(now, then)| now - then < count) {
            assert!(executor.turn(), "something is always ready");
        }
        served().iter().zip(&begin).map(|(now, then)| now - then).collect::<Vec<_>>()
    };
    until(&mut executor, WARM_UP);
    let counts = until(&mut executor, 10 * WARM_UP);

    let (most, least) = (counts.iter().max(), counts.iter().min());
    let (most, least) = (most.expect("four"), least.expect("four"));
    let names: Vec<_> = kinds.iter().map(|(name, _)| *name).zip(&counts).collect();
    assert!(most * 4 <= least * 5, "{names:?}");
}

/// Says past the capture of a test's output what was not tested.
fn skipped(why: &str) {
    io::stderr().write_all(format!("1 SKIPPED: {why}\n").as_bytes()).expect("standard error");
}

fn serve(served: &Served) {
    served.set(served.get() + 1);
}

/// Clients that publish the next entry when one is answered.
fn ask_lanes(handle: &Handle) -> Served {
    let lanes = (0..UNDER_WAY / SLOTS).map(|_| Rc::new(RefCell::new(Asked::new()))).collect();
    let served = Served::default();
    handle.add_source(Box::new(Lanes { handle: handle.clone(), lanes, served: served.clone() }));
    served
}

/// A lane with both of its sides.
struct Asked {
    lane: Box<Lane>,
    requester: Requester,
    responder: Responder,
}

impl Asked {
    fn new() -> Self {
        let (requester, responder) = (Requester::new(), Responder::default());
        let mut asked = Self { lane: Box::default(), requester, responder };
        while asked.requester.publish(&asked.lane, &[0; 8]).is_some() {}
        asked
    }

    fn answer(&mut self, seq: u32) {
        self.responder.complete(&self.lane, seq, 1, 0);
        self.requester.take(&self.lane, seq);
        // The slot that comes next may still await its answer.
        while self.requester.publish(&self.lane, &[0; 8]).is_some() {}
    }
}

struct Lanes {
    handle: Handle,
    lanes: Vec<Rc<RefCell<Asked>>>,
    served: Served,
}

impl Source for Lanes {
    fn poll(&mut self, budget: usize) -> usize {
        let mut events = 0;
        for asked in &self.lanes {
            let share = budget.div_ceil(self.lanes.len());
            for _ in 0..share {
                let Asked { lane, responder, .. } = &mut *asked.borrow_mut();
                let Some((seq, _)) = responder.next(lane).expect("no slot is used twice") else {
                    break;
                };
                let (asked, served) = (Rc::clone(asked), self.served.clone());
                self.handle.spawn(Class::Latency, async move {
                    serve(&served);
                    asked.borrow_mut().answer(seq);
                });
                events += 1;
            }
        }
        events
    }

    fn arm(&mut self) -> Armed {
        Armed::Busy
    }
}

fn ask_timers(handle: &Handle) -> Served {
    let served = Served::default();
    for _ in 0..UNDER_WAY {
        let (timers, served) = (handle.clone(), served.clone());
        handle.spawn(Class::Latency, async move {
            loop {
                timers.sleep(TIMER).await;
                serve(&served);
            }
        });
    }
    served
}

/// Reads of what the page cache has.
fn ask_files(handle: &Handle, engines: &Engines) -> Served {
    let path = tempfile::NamedTempFile::new().expect("a file");
    fs::write(&path, [1; 4096]).expect("written");
    let file = File::new(fs::File::open(&path).expect("opened").into()).expect("a file");
    let served = Served::default();
    for _ in 0..UNDER_WAY {
        let (engines, file, served) = (engines.clone(), file.clone(), served.clone());
        handle.spawn(Class::Latency, async move {
            let buffer = Heap::buffer(64);
            loop {
                let read = engines.read(&file, 0, buffer.clone().into()).await;
                assert_eq!(read.expect("read"), 64);
                serve(&served);
            }
        });
    }
    served
}

/// Connections whose peer sends the next byte when one was received.
async fn ask_sockets(handle: &Handle, sockets: &Sockets) -> Served {
    let served = Served::default();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = Address::from(listener.local_addr().expect("bound"));
    for _ in 0..UNDER_WAY {
        let mut stream = sockets.connect(&address, DEADLINE).await.expect("connected");
        let (mut peer, _) = listener.accept().expect("accepted");
        peer.set_nodelay(true).expect("set");
        peer.write_all(&[1]).expect("sent");
        let served = served.clone();
        handle.spawn(Class::Latency, async move {
            let buffer = Heap::buffer(1).into();
            loop {
                assert_eq!(stream.receive(&buffer).await.expect("received"), 1);
                serve(&served);
                peer.write_all(&[1]).expect("sent");
                // What this brings is not asked for in the same turn.
                yield_now().await;
            }
        });
    }
    served
}

/// Two workers, one of which sends the next message when the other has received one.
fn ask_workers(handle: &Handle, events: &Events) -> Result<Served, Error> {
    let config = ucx::Config {
        buffer_count: 2 * u32::try_from(UNDER_WAY).expect("few"),
        buffer_len: 64,
        send_max: u32::try_from(UNDER_WAY).expect("few"),
        ..Transport::Tcp.config()
    };
    let [from, to] = [Worker::new(handle, &config)?, Worker::new(handle, &config)?];
    for worker in [&from, &to] {
        events.add_fd(worker, 0).expect("epoll");
    }
    let receiver = to.connect_worker(&from.address()?)?;
    let sender: Rc<Endpoint> = Rc::new(from.connect_worker(&to.address()?)?);
    let served = Served::default();
    for _ in 0..UNDER_WAY {
        let sender = Rc::clone(&sender);
        handle.spawn(Class::Latency, async move {
            sender.send(b"ping", NoPayload).await.expect("sent");
        });
    }
    let count = served.clone();
    handle.spawn(Class::Latency, async move {
        loop {
            receiver.receive().await.expect("received");
            serve(&count);
            sender.send(b"ping", NoPayload).await.expect("sent");
        }
    });
    Ok(served)
}
