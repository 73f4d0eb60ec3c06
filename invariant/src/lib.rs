//! Checks of conditions the code relies on.
//!
//! A broken invariant is a fault of this code. What a peer sends or a file contains is validated,
//! and refused with an error of its own; it cannot break one.
//!
//! `debug_assert!` is for code that cannot fail; `invariant!` for code that can say so.
#![no_std]
#![forbid(unsafe_code)]

pub mod edges;

/// Continues only if a condition holds: a debug build panics, a release build takes the way out
/// behind `else`, which refuses the call, or ends the session, instead of a wrong result.
///
/// With `some` the condition is that a value is there, and the macro's value is that value.
#[macro_export]
macro_rules! invariant {
    (some $value:expr, $rule:literal, else $out:expr) => {
        match $value {
            Some(value) => value,
            None => {
                $crate::broken($rule);
                $out
            }
        }
    };
    ($holds:expr, $rule:literal, else $out:expr) => {
        if !$holds {
            $crate::broken($rule);
            $out
        }
    };
}

/// The end of a debug build whose invariant does not hold.
///
/// # Panics
///
/// In debug builds.
#[cold]
#[track_caller]
pub const fn broken(rule: &str) {
    if cfg!(debug_assertions) {
        panic!("{}", rule);
    }
}

#[cfg(test)]
mod tests {
    fn half(of: u32) -> Option<u32> {
        invariant!(of % 2 == 0, "the number is even", else return None);
        Some(invariant!(some of.checked_div(2), "two is not zero", else return None))
    }

    #[test]
    fn held_invariant_continues() {
        assert_eq!(half(4), Some(2));
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "the number is even"))]
    fn broken_invariant_panics_or_takes_the_way_out() {
        assert_eq!(half(5), None);
    }
}
