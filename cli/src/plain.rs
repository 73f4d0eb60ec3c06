//! Texts for people: without the numbers that Rust adds to the kernel's reasons, `(os error 2)`.
//!
//! `bench` has this file, too.

/// The same text without these numbers.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => text + rest,
        _ => text + " (os error " + part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_errors_are_left_out() {
        let why = std::io::Error::from_raw_os_error(2);
        let line = without_numbers(&format!("a: {why}; b: {why}, c (os error x)"));
        let reason = "No such file or directory";
        assert_eq!(line, format!("a: {reason}; b: {reason}, c (os error x)"));
    }
}
