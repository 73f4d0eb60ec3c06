//! `libkakehi_preload.so`.
#![no_std]

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` takes no arguments and may be called in any state.
    unsafe { libc::abort() }
}
