//! Which root a server serves.
//!
//! A client that comes back goes on where it was. In another root it would write what nobody finds,
//! and remove what is another's. So a root has a name, by which a client knows it again. It is the
//! text of a link in the server's own folder: one is made with its text or not at all, by one of
//! several servers, and needs no room on a full disk.

use std::{io, path::Path};

use rustix::{
    fd::BorrowedFd,
    fs::{readlinkat, symlinkat},
    io::Errno,
};
use storage::scope::OWN_FOLDER;
use wire::ROOT_LEN;

use crate::line::key::{from_hex, random};

/// In the server's own folder.
const LINK: &str = "root";
/// Of every root whose file system has no links.
const NAMELESS: [u8; ROOT_LEN] = [0; ROOT_LEN];

/// The name of a root that has the server's own folder, given to it if it has none.
///
/// # Errors
///
/// Why it can have none; `InvalidData`: what is there is none.
pub(super) fn name_of(root: BorrowedFd<'_>) -> io::Result<[u8; ROOT_LEN]> {
    let (fresh, link) = (random()?, Path::new(OWN_FOLDER).join(LINK));
    match symlinkat(hex::encode(fresh), root, &link) {
        Ok(()) => return Ok(fresh),
        Err(Errno::EXIST) => {}
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(NAMELESS),
        Err(why) => return Err(why.into()),
    }
    let found = readlinkat(root, &link, Vec::new());
    let name = found.ok().and_then(|text| from_hex(text.to_str().ok()?));
    name.ok_or_else(|| {
        let why = format!("{OWN_FOLDER}/{LINK} in it, which has its name, has none; remove it");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _, thread};

    use super::*;

    #[test]
    fn servers_of_one_root_call_it_the_same_and_no_other_root_is_called_so() {
        let roots = [(); 2].map(|()| tempfile::tempdir().expect("folder"));
        let names = roots.each_ref().map(|root| {
            fs::create_dir(root.path().join(OWN_FOLDER)).expect("folder");
            let open = || fs::File::open(root.path()).expect("folder");
            let servers = [(); 8].map(|()| {
                let root = open();
                thread::spawn(move || name_of(root.as_fd()).expect("named"))
            });
            let [first, others @ ..] = servers.map(|server| server.join().expect("named"));
            assert_eq!(others, [first; 7]);
            assert_eq!(name_of(open().as_fd()).expect("named"), first);
            first
        });
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn what_is_no_name_is_refused_with_what_to_do() {
        let root = tempfile::tempdir().expect("folder");
        fs::create_dir(root.path().join(OWN_FOLDER)).expect("folder");
        fs::write(root.path().join(OWN_FOLDER).join(LINK), "").expect("file");
        let fd = fs::File::open(root.path()).expect("folder");
        let why = name_of(fd.as_fd()).expect_err("a file").to_string();
        assert!(why.contains(".kakehi/root") && why.contains("remove it"), "{why}");
    }
}
