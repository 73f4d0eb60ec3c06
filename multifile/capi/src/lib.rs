//! libsion: multifiles for programs in C, C++, and Fortran, with SIONlib's interface.
//!
//! The headers in `include/` are the interface; every function has its line there. `table` keeps
//! the handles, `reading` and `writing` are what is behind one, `parallel` opens and closes with
//! many ranks through the seam of `sion_group.h`, which `generic` fills from callbacks and C files
//! fill for MPI and OpenMP. The format itself is the crate `multifile`.
//!
//! # Trust
//!
//! The caller is trusted to pass valid pointers of the lengths it states, as any C library must.
//! Files are not trusted: `multifile` checks them. No panic crosses the border.

mod arrays;
mod callbacks;
mod config;
mod data;
mod descriptors;
mod error;
mod exit;
mod export;
mod files;
mod generic;
mod group;
mod handle;
mod info;
mod io_info;
mod keys;
mod last_error;
mod legacy;
mod locations;
mod mapped;
mod mode;
mod parallel;
mod pointer;
mod reading;
mod serial;
mod stream;
mod table;
mod writing;
