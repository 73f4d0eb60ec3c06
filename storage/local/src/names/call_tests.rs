//! Calls survive the way, and what comes with a request may be anything.

use std::collections::HashSet;

use fastrand::Rng;
use simulated::seeds;
use wire::Entry;

use super::*;

const SEEDS: u64 = 10;
const REQUESTS: usize = 5_000;
const ROOM: usize = 1000;

/// A request of any kind, without a slot, whose lengths may be those of what comes with it.
fn request(rng: &mut Rng) -> Option<Request> {
    let half = |rng: &mut Rng| if rng.u32(0..4) == 0 { rng.u32(..) } else { rng.u32(0..8) };
    let (kind, len) = (rng.u64(0..40) << 32, u64::from(half(rng)) << 32);
    let a = u64::from(half(rng)) | u64::from(half(rng)) << 32;
    Request::decode(&Entry([kind, len, a, rng.u64(0..2), 0, 0, 0, 0])).ok()
}

/// Makes a payload: paths, most often.
fn payload(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if rng.u32(0..8) > 0 {
        bytes.fill_with(|| rng.choice(*b"/////ab.\xff").expect("there are some"));
    }
    bytes
}

/// A request and what came with it, encoded anew after they were decoded.
fn again(request: &Request, payload: &[u8]) -> Result<(Request, Vec<u8>), Errno> {
    if let Request::Open { file, .. } = *request {
        let call = OpenCall::decode(request, payload)?;
        let (request, payload) = call.encode(file).expect("it is short");
        assert_eq!(OpenCall::decode(&request, &payload), Ok(call));
        return Ok((request, payload));
    }
    let call = NameCall::decode(request, payload, ROOM)?;
    let (request, payload) = call.encode().expect("it is short");
    assert_eq!(NameCall::decode(&request, &payload, ROOM), Ok(call));
    Ok((request, payload))
}

#[test]
fn whatever_is_a_call_is_the_same_request_again() {
    for seed in seeds(SEEDS) {
        let (mut rng, mut kinds) = (Rng::with_seed(seed), HashSet::new());
        for _ in 0..REQUESTS {
            let Some(request) = request(&mut rng) else { continue };
            let Some(len) = request.names_len() else {
                assert_eq!(again(&request, b"/path"), Err(Errno::NOSYS), "SEED={seed}");
                continue;
            };
            let len = usize::try_from(len).expect("64 bits");
            // Of more than that only a part comes, which may still be a call, but another one.
            let payload = payload(&mut rng, len.min(100));
            if let (Ok(again), true) = (again(&request, &payload), len == payload.len()) {
                assert_eq!(again, (request, payload), "SEED={seed}");
                kinds.insert(request.kind());
            }
        }
        assert_eq!(kinds.len(), 18, "SEED={seed}");
    }
}

#[test]
fn what_is_no_path_is_refused_whoever_it_comes_from() {
    for (path, why) in
        [("", Errno::NOENT), ("etc", Errno::INVAL), ("/\0", Errno::INVAL), ("/a\0b", Errno::INVAL)]
    {
        let path_len = u32::try_from(path.len()).expect("short");
        let unlink = Request::Unlink { path_len };
        assert_eq!(NameCall::decode(&unlink, path.as_bytes(), ROOM), Err(why), "{path:?}");
        let open = Request::Open { file: 1, flags: 0, mode: 0, path_len, inode: 0 };
        assert_eq!(OpenCall::decode(&open, path.as_bytes()), Err(why), "{path:?}");
    }
    let cut = Request::Truncate { file: 0, path_len: 2, len: 1 << 63 };
    assert_eq!(NameCall::decode(&cut, b"/a", ROOM), Err(Errno::INVAL));
    let times = Request::SetTimes { file: 0, path_len: 2, follow: true };
    assert_eq!(NameCall::decode(&times, b"/a and less than 32 bytes", ROOM), Err(Errno::INVAL));
}
