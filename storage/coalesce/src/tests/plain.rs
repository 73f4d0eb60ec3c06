//! Files beside the multifiles.

use rustix::fs::Mode;

use super::*;

#[test]
fn what_a_file_of_a_network_is_like_is_asked_on_a_thread() {
    let events = Events::new().expect("epoll");
    let park = Box::new(events.parker());
    let mut executor = Executor::new(Rc::new(SystemClock), park, Config::default());
    let engines = Engines::new(&executor.handle(), Choice::Auto, 1, &events);
    let files =
        Coalesced { machine: Machine::new(engines.clone()), volumes: Rc::new([]), intake: None };
    // As with a network's, nobody knows how long it takes to say what it is like.
    let file = rustix::fs::open("/proc/version", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let file = Open::Plain(uring::File::new(file.expect("there")).expect("a file"));

    let status = executor.run_until(async move { files.status(&file).await });

    assert_eq!(status.expect("known").mode & 0o170_000, 0o100_000);
    assert_eq!(engines.counters().threads, 1);
}
