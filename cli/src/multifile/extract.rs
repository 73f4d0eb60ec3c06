//! `kakehi multifile extract`: the files that are kept in a multifile, as files.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown, symlink},
    },
    path::{Path, PathBuf},
};

use multifile::{
    Reader,
    catalogue::{Catalogue, Node},
};
use rustix::{
    fs::{AtFlags, CWD, Mode, Timespec, Timestamps, utimensat},
    process::{geteuid, umask},
};
use serde_json::json;

use super::{
    beside::Beside,
    copy::{Target, in_parallel},
    file_failure, inputs,
    names::{judge, names_of, paths_of},
    open,
    progress::Progress,
    stream, stream_failure,
};
use crate::{
    failure::{Code, Failure},
    output, report,
    size::Size,
};

const RWX: u32 = 0o777;
const STICKY: u32 = 0o1000;
const SET_GROUP: u32 = 0o2000;
const SET_USER: u32 = 0o4000;

/// Writes the files that are kept in a multifile into a folder, under their names
///
/// For multifiles of 'kakehi run --coalesce'. Folders, links, and times are restored, permissions
/// as the umask has it, and owners if root does it. Nothing gets a set-user or set-group bit that
/// somebody else has put into the multifile. The folder appears when everything in it is complete
/// and durable.
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
    /// Restores permissions whatever the umask is, with set-user, set-group, and sticky bits; the
    /// default for root.
    #[arg(short, long)]
    preserve_permissions: bool,
    /// Prints one JSON document.
    #[arg(long)]
    json: bool,
}

pub(crate) fn extract(args: &Args) -> Result<(), Failure> {
    let reader = open(&args.file)?;
    let read = names_of(&reader, &args.file)?;
    let names = &read.catalogue;
    let paths = wanted(args, names)?;
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
    let rights = Rights::of(&reader, args.preserve_permissions);
    let extract = Extract { source: &args.file, reader: &reader, names, rights };
    let bytes = extract.all(&paths, &target, place, is_single).map_err(|why| beside.told(why))?;
    beside.publish()?;
    let (file, files) = (args.output.display().to_string(), paths.len());
    let document = json!({"output": file, "names": files, "bytes": bytes});
    output::show(args.json, &document, || {
        let bytes = Size(bytes).approximate();
        format!("{file}: {}, {bytes}\n", report::count(files, "name", "s"))
    })?;
    judge(&read, &args.file)
}

/// Returns the paths to extract, each folder before its content.
fn wanted(args: &Args, names: &Catalogue) -> Result<Vec<(Vec<u8>, u64)>, Failure> {
    let mut paths = paths_of(names, &args.file)?;
    if args.name.is_empty() {
        return Ok(paths);
    }
    let wanted: Vec<_> = args.name.iter().map(|name| plain(name)).collect();
    for name in &wanted {
        if !paths.iter().any(|(path, _)| path == name) {
            let what = format!("{}: {}", args.file.display(), String::from_utf8_lossy(name));
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

/// Returns the part of a path below a folder; empty for the folder itself.
fn below<'a>(folder: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
}

struct Extract<'a> {
    source: &'a Path,
    reader: &'a Reader<File>,
    names: &'a Catalogue,
    rights: Rights,
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
            self.rights.restore(&place(path), node(*inode))?;
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
            return self.rights.restore(at, node);
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
        self.rights.restore(at, node)
    }
}

/// Which of the recorded permissions what is extracted gets.
#[derive(Clone, Copy, Debug)]
struct Rights {
    /// Bits that are taken away from every file.
    mask: u32,
    /// The user who extracts.
    me: u32,
    /// The user whose multifile it is: anything may be recorded in it.
    author: u32,
}

impl Rights {
    fn of(reader: &Reader<File>, preserve: bool) -> Self {
        let author = inputs(reader).next().map_or(u32::MAX, |found| found.uid());
        let me = geteuid().as_raw();
        let mask = umask(Mode::empty());
        umask(mask);
        let mask = if preserve || me == 0 { 0 } else { mask.as_raw_mode() | !RWX };
        Self { mask, me, author }
    }

    /// The permissions of a file that belongs to these by now. A file runs as its owner, or with
    /// the rights of its group, only if that is what whoever made the multifile could have made
    /// without it.
    const fn mode(&self, node: &Node, user: u32, group: u32) -> u32 {
        let is_users = user == node.user && (self.author == self.me || self.author == user);
        let is_groups = group == node.group && self.author == self.me;
        let kept = if is_users { SET_USER } else { 0 } | if is_groups { SET_GROUP } else { 0 };
        node.mode & (RWX | STICKY | kept) & !self.mask
    }

    /// Gives what was extracted its owner, permissions, and times.
    fn restore(&self, at: &Path, node: &Node) -> Result<(), Failure> {
        let failed = |why: std::io::Error| file_failure(at, &why);
        if self.me == 0 {
            lchown(at, Some(node.user), Some(node.group)).map_err(failed)?;
        }
        if !node.is_link() {
            let found = fs::symlink_metadata(at).map_err(failed)?;
            let mode = Permissions::from_mode(self.mode(node, found.uid(), found.gid()));
            fs::set_permissions(at, mode).map_err(failed)?;
        }
        let [accessed, modified, _] = node.times;
        let time =
            |(tv_sec, nanoseconds): (i64, u32)| Timespec { tv_sec, tv_nsec: nanoseconds.into() };
        let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
        let set = utimensat(CWD, at, &times, AtFlags::SYMLINK_NOFOLLOW);
        set.map_err(|why| failed(why.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: u32 = 7;
    const STRANGER: u32 = 8;

    fn mode(rights: Rights, (user, group): (u32, u32), mode: u32) -> u32 {
        let node = Node { mode, user, group, ..Node::default() };
        // Root gives files away; all others own what they extract.
        let owner = if rights.me == 0 { (user, group) } else { (rights.me, rights.me) };
        rights.mode(&node, owner.0, owner.1)
    }

    #[test]
    fn set_id_bits_of_somebody_elses_multifile_are_not_restored() {
        let strangers = Rights { mask: 0, me: ME, author: STRANGER };
        assert_eq!(mode(strangers, (STRANGER, STRANGER), 0o6755), 0o755);
        assert_eq!(mode(strangers, (ME, ME), 0o6755), 0o755, "it says that it is mine");
        let roots = Rights { me: 0, ..strangers };
        assert_eq!(mode(roots, (0, 0), 0o6755), 0o755, "it says that it is root's");
        assert_eq!(mode(roots, (STRANGER, 0), 0o6755), 0o4755, "a program of the author's own");
        let mine = Rights { author: ME, ..strangers };
        assert_eq!(mode(mine, (ME, ME), 0o6755), 0o6755);
        assert_eq!(mode(mine, (STRANGER, STRANGER), 0o6755), 0o755);
        assert_eq!(mode(Rights { author: 0, ..roots }, (ME, ME), 0o7755), 0o7755);
    }

    #[test]
    fn umask_holds_for_what_is_not_preserved() {
        let masked = Rights { mask: 0o027 | !RWX, me: ME, author: ME };
        assert_eq!(mode(masked, (ME, ME), 0o7777), 0o750);
        assert_eq!(mode(Rights { mask: 0, ..masked }, (ME, ME), 0o7777), 0o7777);
    }
}
