//! `sioncat`: streams one after the other.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use multifile::Reader;

use super::options::Options;
use crate::{
    failure::{Code, Failure},
    multifile::{Stopped, beside::Beside, copy_stream, damage, file_failure, inputs, open, stream},
};

/// A parsed command line.
struct Cat<'a> {
    path: &'a Path,
    reader: Reader<File>,
    tasks: std::ops::Range<usize>,
    block: Option<usize>,
    verbose: bool,
}

pub(super) fn cat(options: &Options) -> Result<(), Failure> {
    let path = options.path(0);
    let reader = open(path)?;
    let number = |letter| -> Result<Option<usize>, Failure> {
        Ok(options.number(letter)?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    };
    let all = 0..reader.task_count();
    let tasks = match number(b't')? {
        Some(task) if all.contains(&task) => task..task + 1,
        Some(task) => return Err(absent(path, "task", task, all.end)),
        None => all,
    };
    let block = number(b'b')?;
    let blocks = reader.block_count() as usize;
    if let Some(block) = block.filter(|block| *block >= blocks) {
        return Err(absent(path, "block", block, blocks));
    }
    let cat = Cat { path, reader, tasks, block, verbose: options.has(b'v') };
    let Some(output) = options.value(b'o').map(Path::new) else {
        return match cat.write(&mut io::stdout().lock()) {
            Ok(damaged) => damage::judge(path, &damaged),
            Err(why) => why.unless_left(),
        };
    };
    let (beside, name) = Beside::for_file(output, true, inputs(&cat.reader))?;
    let made = File::create_new(beside.path(&name));
    let mut made = made.map_err(|why| file_failure(output, &why))?;
    let damaged = cat.write(&mut made).map_err(|why| why.on(output))?;
    beside.publish()?;
    damage::judge(path, &damaged)
}

impl Cat<'_> {
    /// Writes the streams, and returns the tasks whose data differs from its checksums.
    fn write(&self, to: &mut impl Write) -> Result<Vec<usize>, Stopped> {
        let mut damaged = Vec::new();
        for task in self.tasks.clone() {
            let stream = stream(&self.reader, self.path, task).map_err(Stopped::Reading)?;
            if self.verbose {
                let len = stream.cursor().total();
                // Diagnostics that nobody reads are no failure.
                writeln!(io::stderr(), "sioncat: task {task}: {len} bytes").ok();
            }
            copy_stream(self.path, task, stream, self.block, to, &mut |_| Ok(()))?;
            if damage::differs(&self.reader, self.path, task).map_err(Stopped::Reading)? {
                damaged.push(task);
            }
        }
        to.flush().map_err(Stopped::Writing)?;
        Ok(damaged)
    }
}

fn absent(path: &Path, what: &str, index: usize, count: usize) -> Failure {
    let why = format!("there is no {what} {index}, only {count}");
    Failure::new(Code::Failure, path.display(), why, "see siondump -a")
}
