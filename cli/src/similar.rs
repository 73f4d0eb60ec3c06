//! "Did you mean …": the known word that is closest to one that nobody knows.

/// Words that differ more than this are not alike.
const ALIKE: f64 = 0.75;

/// The word of `known` that `word` may have been meant to be.
pub(crate) fn similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|other| (strsim::jaro_winkler(word, other), other));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= ALIKE).then_some(best.1)
}

/// `, did you mean 'X'?` or nothing, for the end of a reason.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    similar(word, known).map_or_else(String::new, |found| format!(", did you mean '{found}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = ["interrupt", "park", "spin", "poll-idle"];
        assert_eq!(similar("prak", known), Some("park"));
        assert_eq!(similar("poll_idle", known), Some("poll-idle"));
        assert_eq!(similar("7", known), None);
        assert_eq!(did_you_mean("delegte", ["delegate"]), ", did you mean 'delegate'?");
        assert_eq!(did_you_mean("xyz", ["delegate"]), "");
    }
}
