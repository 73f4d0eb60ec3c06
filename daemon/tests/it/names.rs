//! Calls on names, and opening by name.

use std::fs;

use rustix::fs::OFlags;
use wire::{FileFlags, Listed, NameKind, PathPair, Request};

use crate::{client::Client, support::Daemon};

const LANE: usize = 0;

/// Puts a path under the daemon's folder into the lane's buffer; returns its length.
fn path(daemon: &Daemon, client: &Client, name: &str) -> u32 {
    let path = daemon.folder().join(name);
    let bytes = path.as_os_str().as_encoded_bytes();
    client.put(LANE, bytes);
    u32::try_from(bytes.len()).expect("short")
}

fn pair(daemon: &Daemon, client: &Client, from: &str, to: &str) -> PathPair {
    let join = |name: &str| daemon.folder().join(name).into_os_string().into_encoded_bytes();
    let (from, to) = (join(from), join(to));
    let lens = [&from, &to].map(|bytes| u32::try_from(bytes.len()).expect("short"));
    client.put(LANE, &[from, to].concat());
    PathPair { from_len: lens[0], to_len: lens[1] }
}

#[test]
fn names_are_made_found_and_removed() {
    let daemon = Daemon::start();
    let mut client = Client::connect(daemon.folder());
    let len = path(&daemon, &client, "dir");
    assert_eq!(client.ask(Request::MakeDir { path_len: len, mode: 0o750 }), Ok(0));
    fs::write(daemon.folder().join("dir/a"), "12345").expect("a file");

    let paths = pair(&daemon, &client, "dir/a", "dir/b");
    assert_eq!(client.ask(Request::Rename { paths, flags: 0 }), Ok(0));
    let paths = pair(&daemon, &client, "dir/b", "dir/c");
    assert_eq!(client.ask(Request::Link { paths }), Ok(0));
    let len = path(&daemon, &client, "dir/b");
    assert_eq!(client.ask(Request::Truncate { file: 0, path_len: len, len: 3 }), Ok(0));

    let len = path(&daemon, &client, "dir/c");
    assert_eq!(client.ask(Request::Stat { path_len: len, follow: true }), Ok(0));
    let stat = client.buffer(LANE, 128);
    let word = |i: usize| u64::from_le_bytes(stat[8 * i..8 * i + 8].try_into().unwrap());
    assert_eq!((word(7), word(3), word(2) & 0o170_000), (3, 2, 0o100_000));

    let len = path(&daemon, &client, "dir");
    let used = client.ask(Request::ReadDir { path_len: len, from: 0 }).expect("a folder");
    let part = client.buffer(LANE, usize::try_from(used).unwrap());
    let (next, names) = part.split_first_chunk().expect("where to go on");
    let from = u64::from_le_bytes(*next);
    let of = |listed: Listed<'_>| (listed.kind, listed.name.to_vec());
    let mut names: Vec<_> = wire::names(names).map(of).collect();
    names.sort_unstable();
    let (folder, file) = (NameKind::Folder, NameKind::File);
    let expected = [(folder, "."), (folder, ".."), (file, "b"), (file, "c")];
    let mut expected = expected.map(|(kind, name)| (kind, name.as_bytes().to_vec()));
    expected.sort_unstable();
    assert_eq!(names, expected);
    path(&daemon, &client, "dir");
    assert_eq!(client.ask(Request::ReadDir { path_len: len, from }), Ok(0));

    for name in ["dir/b", "dir/c"] {
        let len = path(&daemon, &client, name);
        assert_eq!(client.ask(Request::Unlink { path_len: len }), Ok(0));
    }
    let len = path(&daemon, &client, "dir");
    assert_eq!(client.ask(Request::RemoveDir { path_len: len }), Ok(0));
    assert_eq!(client.ask(Request::Unlink { path_len: len }), Err(2));
    daemon.stop();
}

#[test]
fn symbolic_links_keep_their_text() {
    let daemon = Daemon::start();
    let mut client = Client::connect(daemon.folder());
    let name = daemon.folder().join("link").into_os_string().into_encoded_bytes();
    client.put(LANE, &[b"../else".as_slice(), &name].concat());
    let paths = PathPair { from_len: 7, to_len: u32::try_from(name.len()).expect("short") };
    assert_eq!(client.ask(Request::Symlink { paths }), Ok(0));
    let text = fs::read_link(daemon.folder().join("link")).expect("a link");
    assert_eq!(text.as_os_str(), "../else");
    daemon.stop();
}

#[test]
fn relative_paths_are_refused() {
    let daemon = Daemon::start();
    let mut client = Client::connect(daemon.folder());
    client.put(LANE, b"etc");
    assert_eq!(client.ask(Request::Unlink { path_len: 3 }), Err(22));
    assert_eq!(client.ask(Request::Unlink { path_len: 0 }), Err(2));
    client.put(LANE, b"/a\0b");
    assert_eq!(client.ask(Request::Unlink { path_len: 4 }), Err(22));
    daemon.stop();
}

#[test]
fn opened_file_takes_a_log_and_gives_its_descriptor() {
    let daemon = Daemon::start();
    let mut client = Client::connect(daemon.folder());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let len = path(&daemon, &client, "new");
    let open = Request::Open { file: 2, flags: flags.bits(), mode: 0o640, path_len: len, inode: 0 };
    let both = FileFlags::READABLE.with(FileFlags::WRITABLE);
    assert_eq!(client.ask(open), Ok(u64::from(both.0)));
    assert!(!client.job.shared().inodes.is_empty());

    client.slot(2).reset();
    assert_eq!(client.ask(Request::Attach { file: 2, arena_at: 4096, len: 4096 }), Ok(0));
    client.pretend_log(2, 4096, 4096);
    client.stage_all(2, 0, b"by name");
    assert_eq!(client.ask(Request::FileStat { file: 2 }), Ok(0));
    assert_eq!(client.buffer(LANE, 128)[56], 7, "what is staged counts");
    assert_eq!(client.ask(Request::Materialize { file: 2 }), Ok(0));
    let (_, fds) = crate::client::receive(&client.socket);
    assert_eq!(rustix::fs::fstat(&fds[0]).expect("open").st_size, 7);
    assert_eq!(client.ask(Request::Close { file: 2 }), Ok(0));
    assert!(client.job.shared().inodes.is_empty());
    assert_eq!(fs::read(daemon.folder().join("new")).expect("a file"), b"by name");
    let len = path(&daemon, &client, "new");
    let open = Request::Open { file: 2, flags: flags.bits(), mode: 0o640, path_len: len, inode: 0 };
    assert_eq!(client.ask(open), Err(17));
    daemon.stop();
}

#[test]
fn only_regular_files_are_opened() {
    let daemon = Daemon::start();
    let mut client = Client::connect(daemon.folder());
    let fifo = daemon.folder().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a fifo");
    let read = OFlags::RDONLY.bits();
    for (name, errno) in [("fifo", 95), ("", 95), ("missing", 2)] {
        let len = path(&daemon, &client, name);
        let open = Request::Open { file: 2, flags: read, mode: 0, path_len: len, inode: 0 };
        assert_eq!(client.ask(open), Err(errno), "{name}");
    }
    daemon.stop();
}
