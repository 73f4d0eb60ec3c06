//! Facts about handles and about this library.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::size_of_val,
};

use multifile::{codec::Order, header::Keyval as Stored};

use crate::{
    arrays::count,
    data::total,
    error::{Failure, Result},
    export::export,
    handle::{Body, Open},
    locations::arrays_len,
    mode::Keyval,
    mode::Kind,
    pointer::{InOut, values_mut},
    table,
};

const VERSION: [c_int; 4] = [1, 7, 6, 5];

const KEYVAL_NONE: c_int = 50;
const KEYVAL_INLINE: c_int = 51;

fn keyval(open: &Open) -> c_int {
    match &open.body {
        Body::Write(_) if open.mode.keyval == Keyval::Inline => KEYVAL_INLINE,
        Body::Write(_) => KEYVAL_NONE,
        Body::Read(reading) => match reading.set().keyval {
            Stored::None => KEYVAL_NONE,
            Stored::Inline => KEYVAL_INLINE,
            Stored::Other(mode) => count(mode),
        },
    }
}

fn keyval_name(mode: c_int) -> &'static CStr {
    match mode {
        50 => c"SION_KEYVAL_NONE",
        51 => c"SION_KEYVAL_INLINE",
        52 => c"SION_KEYVAL_META",
        53 => c"SION_KEYVAL_HASH",
        55 => c"SION_KEYVAL_NOTSET",
        _ => c"SION_KEYVAL_UNKNOWN",
    }
}

/// Byte order that the application says its data has.
fn data_order(open: &Open) -> Order {
    match &open.body {
        Body::Write(_) => open.mode.data_order(),
        Body::Read(reading) => reading.set().data_order,
    }
}

fn file_number(open: &mut Open) -> Result<c_int> {
    let alone = open.kind == Kind::Serial && file_count(open) == 1;
    match &mut open.body {
        // As the header of a serial writer's only file says.
        Body::Write(_) if alone => Ok(1),
        Body::Write(writing) => Ok(count(writing.file_number()?)),
        Body::Read(reading) => Ok(count(reading.file_number()?)),
    }
}

fn file_count(open: &Open) -> c_int {
    match &open.body {
        Body::Read(reading) => count(reading.set().file_count),
        Body::Write(writing) => {
            let last = writing.tasks.iter().map(|task| task.file).max().unwrap_or(0);
            open.file_count.unwrap_or_else(|| count(last.saturating_add(1)))
        }
    }
}

/// Memory and descriptors of a handle, as far as this layer knows.
fn weight(open: &Open) -> Result<(c_int, c_int)> {
    let (body, fds) = match &open.body {
        Body::Read(reading) => {
            let files = reading.reader().map_or(1, multifile::Reader::file_count);
            (size_of_val(&**reading), files + reading.streams.count())
        }
        Body::Write(writing) => {
            let tasks = size_of_val(&*writing.tasks);
            (size_of_val(&**writing) + tasks, 1 + writing.streams.count())
        }
    };
    Ok((count(size_of_val(open) + body + arrays_len(&open.arrays)?), count(fds)))
}

export! {
    fn sion_get_version(
        main_version: InOut<'_, c_int>,
        sub_version: InOut<'_, c_int>,
        patch_level: InOut<'_, c_int>,
        fileformat_version: InOut<'_, c_int>,
    ) -> c_int, or 0; {
        let targets = [main_version, sub_version, patch_level, fileformat_version];
        for (target, value) in targets.into_iter().zip(VERSION) {
            target.put(value);
        }
        Ok(1)
    }

    fn sion_is_thread_safe() -> c_int, or 0; {
        Ok(1)
    }

    fn sion_using_hints(sid: c_int) -> c_int, or -1; {
        table::with(sid, |_| Ok(0))
    }

    fn sion_is_serial_opened(sid: c_int) -> c_int, or -1; {
        table::with(sid, |open| Ok(c_int::from(matches!(open.kind, Kind::Serial | Kind::Rank))))
    }

    fn sion_get_number_of_files(sid: c_int) -> c_int, or -1; {
        table::with(sid, |open| Ok(file_count(open)))
    }

    fn sion_get_filenumber(sid: c_int) -> c_int, or -1; {
        table::with(sid, file_number)
    }

    fn sion_get_endianness() -> c_int, or -1; {
        Ok(c_int::from(Order::NATIVE == Order::Big))
    }

    fn sion_get_file_endianness(sid: c_int) -> c_int, or -1; {
        table::with(sid, |open| Ok(c_int::from(data_order(open) == Order::Big)))
    }

    fn sion_endianness_swap_needed(sid: c_int) -> c_int, or -1; {
        table::with(sid, |open| Ok(c_int::from(data_order(open) != Order::NATIVE)))
    }

    fn sion_get_keyval_mode(sid: c_int) -> c_int, or -1; {
        table::with(sid, |open| Ok(keyval(open)))
    }

    fn sion_keyval_type_to_str(kind: c_int) -> *mut c_char, or std::ptr::null_mut(); {
        Ok(keyval_name(kind).as_ptr().cast_mut())
    }

    fn sion_get_sizeof(
        sid: c_int,
        numbytes: InOut<'_, c_int>,
        numfds: InOut<'_, c_int>,
    ) -> c_int, or 0; {
        let (bytes, fds) = table::with(sid, |open| weight(open))?;
        numbytes.put(bytes);
        numfds.put(fds);
        Ok(1)
    }

    fn sion_swap(
        target: *mut c_void,
        source: *mut c_void,
        size: c_int,
        n: c_int,
        do_swap: c_int,
    ) -> (), or (); {
        let wrong = Failure::Argument("sion_swap: NULL or a negative size");
        let (Ok(size), Ok(count)) = (usize::try_from(size), usize::try_from(n)) else {
            return Err(wrong);
        };
        if target.is_null() || source.is_null() {
            return Err(wrong);
        }
        let len = total(size, count)?;
        if target != source {
            // SAFETY: the caller passes arrays of that many elements, which do not overlap.
            unsafe { target.copy_from_nonoverlapping(source, len) };
        }
        if do_swap != 0 {
            // SAFETY: the target has that many elements.
            let elements = unsafe { values_mut(target.cast::<u8>(), len) }?;
            elements.chunks_exact_mut(size.max(1)).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}
