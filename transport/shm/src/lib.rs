//! Memory shared by a client and the daemon.
#![no_std]
