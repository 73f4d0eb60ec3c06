//! Which of so many places nobody has. The first is given out first: those in use then lie
//! together, in memory, in caches, and, taken one after the other, in order.

/// Places from 0 on that nobody has.
#[derive(Debug)]
pub struct Vacancies {
    /// A bit for each place.
    words: Box<[u64]>,
    /// All words before it are zero.
    start: usize,
    count: usize,
}

impl Vacancies {
    /// `count` places, all vacant.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let mut words = vec![u64::MAX; count.div_ceil(64)].into_boxed_slice();
        if let (Some(last), rest @ 1..) = (words.last_mut(), count % 64) {
            *last = (1 << rest) - 1;
        }
        Self { words, start: 0, count }
    }

    /// Takes the first.
    pub fn take(&mut self) -> Option<usize> {
        let mut rest = self.words.iter_mut().enumerate().skip(self.start);
        let (at, word) = rest.find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        self.start = at;
        self.count -= 1;
        Some(at * 64 + bit)
    }

    /// Makes a place vacant that was taken.
    pub fn give_back(&mut self, place: usize) {
        let (at, bit) = (place / 64, 1 << (place % 64));
        if let Some(word) = self.words.get_mut(at) {
            debug_assert_eq!(*word & bit, 0, "place {place} was not taken");
            *word |= bit;
            self.start = self.start.min(at);
            self.count += 1;
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_places_are_given_out_in_order_and_none_twice() {
        for count in [0, 1, 63, 64, 65, 128, 1000] {
            let mut vacancies = Vacancies::new(count);
            let given: Vec<_> = std::iter::from_fn(|| vacancies.take()).collect();
            assert_eq!(given, (0..count).collect::<Vec<_>>());
            assert_eq!(vacancies.count(), 0);
        }
    }

    /// Against a set, in random order: a linear congruence, so that it also runs under Miri.
    #[test]
    fn the_first_vacancy_is_given_out_whatever_came_back() {
        let (mut vacancies, mut model) = (Vacancies::new(200), (0..200).collect::<BTreeSet<_>>());
        let (mut taken, mut state) = (Vec::new(), 1_u64);
        for _ in 0..5_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (state >> 33) as usize;
            if number % 2 == 0 || taken.is_empty() {
                let place = vacancies.take();
                assert_eq!(place, model.pop_first());
                taken.extend(place);
            } else {
                let place = taken.swap_remove(number / 2 % taken.len());
                vacancies.give_back(place);
                model.insert(place);
            }
            assert_eq!(vacancies.count(), model.len());
        }
    }
}
