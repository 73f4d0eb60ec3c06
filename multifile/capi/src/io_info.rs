//! Which physical files a process used, for programs that move buddy copies around.
//!
//! The answer is allocated with malloc, because it outlives the handle and goes back through
//! `sion_free_io_info`.

use std::{
    ffi::{c_char, c_int},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    ptr::null_mut,
};

use multifile::{Storage, name};

use crate::{
    arrays::count,
    error::{Failure, Result},
    export::export,
    handle::{Body, Open},
    pointer::{new_array, new_text, values_mut},
    table,
};

const WRITER: c_int = 4;
const READER: c_int = 16;

/// `sion_io_stat_t`.
#[derive(Clone, Copy)]
#[repr(C)]
struct IoStat {
    file_count: c_int,
    names: *mut *const c_char,
    sizes: *mut usize,
    roles: *mut c_int,
}

/// The files of a handle with buddy copies: name, bytes of this process, role.
fn files(open: &mut Open) -> Result<Vec<(PathBuf, u64, c_int)>> {
    let none = Failure::Mode("the file was opened without buddy copies");
    let levels = open.mode.buddies.ok_or(none)?;
    let Some(team) = &open.team else { return Ok(Vec::new()) };
    Ok(match &mut open.body {
        Body::Write(writing) => {
            let number = writing.file_number()?;
            let size = writing.task()?.fill().total();
            let original = team.files.physical_name(&team.path, number);
            let copies = (0..levels).map(|level| {
                let copy = name::buddy(&team.path, level);
                // Copies stand in the file of the same number.
                team.files.physical_name(&copy, number)
            });
            std::iter::once(original).chain(copies).map(|name| (name, size, WRITER)).collect()
        }
        Body::Read(reading) => {
            let number = reading.here()?.stream.file_number();
            let size = reading.here()?.stream.cursor().total();
            vec![(team.files.physical_name(&team.path, number), size, READER)]
        }
    })
}

fn allocate(files: &[(PathBuf, u64, c_int)]) -> Result<*mut IoStat> {
    let names = files.iter().map(|(name, ..)| new_text(name.as_os_str().as_bytes()));
    let names: Vec<*const c_char> =
        names.map(|name| name.map(<*mut c_char>::cast_const)).collect::<Result<_>>()?;
    let sizes: Vec<usize> =
        files.iter().map(|(_, size, _)| usize::try_from(*size).unwrap_or(usize::MAX)).collect();
    let roles: Vec<c_int> = files.iter().map(|(.., role)| *role).collect();
    new_array(&[IoStat {
        file_count: count(files.len()),
        names: new_array(&names)?,
        sizes: new_array(&sizes)?,
        roles: new_array(&roles)?,
    }])
}

fn answer(sid: c_int, roles: c_int) -> Result<*mut IoStat> {
    let mut files = table::with(sid, files)?;
    files.retain(|(.., role)| role & roles != 0);
    allocate(&files)
}

export! {
    fn sion_get_io_info(sid: c_int) -> *mut IoStat, or null_mut(); {
        answer(sid, -1)
    }

    fn sion_get_io_info_by_spec(sid: c_int, roles: c_int, _flag: c_int) -> *mut IoStat,
        or null_mut();
    {
        answer(sid, roles)
    }

    fn sion_free_io_info(info: *mut IoStat) -> c_int, or 0; {
        // SAFETY: null or what `allocate` made.
        let stat = unsafe { info.as_ref() };
        let stat = stat.ok_or(Failure::Argument("the information is NULL"))?;
        let count = usize::try_from(stat.file_count).unwrap_or(0);
        // SAFETY: there is a name of each file.
        let names = unsafe { values_mut(stat.names, count) }?;
        let names = names.iter().map(|name| name.cast_mut().cast());
        let arrays = [stat.names.cast(), stat.sizes.cast(), stat.roles.cast(), info.cast()];
        for made in names.chain(arrays) {
            // SAFETY: `allocate` made each, the names before the array that they are read from.
            unsafe { libc::free(made) };
        }
        Ok(1)
    }
}
