//! Multifiles: the data of many tasks in a few physical files, laid out as SIONlib lays it out.
//!
//! The bytes are described in `docs/reference/format.md`; the tests cite its rules.
//!
//! # Modules
//!
//! - *Format:* `header`, `layout`, `blocks`, `keyval`, `mark`, `sums`, `codec`, `name`, `journal`,
//!   `catalogue` (names of files).
//! - *Writing:* `plan` and `packing` (what will be where), `writer`, `task_writer`, `output`,
//!   `repeats` (writes that the journal leaves out), `finish`, `growing` (tasks added meanwhile).
//! - *Reading:* `physical`, `reader`, `cursor`, `backing` (what the stored bytes can vouch for).
//! - *Repair:* `repair`, `estimate` (without a journal), `whole` (is there nothing to repair).
//! - *By many ranks:* `parallel`, `group`.
//! - *Both ends:* `storage`, `error`.

#![forbid(unsafe_code)]

#[macro_use]
extern crate invariant;

mod backing;
mod blocks;
pub mod catalogue;
pub mod codec;
mod cursor;
pub mod error;
mod estimate;
mod finish;
pub mod group;
mod growing;
pub mod header;
pub mod journal;
pub mod keyval;
pub mod layout;
mod mark;
pub mod name;
mod output;
mod packing;
pub mod parallel;
mod physical;
mod plan;
mod reader;
mod repair;
mod repeats;
pub mod storage;
mod sums;
mod task_writer;
mod whole;
mod writer;

pub use blocks::Table;
pub use cursor::{Cursor, Fill};
pub use error::{Argument, Error, Part, Result};
pub use group::Group;
pub use growing::{Growing, Held, NewFile, Peek, Untold};
pub use packing::Packing;
pub use parallel::{ParReader, ParWriter};
pub use plan::{NewTask, Options, Style};
pub use reader::{Reader, Task, TaskReader};
pub use repair::{Doubt, FoundTask, Repair};
pub use storage::{Disk, Naming, Storage};
pub use task_writer::TaskWriter;
pub use writer::Writer;
