//! Names in a root, and out of it.

use std::{fs, os::unix::fs::symlink};

use tempfile::TempDir;

use super::*;
use crate::names::CallPath;

fn tree() -> (TempDir, Scope) {
    let folder = TempDir::new().expect("folder");
    fs::create_dir_all(folder.path().join("root/sub")).expect("folders");
    fs::write(folder.path().join("secret"), "x").expect("file");
    fs::write(folder.path().join("root/sub/file"), "y").expect("file");
    let scope = Scope::below(&folder.path().join("root")).expect("openat2");
    (folder, scope)
}

#[test]
fn names_are_found_below_the_root() {
    let (_folder, scope) = tree();
    for path in [c"/", c"/sub", c"/sub/file", c"//sub/./file", c"/sub/../sub/file"] {
        assert!(scope.find(path).is_ok(), "{path:?}");
    }
    let anchored = scope.anchor(c"/sub/new").expect("the folder is there");
    assert_eq!(anchored.name.as_c_str(), c"new");
    let root = scope.anchor(c"/sub/..").expect("the root");
    assert!(root.name.as_c_str() == c"." && scope.is_root(root.folder()));
}

#[test]
fn nothing_leads_out_of_the_root() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    symlink("../secret", root.join("up")).expect("link");
    symlink(folder.path().join("secret"), root.join("away")).expect("link");
    symlink("..", root.join("folder")).expect("link");
    for path in [c"/up", c"/away", c"/../secret", c"/folder/secret", c"/sub/../../secret"] {
        assert_eq!(scope.find(path).expect_err("out").raw_os_error(), Some(18), "{path:?}");
    }
    assert!(scope.anchor(c"/folder/secret").is_err());
}

#[test]
fn scope_within_the_file_system_of_its_root_finds_what_is_there_and_no_more() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    fs::write(root.join("file"), "z").expect("file");
    fs::create_dir(root.join(OWN_FOLDER)).expect("folder");
    let Some((within, device)) = scope.within() else {
        return; // This folder is not on a device of this machine.
    };
    assert_eq!(device, rustix::fs::stat(&root).expect("there").st_dev);
    assert!(within.is_within() && within.within().is_none() && !scope.is_within());
    for path in [c"/", c"/sub", c"/sub/file", c"/file", c"/sub/../file"] {
        let inode = |scope: &Scope| rustix::fs::fstat(scope.find(path).expect("there"));
        let [one, other] = [&scope, &within].map(|scope| inode(scope).expect("open").st_ino);
        assert_eq!(one, other, "{path:?}");
    }
    let error = within.find(c"/.kakehi").expect_err("reserved");
    assert_eq!(error.raw_os_error(), Some(13));
    // The kernel may know that there is nothing, or would have to look for it.
    for path in [c"/sub/gone", c"/gone"] {
        let error = within.find(path).expect_err("nothing").raw_os_error();
        assert!([Some(2), Some(11)].contains(&error), "{path:?} {error:?}");
    }
    let root = Scope::below(Path::new("/")).expect("openat2");
    if let Some((within, _)) = root.within() {
        for path in [c"/proc/version", c"/proc"] {
            let error = within.find(path).expect_err("another file system").raw_os_error();
            assert!([Some(18), Some(11)].contains(&error), "{path:?} {error:?}");
        }
    }
}

#[test]
fn names_may_be_as_long_as_the_kernel_takes_them() {
    let (_folder, scope) = tree();
    let mut path = Vec::new();
    for len in [255; 15].into_iter().chain([252]) {
        path.extend([b"/".to_vec(), vec![b'd'; len]].concat());
        let at =
            scope.anchor(CString::new(path.clone()).expect("no NUL").as_c_str()).expect("a folder");
        rustix::fs::mkdirat(at.folder(), &at.name, Mode::RWXU).expect("made");
    }
    path.extend(b"/f");
    let path = CString::new(path).expect("no NUL");
    assert_eq!(path.count_bytes(), 4095);
    let flags = OFlags::WRONLY | OFlags::CREATE;
    scope.open(path.as_c_str(), flags, Mode::RWXU).expect("a file");
}

/// As when the creation of a file is answered again, by opening what it has made.
#[test]
fn what_openat_ignores_is_no_error() {
    let (folder, scope) = tree();
    let mode = Mode::from_bits_retain(0o100_600);
    let unknown = OFlags::from_bits_retain(0x2080_0004);
    for flags in [
        OFlags::WRONLY,
        OFlags::PATH | OFlags::RDWR,
        OFlags::RDWR | OFlags::CREATE,
        OFlags::SYNC | unknown,
    ] {
        assert!(openat(CWD, folder.path().join("secret"), flags, mode).is_ok());
        assert!(scope.open(c"/sub/file", flags, mode).is_ok(), "{flags:?}");
    }
    assert!(scope.open(c"/sub/new", OFlags::RDWR | OFlags::CREATE, mode).is_ok());
}

#[test]
fn own_folder_is_refused_whatever_leads_there() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    for path in [c"/.kakehi", c"/sub/../.kakehi"] {
        let error = scope.anchor(path).expect_err("nobody makes it");
        assert_eq!(error.raw_os_error(), Some(13), "{path:?}");
    }
    fs::create_dir(root.join(".kakehi")).expect("folder");
    fs::write(root.join(".kakehi/a"), "z").expect("file");
    for (text, name) in [(".kakehi", "own"), ("own/a", "a"), ("own/new", "new"), ("new", "far")] {
        symlink(text, root.join(name)).expect("link");
    }
    let paths = [c"/.kakehi", c"/.kakehi/", c"/.kakehi/a", c"/sub/../.kakehi", c"//./.kakehi/a"];
    let links = [c"/own", c"/own/", c"/own/a", c"/own/.", c"/a", c"/sub/../a", c"/new", c"/far"];
    for path in paths.into_iter().chain(links) {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        for flags in [OFlags::PATH, OFlags::RDONLY | OFlags::DIRECTORY, flags] {
            let error = scope.open(path, flags, Mode::RWXU).expect_err("reserved");
            assert_eq!(error.raw_os_error(), Some(13), "{path:?} {flags:?}");
        }
    }
    assert_eq!(fs::read(root.join(".kakehi/a")).expect("kept"), b"z");
    assert_eq!(fs::read_dir(root.join(".kakehi")).expect("listed").count(), 1);
}

#[test]
fn files_of_a_reserved_multifile_have_no_name() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    let (home, is_below) = scope.folder_of(&root.join("sub/a.sion")).expect("a folder");
    assert!(is_below);
    scope.reserve(home.as_fd(), b"a.sion").expect("reserved");
    symlink("sub/a.sion.journal", root.join("link")).expect("link");
    let flags = OFlags::RDWR | OFlags::CREATE;
    for path in [c"/sub/a.sion", c"/sub/./a.sion.000001", c"/link", c"/sub/a.sion.2.journal"] {
        let error = scope.open(path, flags, Mode::RWXU).expect_err("reserved");
        assert_eq!(error.raw_os_error(), Some(13), "{path:?}");
    }
    fs::rename(root.join("sub"), root.join("moved")).expect("moved");
    assert!(scope.anchor(c"/moved/a.sion").is_err(), "wherever its folder is moved to");
    assert!(scope.anchor(c"/a.sion").is_ok());
}

#[test]
fn folder_of_a_multifile_below_the_root_is_not_found_through_a_link_out() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    symlink(folder.path(), root.join("out")).expect("link");
    let error = scope.folder_of(&root.join("out/a.sion")).expect_err("out of the root");
    assert_eq!(error.raw_os_error(), Some(18));
    let (_, is_below) = scope.folder_of(&folder.path().join("a.sion")).expect("elsewhere");
    assert!(!is_below);
}

#[test]
fn a_folder_that_cannot_be_looked_at_may_be_the_own() {
    assert_eq!(if_there(Err(Errno::NOENT)), Ok(None));
    assert_eq!(if_there(Err(Errno::IO)), Err(Errno::IO));
}

/// As the kernel follows them.
#[test]
fn last_names_that_are_links_are_followed() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    for (text, name) in [("../sub/file", "sub/up"), ("sub/up", "far"), ("new", "sub/later")] {
        symlink(text, root.join(name)).expect("link");
    }
    let inode = |fd: OwnedFd| rustix::fs::fstat(fd).expect("open").st_ino;
    let file = inode(scope.find(c"/sub/file").expect("there"));
    assert_eq!(inode(scope.find(c"/far").expect("through two")), file);
    let link = scope.open(c"/far", OFlags::PATH | OFlags::NOFOLLOW, Mode::empty());
    assert_ne!(inode(link.expect("itself")), file);
    let error = scope.open(c"/far", OFlags::NOFOLLOW, Mode::empty()).expect_err("a link");
    assert_eq!(error.raw_os_error(), Some(40));
    let made = OFlags::WRONLY | OFlags::CREATE;
    let exclusive = scope.open(c"/sub/later", made | OFlags::EXCL, Mode::RWXU);
    assert_eq!(exclusive.expect_err("taken").raw_os_error(), Some(17));
    scope.open(c"/sub/later", made, Mode::RWXU).expect("made where the link leads");
    assert!(root.join("sub/new").is_file());
    symlink("round", root.join("round")).expect("link");
    assert_eq!(scope.find(c"/round").expect_err("no end").raw_os_error(), Some(40));
}

#[test]
fn name_is_found_in_the_folder_that_it_is_relative_to_or_not_at_all() {
    let (folder, scope) = tree();
    let root = folder.path().join("root");
    symlink("../beside", root.join("sub/link")).expect("link");
    fs::write(root.join("beside"), "z").expect("file");
    let status = status_of(scope.find(c"/sub").expect("there")).expect("open");
    let in_sub = |rest: &str, born| {
        let text = CString::new(format!("/sub{rest}")).expect("no NUL");
        let rest_len = u16::try_from(rest.len()).expect("short");
        CallPath { text, base: Some(Base { number: status.inode, born, rest_len, ups: 0 }) }
    };
    for rest in ["", "/file", "/link", "/./file"] {
        assert!(scope.find(&in_sub(rest, status.born)).is_ok(), "{rest}");
    }
    let stale = |error: io::Error| assert_eq!(error.raw_os_error(), Some(116), "{error}");
    stale(scope.find(&in_sub("/file", status.born ^ 1)).expect_err("made later"));
    fs::rename(root.join("sub"), root.join("old")).expect("moved");
    let gone = scope.anchor(&in_sub("/file", status.born)).expect_err("gone");
    assert_eq!(gone.raw_os_error(), Some(2));
    fs::create_dir(root.join("sub")).expect("another");
    stale(scope.anchor(&in_sub("/file", status.born)).expect_err("another folder"));
}
