//! The local folders that are mapped: made for a run, removed again where nothing comes of it,
//! read-only meanwhile, and looked into, for what is in them programs do not see.

use std::{
    fs, io, mem,
    path::{Path, PathBuf},
    process::Command,
};

use daemon::HiddenFolder;

use crate::{
    failure::{Code, Failure},
    remote::{Maps, real},
    report, voice,
};

/// Levels below a mapped folder that are looked through for files.
const DEPTH_MAX: u32 = 16;

/// Folders that programs see a server's files in. Those that were made go when this does, unless
/// they are kept: before that the daemon has to have ended.
#[derive(Debug)]
pub(crate) struct Folders {
    maps: Maps,
    made: Vec<PathBuf>,
    /// Not empty, and that was said.
    told: Vec<PathBuf>,
    /// Folders that programs past the library are not to write into.
    hidden: Vec<HiddenFolder>,
}

impl Folders {
    /// Those of `maps`, as they are.
    pub(crate) fn of(maps: Maps) -> Self {
        Self { maps, made: Vec::new(), told: Vec::new(), hidden: Vec::new() }
    }

    /// Makes those that are missing. They stay empty.
    ///
    /// # Errors
    ///
    /// One cannot be made; the others are gone again.
    pub(crate) fn make(maps: Maps) -> Result<Self, Failure> {
        let mut folders = Self::of(maps);
        let mut is_clear = false;
        for (local, _) in &folders.maps.0 {
            // Most are missing, and then nothing is mounted there.
            if fs::create_dir(local).is_ok() {
                folders.made.push(local.clone());
                continue;
            }
            if !mem::replace(&mut is_clear, true) {
                folders.clear_views();
            }
            let (mut missing, mut made) = create(local);
            if made.is_err() && daemon::clear_view(&real(local)).is_ok() {
                // The daemon of a view was still dying when that was looked for.
                (missing, made) = create(local);
            }
            folders.made.extend(missing);
            made.map_err(|why| {
                let advice = "map a folder that can be made";
                Failure::new(Code::Ours, local.display(), why, advice)
            })?;
        }
        Ok(folders)
    }

    /// A program uses them: they stay, but for those in another one, which is to stay empty.
    pub(crate) fn keep(&mut self) {
        let locals = || self.maps.0.iter().map(|(local, _)| local);
        let is_in = |made: &Path, local: &Path| made != local && made.starts_with(local);
        self.made.retain(|made| locals().any(|local| is_in(made, local)));
    }

    /// A daemon stays that has them: none is removed.
    pub(crate) fn leave(&mut self) {
        self.made.clear();
    }

    /// Takes away the views that killed daemons have left. One that cannot be stays: whoever uses
    /// it will say so.
    fn clear_views(&self) {
        for (local, _) in &self.maps.0 {
            daemon::clear_view(&real(local)).ok();
        }
    }

    /// Takes hold of them, and looks for files of this node that programs are not going to see:
    /// before the folders are mounted.
    pub(crate) fn look(&mut self) {
        let locals = || self.maps.0.iter().map(|(local, _)| local);
        // One in another one is below the view of that, or read-only with it.
        let is_top = |one: &&PathBuf| locals().all(|top| top == *one || !one.starts_with(top));
        for local in locals().filter(|local| real(local) == **local).filter(is_top) {
            match HiddenFolder::take(local) {
                Ok(hidden) => self.hidden.extend(hidden),
                Err(why) => voice::step(format_args!("{}: not held: {why}", local.display())),
            }
        }
        let told = self.hiding_but(&self.made).map(Path::to_owned).collect();
        self.told = told;
    }

    /// Has a command start where this process is, if that is in one of them: it may have been
    /// mounted meanwhile, over the folder that this process is in.
    pub(crate) fn enter(&self, here: Option<&Path>, command: &mut Command) {
        let is_in = |here: &&Path| self.maps.0.iter().any(|(local, _)| here.starts_with(local));
        if let Some(here) = here.filter(is_in).filter(|here| here.is_dir()) {
            command.current_dir(here);
        }
    }

    /// Has nobody write into them past the daemon, which serves by now.
    pub(crate) fn seal(&self) {
        for hidden in &self.hidden {
            if let Err(why) = hidden.seal() {
                voice::step(format_args!("{hidden}: not made read-only: {why}"));
            }
        }
    }

    /// Makes them what they were.
    pub(crate) fn unseal(&mut self) {
        self.hidden.clear();
    }

    /// Tells of the files that were [found](Self::look).
    pub(crate) fn tell_at_start(&self) {
        let advice = "name an empty folder; or move them away, and copy them in by 'kakehi run'";
        self.told.iter().for_each(|folder| tell(folder, advice));
    }

    /// Tells of those that came meanwhile, once the daemon has ended.
    pub(crate) fn tell_at_end(&self) {
        self.clear_views();
        let advice = "they were written past it: 'kakehi check PROGRAM' says what does that";
        let is_news = |folder: &&Path| self.told.iter().all(|told| told != folder);
        self.hiding_but(&[]).filter(is_news).for_each(|folder| tell(folder, advice));
    }

    /// Folders with files of this node in them, by their one true name; not one of `empty`.
    fn hiding_but<'a>(&'a self, empty: &'a [PathBuf]) -> impl Iterator<Item = &'a Path> {
        let locals = || self.maps.0.iter().map(|(local, _)| &**local);
        let is_hidden = move |entry: fs::DirEntry| {
            let leads_to_a_mapped_one = locals().any(|local| local.starts_with(entry.path()));
            !leads_to_a_mapped_one && !is_bare(&entry.path(), DEPTH_MAX)
        };
        locals().filter(move |local| {
            let entries = || fs::read_dir(local);
            let is_empty = empty.iter().any(|empty| empty == local);
            let is_own = !is_empty && real(local) == *local && !daemon::has_view(local);
            is_own && entries().is_ok_and(|found| found.flatten().any(is_hidden))
        })
    }
}

/// Makes a folder; those that were missing, outermost first, and whether all are there.
fn create(folder: &Path) -> (Vec<PathBuf>, io::Result<()>) {
    // What is mounted is there, whether it says so or not.
    if daemon::is_barred(&real(folder)) {
        return (Vec::new(), Ok(()));
    }
    let is_missing = |folder: &&Path| folder.symlink_metadata().is_err();
    let missing: Vec<_> = folder.ancestors().take_while(is_missing).collect();
    let made = fs::create_dir_all(folder);
    (missing.into_iter().rev().map(Path::to_owned).collect(), made)
}

/// True if nothing is below a folder but folders, as one that was mapped in an earlier run: nobody
/// misses anything of that.
fn is_bare(folder: &Path, depth_max: u32) -> bool {
    let is_folder = folder.symlink_metadata().is_ok_and(|found| found.is_dir());
    let is_below = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| is_bare(&entry.path(), depth_max - 1))
    };
    is_folder && depth_max > 0 && fs::read_dir(folder).is_ok_and(|mut found| found.all(is_below))
}

impl Drop for Folders {
    fn drop(&mut self) {
        self.unseal();
        for folder in self.made.iter().rev() {
            fs::remove_dir(folder).ok(); // Somebody may use it by now.
        }
    }
}

fn tell(folder: &Path, advice: &str) {
    let why = "it has files of this node that programs do not see while it is mapped or coalesced";
    report::warn(&Failure::new(Code::Ours, folder.display(), why, advice));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(base: &Path, locals: &[&str]) -> Maps {
        Maps(locals.iter().map(|local| (base.join(local), PathBuf::from("/x"))).collect())
    }

    #[test]
    fn folders_that_were_made_for_nothing_are_gone_and_others_stay() {
        let base = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(base.path().join("old")).expect("a folder");
        let locals = ["old/a/b", "old", "new"];
        drop(Folders::make(maps(base.path(), &locals)).expect("made"));
        assert_eq!(fs::read_dir(base.path()).expect("there").count(), 1);
        assert_eq!(fs::read_dir(base.path().join("old")).expect("there").count(), 0);

        let mut kept = Folders::make(maps(base.path(), &locals)).expect("made");
        kept.keep();
        drop(kept);
        assert!(base.path().join("new").is_dir());
        assert_eq!(fs::read_dir(base.path().join("old")).expect("there").count(), 0, "not empty");

        fs::write(base.path().join("file"), "").expect("a file");
        Folders::make(maps(base.path(), &["other", "file/c"])).expect_err("a file is in the way");
        assert!(!base.path().join("other").exists());
    }

    #[test]
    fn a_folder_hides_what_is_in_it_but_for_another_mapped_one() {
        let base = tempfile::tempdir().expect("temporary folder");
        let base = fs::canonicalize(base.path()).expect("there");
        let mut folders = Folders::make(maps(&base, &["a", "a/b", "c"])).expect("made");
        assert_eq!(folders.hiding_but(&[]).count(), 0);
        // Mapped by an earlier run.
        fs::create_dir_all(base.join("c/d/e")).expect("folders");
        assert_eq!(folders.hiding_but(&[]).count(), 0);
        fs::write(base.join("c/d/file"), "").expect("a file");
        assert_eq!(folders.hiding_but(&[]).collect::<Vec<_>>(), [base.join("c")]);
        folders.keep();
    }
}
