//! A program and all libraries the dynamic loader would load with it.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use crate::{
    image::{self, Content, Image},
    loader::Loader,
};

/// A program has hundreds of libraries at most; more is a fault in the files or in this walk.
const OBJECT_COUNT_MAX: usize = 4096;

/// One file of the program.
#[derive(Debug)]
pub(super) struct Object {
    /// As its users name it; the program's own path for the first.
    pub(super) name: String,
    /// Missing when the loader would not find it, or the file is damaged.
    pub(super) path: Option<PathBuf>,
    pub(super) image: Image,
}

/// The program, then its libraries in the order the loader loads them.
///
/// The C library is listed and not looked into: its calls are what is interposed.
pub(super) fn objects(program: &Path, image: Image, loader: &Loader) -> Vec<Object> {
    let own_rpath = image.rpath.clone();
    let mut waiting = needs(&image);
    let name = program.display().to_string();
    let mut objects = vec![Object { name, path: Some(program.into()), image }];
    while let Some(need) = waiting.pop_front() {
        if objects.iter().any(|object| object.name == need.name) {
            continue;
        }
        if objects.len() == OBJECT_COUNT_MAX {
            break;
        }
        // The loader also searches the DT_RPATH of whoever loaded the library's user.
        let rpath = [need.rpath, own_rpath.clone()].concat();
        let path = loader.find(&need.name, &rpath, &need.runpath, image::is_native);
        let (path, image) = match path {
            Some(path) if is_libc(&need.name) => (Some(path), Image::default()),
            Some(path) => match Content::read(&path) {
                Ok(Content::Image(image)) => (Some(path), *image),
                _ => (None, Image::default()),
            },
            None => (None, Image::default()),
        };
        waiting.extend(needs(&image));
        objects.push(Object { name: need.name, path, image });
    }
    objects
}

/// A library by name, and where its user says it is.
struct Need {
    name: String,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

fn needs(image: &Image) -> VecDeque<Need> {
    let need = |name: &String| Need {
        name: name.clone(),
        rpath: image.rpath.clone(),
        runpath: image.runpath.clone(),
    };
    image.needed.iter().map(need).collect()
}

/// The parts of the GNU C library.
fn is_libc(name: &str) -> bool {
    const PARTS: [&str; 10] = [
        "ld-linux",
        "libc.",
        "libm.",
        "libmvec.",
        "libpthread.",
        "libdl.",
        "librt.",
        "libanl.",
        "libutil.",
        "libresolv.",
    ];
    PARTS.iter().any(|part| name.starts_with(part))
}
