//! Requests that a trace shows: both sides choose the same ones, by their numbers.

/// Numbers up to this are all chosen, and so many of each doubling beyond.
const DENSE: u32 = 32;

/// True if a trace shows the request of this number: of a long series a few hundred.
#[must_use]
pub const fn is_sampled(number: u32) -> bool {
    let step = number / DENSE;
    // A power of two: each of 64, each second one up to 128, and so on.
    step < 2 || number % (1 << step.ilog2()) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_are_chosen_and_fewer_of_later_ones() {
        assert!((0..2 * DENSE).all(is_sampled));
        let chosen = |from: u32| (from..2 * from).filter(|number| is_sampled(*number)).count();
        assert_eq!([1024, 4096, 1 << 20].map(chosen), [DENSE as usize; 3]);
    }
}
