//! Links on the way to a remote folder.
//!
//! A mirror lies where its folder is, not where a link to it is: there the mirror above has the
//! link. So who enters a folder through a link is in the folder, as on a local file system.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// As many as the kernel follows on one way.
const LINKS_MAX: u32 = 40;

/// Where `path` leads to, by the texts of the links on the way behind `known`, its beginning.
/// `None`: out of `top`, or nowhere.
pub(super) async fn followed(
    (top, known): (&Path, &Path),
    path: &Path,
    text_of: impl AsyncFn(&Path) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let mut real = known.to_owned();
    let mut rest = parts(path.strip_prefix(known).ok()?);
    let mut link_count = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            if real == top {
                return None;
            }
            real.pop();
            continue;
        }
        real.push(part);
        let Some(text) = text_of(&real).await else { continue };
        link_count += 1;
        if link_count > LINKS_MAX || text.is_absolute() {
            return None;
        }
        real.pop();
        rest.extend(parts(&text));
    }
    Some(real)
}

/// The parts of a relative path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.iter().rev().filter(|part| *part != ".").map(ToOwned::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn followed_to(path: &str) -> Option<PathBuf> {
        let text_of = async |path: &Path| {
            let text = match path.to_str()? {
                "/top/link" => "real",
                "/top/real/up" => "../other/./inner",
                "/top/far" => "link/up",
                "/top/out" => "../elsewhere",
                "/top/absolute" => "/top/real",
                "/top/circle" => "circle",
                _ => return None,
            };
            Some(PathBuf::from(text))
        };
        let top = Path::new("/top");
        let future = pin!(followed((top, top), Path::new(path), text_of));
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found,
            Poll::Pending => panic!("nothing here waits"),
        }
    }

    #[test]
    fn links_lead_to_where_a_folder_is() {
        for (path, real) in [
            ("/top", Some("/top")),
            ("/top/a/b", Some("/top/a/b")),
            ("/top/link/b", Some("/top/real/b")),
            ("/top/link/up/b", Some("/top/other/inner/b")),
            ("/top/far", Some("/top/other/inner")),
            ("/top/out", None),
            ("/top/absolute", None),
            ("/top/circle", None),
        ] {
            assert_eq!(followed_to(path).as_deref(), real.map(Path::new), "{path}");
        }
    }
}
