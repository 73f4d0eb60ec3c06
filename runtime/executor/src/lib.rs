//! One executor per core: tasks, timers, credits, vacancies, sources and the poll list.
//!
//! Makes no system call, reads no clock and starts no thread: the [`Clock`], the [`Park`] and every
//! [`Source`] are inputs. The same code therefore runs a daemon core, a seeded simulation, and
//! under Miri and loom.
//!
//! A turn of the loop (see [`Executor::turn`]) runs ready tasks for one *slice*, visits every
//! source with a counted budget, and polls at most one task of the throughput class. Between two
//! visits to a source lies at most one slice and one such poll, whatever else is ready: an empty
//! task queue is never a condition for visiting a source.
#![expect(missing_debug_implementations, reason = "what tasks share leads round in circles")]

mod all;
mod class;
mod credit;
mod executor;
mod first;
mod handle;
mod idle;
#[cfg(all(test, loom))]
mod loom_tests;
mod mail;
mod notify;
mod park;
mod periodic;
mod poll_list;
#[cfg(all(test, loom))]
mod poll_list_loom_tests;
mod savings;
mod source;
mod sync;
mod task;
mod time;
mod timers;
mod vacancies;
mod wakes;

pub use all::all;
pub use class::Class;
pub use credit::{Credit, Credits, Take};
pub use executor::{Config, Executor, QUIET};
pub use first::first;
pub use handle::{Counters, Handle, Sleep, YieldNow, yield_now};
pub use idle::Idle;
pub use mail::{Mailbox, Reply, Waiting, reply};
pub use notify::{Notified, Notify};
pub use park::{Park, Unpark};
pub use periodic::Periodic;
pub use poll_list::{Attendant, PollLists, SharedSource};
pub use source::{Armed, Source, SourceId};
pub use sync::lock;
pub use time::{Clock, Instant, ManualClock};
pub use vacancies::Vacancies;
