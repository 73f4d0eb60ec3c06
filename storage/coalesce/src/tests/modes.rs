//! Permissions, and owners of new files.

use multifile::catalogue::{Change, Node};
use storage::names::Attributes;

use super::*;
use crate::tree::Wish;

#[test]
fn modes_keep_out_who_is_not_root() {
    let mut tree = tree(7);
    // The root is root's.
    let at = find(&tree, "/f").expect("free");
    assert_eq!(tree.make(&at, REGULAR, 0o644, (1, 0)), Err(Errno::ACCESS));
    let root = Node { mode: FOLDER | 0o755, user: 7, ..Default::default() };
    tree.apply(vec![Change::Node(ROOT, root)]);
    let file = make(&mut tree, "/f");
    let node = tree.node(file).expect("there").clone();
    let set = tree.set(&node, Attributes::Mode(0o400), (2, 0)).expect("its own");
    tree.apply(vec![Change::Node(file, set.clone())]);
    assert_eq!(tree.may(file, Wish::READ), Ok(()));
    assert_eq!(tree.may(file, Wish::WRITE), Err(Errno::ACCESS));
    assert_eq!(tree.set(&set, Attributes::Owner(8, u32::MAX), (2, 0)), Err(Errno::PERM));
    let stranger = Node { user: 8, ..set };
    assert_eq!(tree.set(&stranger, Attributes::Mode(0o777), (2, 0)), Err(Errno::PERM));
}

#[test]
fn folder_that_its_user_may_not_write_stays_in_its_own_one() {
    let mut tree = tree(7);
    let root = Node { mode: FOLDER | 0o755, user: 7, ..Default::default() };
    tree.apply(vec![Change::Node(ROOT, root)]);
    let (sub, moved) = (make(&mut tree, "/sub/"), make(&mut tree, "/d/"));
    let node = Node { mode: FOLDER | 0o500, ..tree.node(moved).expect("there").clone() };
    tree.apply(vec![Change::Node(moved, node)]);
    let from = find(&tree, "/d").expect("there");
    let renamed = |to: &str| tree.rename(&from, &find(&tree, to).expect("free"), 0, (3, 0));
    assert_eq!(renamed("/sub/d").map(drop), Err(Errno::ACCESS), "in {sub}");
    assert_eq!(renamed("/e").map(drop), Ok(()));
}

#[test]
fn what_is_made_in_a_folder_that_says_so_has_its_group() {
    let mut tree = tree(7);
    let root = Node { mode: FOLDER | 0o2770, user: 8, group: 107, ..Default::default() };
    tree.apply(vec![Change::Node(ROOT, root)]);
    // By a group that is not its first one.
    let (file, folder) = (make(&mut tree, "/f"), make(&mut tree, "/d/"));
    let node = |tree: &Tree, inode| tree.node(inode).expect("there").clone();
    let found = [file, folder].map(|inode| (node(&tree, inode).group, node(&tree, inode).mode));
    assert_eq!(found, [(107, REGULAR | 0o755), (107, FOLDER | 0o2755)]);
    let other = Node { user: 8, mode: REGULAR | 0o040, ..node(&tree, file) };
    tree.apply(vec![Change::Node(file, other)]);
    assert_eq!(tree.may(file, Wish::READ), Ok(()));
    assert_eq!(tree.may(file, Wish::WRITE), Err(Errno::ACCESS));
    let mine = Node { group: 9, ..node(&tree, folder) };
    let set = |what| tree.set(&mine, what, (2, 0));
    assert_eq!(set(Attributes::Owner(u32::MAX, 107)).expect("in it").group, 107);
    assert_eq!(set(Attributes::Owner(u32::MAX, 108)), Err(Errno::PERM));
    assert_eq!(set(Attributes::Mode(0o2755)).expect("its own").mode, FOLDER | 0o755);
}

#[test]
fn whom_a_file_is_executed_as_is_not_handed_over() {
    let tree = tree(0);
    let at = find(&tree, "/d");
    let (_, changes) = tree.make(&at.expect("free"), FOLDER, 0o7777, (1, 0)).expect("room");
    assert!(matches!(&changes[0], Change::Node(_, node) if node.mode == FOLDER | 0o1777));
    for (mode, kept) in [
        (REGULAR | 0o6755, REGULAR | 0o755),
        (REGULAR | 0o6745, REGULAR | 0o2745),
        (FOLDER, FOLDER),
    ] {
        let node = Node { mode, ..Default::default() };
        let set = tree.set(&node, Attributes::Owner(7, u32::MAX), (2, 0)).expect("by root");
        assert_eq!(set.mode, kept, "{mode:o}");
    }
}

#[test]
fn change_of_content_clears_set_id_bits_as_the_kernel_does() {
    let changed = |user, mode| {
        let node = Node { mode, ..Default::default() };
        tree(user).stripped(&node).map(|node| node.mode)
    };
    for (mode, cleared) in [
        (REGULAR | 0o6755, Some(REGULAR | 0o755)),
        (REGULAR | 0o4600, Some(REGULAR | 0o600)),
        (REGULAR | 0o2710, Some(REGULAR | 0o710)),
        (REGULAR | 0o2644, None),
        (REGULAR | 0o1755, None),
    ] {
        assert_eq!(changed(7, mode), cleared, "{mode:o}");
        assert_eq!(changed(0, mode), None, "root may change {mode:o}");
    }
}
