//! `kakehi multifile extract`: the files that are kept in a multifile, as files.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{OpenOptionsExt as _, PermissionsExt as _, chown, symlink},
    },
    path::{Path, PathBuf},
};

use multifile::{
    Reader,
    catalogue::{Catalogue, Node},
};
use rustix::{
    fs::{AtFlags, CWD, Timespec, Timestamps, utimensat},
    process::geteuid,
};
use serde_json::json;

use super::{
    beside::Beside,
    copy::{Target, in_parallel},
    file_failure, inputs,
    names::{names_of, paths_of},
    open,
    progress::Progress,
    stream, stream_failure,
};
use crate::{
    failure::{Code, Failure},
    output, report,
    size::Size,
};

const PERMISSIONS: u32 = 0o7777;

/// Writes the files that are kept in a multifile into a folder, under their names
///
/// For multifiles of 'kakehi run --coalesce'. Folders, links, permissions, and times are restored;
/// owners, if root does it. The folder appears when everything in it is complete and durable.
///
///     kakehi multifile extract ckpt.sion ckpt
///     kakehi multifile extract ckpt.sion one --name sub/rank.00007
///     kakehi multifile extract ckpt.sion sub --name sub
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The multifile, or the first file of a set.
    file: PathBuf,
    /// The folder to make; with one --name, that file or folder.
    output: PathBuf,
    /// Only this file, or this folder with all that is below it; may be given several times. One
    /// alone becomes OUTPUT itself.
    #[arg(long, value_name = "PATH")]
    name: Vec<OsString>,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn extract(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    let names = names_of(&reader, &args.file)?;
    let paths = wanted(args, &names)?;
    if args.output.symlink_metadata().is_ok() {
        let why = "it exists already";
        let advice = "remove it, or name another output";
        return Err(Failure::new(Code::Failure, args.output.display(), why, advice));
    }
    let (beside, name) = Beside::for_file(&args.output, false, inputs(&reader))?;
    let target = beside.path(&name);
    let single = args.name.first().filter(|_| args.name.len() == 1).map(|name| plain(name));
    let is_single = single.is_some();
    let place = |path: &[u8]| match single.and_then(|name| below(name, path)) {
        Some([]) => target.clone(),
        rest => target.join(OsStr::from_bytes(rest.unwrap_or(path))),
    };
    let extract = Extract { source: &args.file, reader: &reader, names: &names };
    let bytes = extract.all(&paths, &target, place, is_single).map_err(|why| beside.told(why))?;
    beside.publish()?;
    let (file, files) = (args.output.display().to_string(), paths.len());
    if args.json {
        return output::print_json(&json!({ "output": file, "names": files, "bytes": bytes }));
    }
    let bytes = Size(bytes).approximate();
    output::print(&format!("{file}: {}, {bytes}\n", report::count(files, "name", "s")))
}

/// What is to be extracted, each folder before what is in it.
fn wanted(args: &Args, names: &Catalogue) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
    let mut paths = paths_of(names, &args.file)?;
    if args.name.is_empty() {
        return Ok(paths);
    }
    let wanted: Vec<_> = args.name.iter().map(|name| plain(name)).collect();
    for name in &wanted {
        if !paths.iter().any(|(path, _)| path == name) {
            let what = format_args!("{}: {}", args.file.display(), String::from_utf8_lossy(name));
            return Err(Failure::usage(what, "there is no such name", "see 'kakehi multifile ls'"));
        }
    }
    let is_wanted = |path: &[u8]| wanted.iter().any(|name| below(name, path).is_some());
    let is_above =
        |path: &[u8]| wanted.len() > 1 && wanted.iter().any(|name| below(path, name).is_some());
    paths.retain(|(path, _)| is_wanted(path) || is_above(path));
    Ok(paths)
}

/// A name as the multifile has it.
fn plain(name: &OsStr) -> &[u8] {
    let len = name.as_bytes().iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    name.as_bytes().get(..len).unwrap_or_default()
}

/// What of a path is below a folder; nothing of the folder's own.
fn below<'a>(folder: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

struct Extract<'a> {
    source: &'a Path,
    reader: &'a Reader<File>,
    names: &'a Catalogue,
}

impl Extract<'_> {
    /// Writes everything below `target`; returns the bytes.
    fn all(
        &self,
        paths: &[(Vec<u8>, u64)],
        target: &Path,
        place: impl Fn(&[u8]) -> PathBuf + Sync,
        is_single: bool,
    ) -> Result<u64, Failure> {
        let root = Node::default();
        let node = |inode: u64| self.names.node(inode).unwrap_or(&root);
        let (mut files, mut links) = (Vec::new(), Vec::new());
        let mut first: HashMap<u64, PathBuf> = HashMap::new();
        if !is_single {
            fs::create_dir(target).map_err(|why| file_failure(target, &why))?;
        }
        for (path, inode) in paths {
            let (at, node) = (place(path), node(*inode));
            if node.is_folder() {
                fs::create_dir(&at).map_err(|why| file_failure(&at, &why))?;
            } else if let Some(other) = first.get(inode) {
                links.push((other.clone(), at));
            } else {
                first.insert(*inode, at.clone());
                files.push((at, node));
            }
        }
        let len = |(_, node): &(PathBuf, &Node)| node.task.map_or(0, |task| self.len(task));
        let total = files.iter().map(len).sum();
        let progress = Progress::new("extract", total).stop_on_signals()?;
        in_parallel(files.iter(), |(at, node)| self.one(at, node, &progress))?;
        for (other, at) in links {
            fs::hard_link(other, &at).map_err(|why| file_failure(&at, &why))?;
        }
        // Folders last: a mode may keep out, and a time would change.
        for (path, inode) in paths.iter().rev().filter(|(_, inode)| node(*inode).is_folder()) {
            restore(&place(path), node(*inode))?;
        }
        let synced = File::open(target.parent().unwrap_or(target))
            .and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
        synced.map_err(|why| file_failure(target, &why))?;
        Ok(total)
    }

    fn len(&self, task: u64) -> u64 {
        super::stream_len(self.reader, usize::try_from(task).unwrap_or(usize::MAX))
    }

    fn one(&self, at: &Path, node: &Node, progress: &Progress) -> Result<(), Failure> {
        if node.is_link() {
            symlink(OsStr::from_bytes(&node.text), at).map_err(|why| file_failure(at, &why))?;
            return restore(at, node);
        }
        // Nobody else's before it has its mode.
        let made = File::options().write(true).create_new(true).mode(0o600).open(at);
        let file = made.map_err(|why| file_failure(at, &why))?;
        if let Some(task) = node.task {
            let task = usize::try_from(task).unwrap_or(usize::MAX);
            let mut from = stream(self.reader, self.source, task)?;
            let len = from.cursor().total();
            let target = Target { file: &file, path: at, at: 0 };
            target.take(&mut from, len, progress, |why| stream_failure(self.source, task, why))?;
        }
        restore(at, node)
    }
}

/// Gives what was extracted its owner, permissions, and times.
fn restore(at: &Path, node: &Node) -> Result<(), Failure> {
    let failed = |why: std::io::Error| file_failure(at, &why);
    if geteuid().is_root() {
        let (user, group) = (Some(node.user), Some(node.group));
        let owned = if node.is_link() {
            std::os::unix::fs::lchown(at, user, group)
        } else {
            chown(at, user, group)
        };
        owned.map_err(failed)?;
    }
    if !node.is_link() {
        let mode = Permissions::from_mode(node.mode & PERMISSIONS);
        fs::set_permissions(at, mode).map_err(failed)?;
    }
    let [accessed, modified, _] = node.times;
    let time = |(tv_sec, nanoseconds): (i64, u32)| Timespec { tv_sec, tv_nsec: nanoseconds.into() };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    let set = utimensat(CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW);
    set.map_err(|why| failed(why.into()))
}
