//! Workers in real processes, over TCP and shared memory.

mod bounds;
mod child;
mod death;
mod echo;
mod idle;
mod lent;
mod library;
mod shares;
mod strangers;
mod support;
