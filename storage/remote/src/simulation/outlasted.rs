//! State that outlasts a server, its connections, and its machine, and state that does not.

use storage::names::{Answer, Attributes, FileCall};

use super::*;
use crate::{line::REQUESTS, server::ledger::Shelf as _, server::service::KEEP};

type Connected = Rc<Client<SimNetwork<SimDisk>>>;
type Opened = Rc<RemoteFile<SimNetwork<SimDisk>>>;

impl World {
    fn connect(&self) -> Connected {
        self.connect_for(TIME_MAX)
    }

    /// A client that waits so long for a server that is silent.
    fn connect_for(&self, timeout: Duration) -> Connected {
        let (network, key) = (self.network.clone(), self.key.clone());
        let client = Client::new(self.handle.clone(), network, key, timeout).expect("client");
        self.handle.spawn(Class::Latency, Rc::clone(&client).run());
        client
    }

    /// Has a request of a client executed; the value of the answer.
    fn ask(
        &mut self,
        service: &Rc<Service<SimDisk>>,
        client: u8,
        (id, request): (u64, Request),
        payload: &[u8],
    ) -> Result<u64, Errno> {
        let entered = self.executor.run_until(service.enter([client; SESSION_LEN]));
        let session = Rc::clone(&entered.expect("room").0.session);
        let (data, payload) = (buffers(payload), Rc::from(payload));
        let told = Rc::new(Cell::new(None));
        let received = Received { id, record: None, request, payload, data };
        let tells = Rc::clone(&told);
        service.start(&session, received, move |_, answer| tells.set(Some(answer)));
        (0..200).for_each(|_| self.turn());
        told.take().expect("answered").map(|answer| answer.value)
    }

    /// A new file that is open.
    fn make_file(&mut self, client: &Connected, process: Option<u16>) -> Opened {
        let (client, flags) = (Rc::clone(client), (OFlags::CREATE | OFlags::RDWR).bits());
        let call = OpenCall { path: path("/file"), flags, mode: 0o600, inode: 0 };
        let opened = async move { RemoteFile::open(&client, process, call).await };
        self.outcome_of(opened).expect("opened").0
    }

    fn pass(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.clock.0.advance(Duration::from_millis(10));
            (0..4).for_each(|_| self.turn());
        }
    }
}

/// Its kernel had what was not synced, and an `fsync` would not know.
#[test]
fn server_whose_machine_was_booted_is_not_the_one_that_was_written_to() {
    const EARLIER: Boot = Boot([1; BOOT_LEN]);
    const LATER: Boot = Boot([2; BOOT_LEN]);
    for (change, boot, goes_on) in [
        ("write", EARLIER, true),
        ("write", LATER, false),
        ("fallocate", LATER, false),
        ("fchmod", LATER, false),
        ("none", LATER, true),
    ] {
        let mut world = World::new(7);
        world.start_server_in(EARLIER);
        let client = world.connect();
        let file = world.make_file(&client, None);
        let changed = Rc::clone(&file);
        let changed = async move {
            let call = match change {
                "write" => return changed.write(0, &buffers(b"data")).await.map(drop),
                "fallocate" => FileCall::Allocate { mode: 0, at: 0, len: 4 },
                "fchmod" => FileCall::Set(Attributes::Mode(0o400)),
                _ => return Ok(()),
            };
            changed.on(call).await.map(drop)
        };
        world.outcome_of(changed).expect("changed");
        world.kill_server();
        world.start_server_in(boot);
        let synced =
            world.outcome_of(async move { file.on(FileCall::Sync { data_only: false }).await });
        assert_eq!(synced.is_ok(), goes_on, "{boot:?}, changed by: {change}");
    }
}

/// The job would write there what nobody finds, and remove what is another's.
#[test]
fn server_of_another_root_is_not_the_one_that_a_job_began_with() {
    for (root, goes_on) in [([1; ROOT_LEN], true), ([2; ROOT_LEN], false)] {
        let mut world = World::new(7);
        world.disk.root.set([1; ROOT_LEN]);
        world.start_server();
        let client = world.connect();
        world.make_file(&client, None);
        world.kill_server();
        world.disk.root.set(root);
        world.start_server();
        let call = NameCall::Unlink { path: path("/file") };
        let (request, payload) = call.encode().expect("short");
        let asked = Rc::clone(&client);
        let removed = async move { asked.call(request, payload, true).await };
        let removed = world.outcome_of(removed);
        assert_eq!(removed.is_ok(), goes_on, "{root:?}");
        assert_eq!(world.disk.exists("/file"), !goes_on, "{root:?}");
    }
}

/// As of a disk that hangs: what the earlier connection has asked for is still under way.
#[test]
fn server_that_is_busy_is_waited_for_as_long_as_it_lives() {
    let timeout = Duration::from_secs(30);
    for dies in [false, true] {
        let mut world = World::new(7);
        world.start_server();
        let client = world.connect_for(timeout);
        let file = world.make_file(&client, None);
        let server = world.network.server().expect("started");
        let session = server.service.sessions.borrow().values().next().map(Rc::clone);
        let session = session.expect("of the client");
        session.busy.set(1);
        world.network.cut();
        let (written, told) = (Rc::new(Cell::new(None)), Rc::clone(&file));
        let tells = Rc::clone(&written);
        world.handle.spawn(Class::Latency, async move {
            tells.set(Some(told.write(0, &buffers(b"data")).await.is_ok()));
        });
        world.pass(3 * timeout);
        assert_eq!(written.get(), None);
        if dies {
            world.kill_server();
            world.pass(2 * timeout);
        } else {
            session.busy.set(0);
            session.changed.notify_all();
            world.pass(timeout / 10);
        }
        assert_eq!(written.get(), Some(!dies));
    }
}

/// Each of them takes longer than the client waits for a server that is silent.
#[test]
fn files_that_are_slow_to_be_opened_again_are_waited_for() {
    let timeout = Duration::from_secs(10);
    let mut world = World::new(7);
    world.start_server();
    let client = world.connect_for(timeout);
    let file = world.make_file(&client, None);
    world.kill_server();
    world.disk.delay.set(timeout);
    world.start_server();
    let written = Rc::new(Cell::new(None));
    let told = Rc::clone(&written);
    world.handle.spawn(Class::Latency, async move {
        told.set(Some(file.write(0, &buffers(b"data")).await.is_ok()));
    });
    world.pass(10 * timeout);
    assert_eq!(written.get(), Some(true));
}

/// As of a server that was started anew with fewer descriptors.
#[test]
fn a_server_that_is_short_of_something_is_waited_for_as_long_as_one_that_is_silent() {
    let timeout = Duration::from_secs(10);
    for (short_for, is_had) in [(timeout / 2, true), (2 * timeout, false)] {
        let mut world = World::new(7);
        world.start_server();
        let client = world.connect_for(timeout);
        let file = world.make_file(&client, None);
        world.kill_server();
        world.disk.is_short.set(true);
        world.start_server();
        world.pass(short_for);
        world.disk.is_short.set(false);
        let written = world.outcome_of(async move { file.write(0, &buffers(b"data")).await });
        assert_eq!(written.is_ok(), is_had, "{short_for:?}");
        world.make_file(&client, None);
    }
}

#[test]
fn another_file_that_has_got_the_number_of_an_open_one_is_not_written_to() {
    let mut world = World::new(7);
    world.start_server();
    let client = world.connect();
    let file = world.make_file(&client, None);
    world.kill_server();
    world.disk.replace("/file");
    world.start_server();
    let written = world.outcome_of(async move { file.write(0, &buffers(b"data")).await });
    let why = written.expect_err("it is gone");
    assert_eq!(why.raw_os_error(), Some(Errno::STALE.raw_os_error()));
    assert_eq!(world.disk.content("/file").expect("there"), b"");
}

/// While a request of its hangs: the others would use up what all clients have.
#[test]
fn of_a_client_that_comes_again_and_again_one_connection_waits() {
    let mut world = World::new(7);
    let service = world.service();
    let entered = world.executor.run_until(service.enter([1; SESSION_LEN]));
    let session = Rc::clone(&entered.expect("room").0.session);
    session.busy.set(1);
    let outcomes = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..3 {
        let (service, outcomes) = (Rc::clone(&service), Rc::clone(&outcomes));
        world.handle.spawn(Class::Latency, async move {
            let entered = service.enter([1; SESSION_LEN]).await.map(drop);
            outcomes.borrow_mut().push(entered.map_err(|error| error.kind()));
        });
    }
    (0..10).for_each(|_| world.turn());
    assert_eq!(*outcomes.borrow(), [Err(std::io::ErrorKind::ConnectionAborted); 2]);
    session.busy.set(0);
    session.changed.notify_all();
    (0..10).for_each(|_| world.turn());
    assert_eq!(outcomes.borrow().last(), Some(&Ok(())));
}

#[test]
fn records_of_a_session_that_lives_for_days_stay_and_those_of_the_dead_go() {
    let mut world = World::new(7);
    let service = world.service();
    world.handle.spawn(Class::Latency, Rc::clone(&service).tidy());
    let visit = world.executor.run_until(service.enter([1; SESSION_LEN])).expect("room");
    for _ in 0..24 * 60 {
        world.clock.0.advance(KEEP);
        (0..3).for_each(|_| world.turn());
    }
    assert!(world.disk.renewals.get() >= 20, "{} times", world.disk.renewals.get());
    assert_eq!(world.disk.removals.get(), world.disk.renewals.get());
    drop(visit);
}

/// It has happened: whoever is told that it failed does it again.
#[test]
fn what_has_happened_is_told_though_its_record_cannot_be_written() {
    let mut world = World::new(7);
    let service = world.service();
    let entered = world.executor.run_until(service.enter([1; SESSION_LEN]));
    let session = Rc::clone(&entered.expect("room").0.session);
    world.disk.is_broken.set(true);
    let answers = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..2 {
        let path = b"/folder";
        let request = Request::MakeDir { path_len: 7, mode: 0o700 };
        let (payload, data) = (Rc::from(&path[..]), Heap::buffer(0));
        // As one that is sent again because its answer was lost.
        let received = Received { id: 5, record: Some(0), request, payload, data: data.into() };
        let told = Rc::clone(&answers);
        service.start(&session, received, move |_, answer| told.borrow_mut().push(answer));
        (0..50).for_each(|_| world.turn());
    }
    assert_eq!(*answers.borrow(), [Ok(Answer::default()), Ok(Answer::default())]);
    assert!(world.disk.exists("/folder"));
}

/// Somebody has found what was written, and written something else there, before it is sent again.
#[test]
fn what_was_written_over_stays_when_a_write_is_sent_again() {
    let mut world = World::new(7);
    let service = world.service();
    let mut ask =
        |client, id, request, payload: &[u8]| world.ask(&service, client, (id, request), payload);
    let flags = (OFlags::CREATE | OFlags::RDWR).bits();
    let open = Request::Open { file: 1, flags, mode: 0o600, path_len: 2, inode: 0 };
    let write = Request::Write { file: 1, at: 0, len: 4, arena_at: 0 };
    for client in [1, 2] {
        ask(client, 1, open, b"/x").expect("opened");
    }
    let written = ask(1, 2, write, b"mine");
    let more = 2 + u64::from(REQUESTS);
    for id in 3..more {
        ask(1, id, Request::Sync { file: 1 }, b"").expect("synced");
    }
    ask(2, 2, write, b"hers").expect("written");
    for _ in 0..2 {
        assert_eq!(ask(1, 2, write, b"mine"), written);
        ask(1, more, Request::Sync { file: 1 }, b"").expect("synced");
    }
    assert_eq!(world.disk.content("/x").expect("there"), b"hers");
}

/// As network file systems do, which write when a file is closed.
#[test]
fn what_a_file_system_tells_at_a_close_the_program_is_told() {
    let mut world = World::new(7);
    world.start_server();
    let client = world.connect();
    for (is_written, told) in [(true, Some(Errno::NOSPC)), (false, None)] {
        let (client, disk) = (Rc::clone(&client), Rc::clone(&world.disk));
        let flags = (OFlags::CREATE | OFlags::RDWR).bits();
        let call = OpenCall { path: path("/file"), flags, mode: 0o600, inode: 0 };
        let closed = world.outcome_of(async move {
            let (file, _) = RemoteFile::open(&client, None, call).await?;
            if is_written {
                file.write(0, &buffers(b"data")).await?;
            }
            disk.is_full.set(true);
            RemoteFile::close(file).await
        });
        let closed = closed.err().and_then(|error| error.raw_os_error());
        assert_eq!(closed.map(Errno::from_raw_os_error), told, "written: {is_written}");
    }
}

#[test]
fn clients_have_equal_parts_of_the_descriptors_and_one_is_left_for_who_comes_next() {
    let mut world = World::new(7);
    let service = world.service_of(2 * 8);
    let flags = (OFlags::CREATE | OFlags::RDWR).bits();
    let open = |file| Request::Open { file, flags, mode: 0o600, path_len: 2, inode: 0 };
    for (client, part) in [(1, 4), (2, 2), (3, 1), (4, 1)] {
        world.ask(&service, client, (1, Request::Reclaimed), b"").expect("it has all");
        for file in 0..part {
            world.ask(&service, client, (1, open(file)), b"/x").expect("its part");
        }
        let more = world.ask(&service, client, (1, open(part)), b"/x");
        assert_eq!(more, Err(if client < 4 { Errno::MFILE } else { Errno::NFILE }), "{client}");
    }
    assert_eq!(world.ask(&service, 5, (1, open(1)), b"/x"), Err(Errno::NFILE));
    world.ask(&service, 1, (1, Request::Close { file: 1 }), b"").expect("closed");
    assert_eq!(world.ask(&service, 1, (2, open(1)), b"/x"), Err(Errno::MFILE));
    let mut lock = LockCall::unlock_all(LockOwner::Process, 1);
    lock.terms.kind = LockKind::Exclusive;
    let LockCall { terms, start, len } = lock;
    let lock = Request::Lock { file: 0, terms: terms.encode(), start, len };
    assert_eq!(world.ask(&service, 2, (3, lock), b""), Err(Errno::NOLCK));
    world.ask(&service, 5, (2, open(1)), b"/x").expect("one is left");

    // They come in another order to the next server.
    let service = world.service_of(2 * 8);
    for (client, part) in [(3, 1), (2, 2), (4, 1), (1, 4)] {
        for file in 0..part {
            world.ask(&service, client, (0, open(file)), b"/x").expect("it had that");
        }
        world.ask(&service, client, (0, Request::Reclaimed), b"").expect("it has all");
    }
}

/// As of a job that was cancelled, when servers die one after the other.
#[test]
fn locks_of_a_session_that_is_gone_for_good_are_waited_for_once() {
    let mut world = World::new(7);
    let (disk, handle) = (Rc::clone(&world.disk), world.handle.clone());
    let shelf = SimShelf { life: disk.begin_life(), disk, handle };
    shelf.open(&[9; SESSION_LEN]).and_then(|gone| gone.note_locks()).expect("it lives");
    world.kill_server();
    world.start_server();
    let client = world.connect();
    let file = world.make_file(&client, Some(1));
    let mut call = LockCall::unlock_all(LockOwner::Whole, 1);
    call.terms.kind = LockKind::Exclusive;
    let end = world.clock.now() + Duration::from_secs(40);
    loop {
        let asked = Rc::clone(&file);
        if world.outcome_of(async move { asked.lock(call).await }).is_ok() {
            return;
        }
        assert!(world.clock.now() < end, "no lock is given any more");
        world.clock.0.advance(Duration::from_secs(3));
        world.kill_server();
        world.start_server();
    }
}
