//! Names that are claimed, and forgotten.

use super::*;

/// Many more names than the set has room for come and go, and hardly any is asked for.
#[test]
fn set_of_names_is_begun_anew_when_it_is_full() {
    let mut all = Bundles::of(2, 64);
    let names = all.node.clone();
    let (names, mut claimed) = (&names.shared().names, 0);
    for number in 0..1000 {
        let file = format!("n{number}");
        let holds = |all: &Bundles| {
            let lease = all.makers[0].leases.get("").copied();
            lease.filter(|lease| lease.epoch == names.epochs().folders)
        };
        if holds(&all).is_none() {
            all.lease(0, "");
        }
        let Lease { folder, key, next: inode, .. } = holds(&all).expect("leased");
        if names.claim(NameHash::new(key, file.as_bytes())) {
            let (how, name) = (CreateFlags::EXCLUSIVE, file.as_bytes());
            all.makers[0].push(&Record::Create {
                inode,
                folder,
                mode: 0o600,
                how,
                time: (1, 2),
                name,
            });
            all.makers[0].push(&Record::Close { inode });
            all.makers[0].publish();
            all.makers[0].leases.get_mut("").expect("leased").next += 1;
            claimed += 1;
        } else {
            all.world.open(&file, OFlags::CREATE | OFlags::WRONLY).expect("made");
        }
        all.call(NameCall::Unlink { path: name(&file) }).expect("there");
    }
    assert!((900..1000).contains(&claimed), "{claimed} of 1000");
}

/// Files that stay need more slots than there are first.
#[test]
fn set_of_names_grows_with_them() {
    let mut all = Bundles::of(3, NAME_SLOTS);
    let node = all.node.clone();
    let (names, mut asked) = (&node.shared().names, 0);
    for number in 0..600 {
        let file = format!("n{number}");
        let lease = all.makers[0].leases.get("").copied();
        if lease.is_none_or(|lease| lease.epoch != names.epochs().folders) {
            all.lease(0, "");
        }
        let Lease { folder, key, next: inode, .. } = all.makers[0].leases[""];
        if !names.claim(NameHash::new(key, file.as_bytes())) {
            all.world.open(&file, OFlags::CREATE | OFlags::WRONLY).expect("made");
            asked += 1;
            continue;
        }
        let (mode, how) = (0o600, CreateFlags::EXCLUSIVE);
        let (time, name_bytes) = ((1, 2), file.as_bytes());
        let create = Record::Create { inode, folder, mode, how, time, name: name_bytes };
        all.makers[0].push(&create);
        all.makers[0].push(&Record::Close { inode });
        all.makers[0].publish();
        all.makers[0].leases.get_mut("").expect("leased").next += 1;
        // Has what is published taken in.
        all.call(NameCall::Stat { path: name(&file), follow: false }).expect("there");
    }
    assert!(asked < 20, "{asked} of 600");
    for number in [0, 63, 64, 255, 599] {
        let path = name(&format!("n{number}"));
        all.call(NameCall::Stat { path, follow: false }).expect("there");
    }
}

/// A client that has claimed a name before the set was begun anew, and publishes after that,
/// comes after one that has claimed it since.
#[test]
fn client_of_a_forgotten_claim_has_no_name_of_somebody_else() {
    let mut all = Bundles::of(4, 64);
    let names = all.node.clone();
    let names = &names.shared().names;
    all.lease(0, "");
    let old = all.makers[0].leases[""];
    let before = names.epochs();
    assert!(names.claim(NameHash::new(old.key, b"b")));
    for number in 0..200 {
        all.world.open(&format!("n{number}"), OFlags::CREATE | OFlags::WRONLY).expect("made");
        all.call(NameCall::Unlink { path: name(&format!("n{number}")) }).expect("there");
    }
    all.lease(1, "");
    let new = all.makers[1].leases[""];
    let now = names.epochs();
    assert!(names.claim(NameHash::new(new.key, b"b")), "forgotten");
    // The first client is taken in first.
    for (maker, lease) in [(0, old), (1, new)] {
        let Lease { folder, next: inode, .. } = lease;
        let (how, time, name) = (CreateFlags::EXCLUSIVE, (1, 2), &b"b"[..]);
        all.makers[maker].push(&Record::Create { inode, folder, mode: 0o600, how, time, name });
        all.makers[maker].publish();
    }
    assert!(!names.are_still(before) && names.are_still(now));
    for (maker, inode, is_its) in [(0, old.next, false), (1, new.next, true)] {
        let call = OpenCall { path: name("d"), flags: OFlags::RDWR.bits(), mode: 0, inode };
        let opened = all.world.executor.run_until(all.world.files.clone().open(call));
        match opened {
            Ok((_, status)) => assert!(is_its && status.inode == inode, "{maker}"),
            Err(why) => assert!(!is_its && errno(why) == Errno::EXIST, "{maker}"),
        }
    }
}
