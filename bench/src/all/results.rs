//! The cases of a bench, as its JSON document has them, and those that a pattern names.

use serde_json::Value;

use crate::spread::Spread;

/// The cases of one bench.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Rows, then ratios: a ratio may have a row's name.
    rows: Vec<Case>,
    ratios: Vec<Case>,
    pub(super) machine: Value,
    /// Why there is nothing.
    pub(super) failure: Option<String>,
}

/// A case, measured or not.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) value: Result<Spread, String>,
}

/// A case that a pattern has found, with what stands for its letters.
#[derive(Clone, Debug)]
pub(super) struct Match<'a> {
    pub(super) case: &'a Case,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) series: String,
}

impl Results {
    /// Of a document.
    pub(super) fn read(text: Result<String, String>) -> Self {
        let document = text.and_then(|text| {
            serde_json::from_str::<Value>(&text).map_err(|why| format!("its JSON: {why}"))
        });
        match document {
            Ok(document) => Self {
                rows: cases(&document, "rows"),
                ratios: cases(&document, "ratios"),
                machine: document.get("machine").cloned().unwrap_or_default(),
                failure: None,
            },
            Err(why) => Self { failure: Some(why), ..Self::default() },
        }
    }

    pub(super) fn rows(&self) -> &[Case] {
        &self.rows
    }

    pub(super) fn ratios(&self) -> &[Case] {
        &self.ratios
    }

    /// The cases that `pattern` names: parts between slashes, of which `X`, `Y`, and `S` stand for
    /// any word, alone or behind `qd` or before `jobs` or `ranks`.
    pub(super) fn matches(&self, pattern: &str) -> Vec<Match<'_>> {
        let all = self.rows.iter().chain(&self.ratios);
        all.filter_map(|case| matched(pattern, case)).collect()
    }
}

fn cases(document: &Value, list: &str) -> Vec<Case> {
    let text = |case: &Value, field: &str| case.get(field)?.as_str().map(str::to_owned);
    let read = |case: &Value| {
        let number = |field: &str| case.get(field)?.as_f64();
        let name = text(case, "case").or_else(|| text(case, "name"))?;
        let value = match text(case, "skipped") {
            Some(why) => Err(why),
            None => Ok(Spread {
                median: number("value").or_else(|| number("median"))?,
                min: number("min")?,
                max: number("max")?,
            }),
        };
        Some(Case { name, unit: text(case, "unit").unwrap_or_default(), value })
    };
    let list = document.get(list).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(read).collect()
}

fn matched<'a>(pattern: &str, case: &'a Case) -> Option<Match<'a>> {
    let parts: Vec<_> = pattern.split('/').collect();
    let words: Vec<_> = case.name.split('/').collect();
    if parts.len() != words.len() {
        return None;
    }
    let mut found = Match { case, x: String::new(), y: String::new(), series: String::new() };
    for (part, word) in parts.into_iter().zip(words) {
        if part == word {
            continue;
        }
        let (before, letter, behind) = letter(part)?;
        let rest = word.strip_prefix(before)?.strip_suffix(behind)?;
        let to = match letter {
            'X' => &mut found.x,
            'Y' => &mut found.y,
            _ => &mut found.series,
        };
        if !to.is_empty() {
            to.push_str(", ");
        }
        to.push_str(rest);
    }
    Some(found)
}

/// A part of a pattern, divided at its letter.
fn letter(part: &str) -> Option<(&str, char, &str)> {
    let at = part.find(['X', 'Y', 'S'])?;
    let (before, rest) = part.split_at(at);
    let mut rest = rest.chars();
    Some((before, rest.next()?, rest.as_str()))
}

/// The number that a word of a case begins with, in bytes where it is a size.
pub(super) fn number(word: &str) -> Option<f64> {
    let digits = word.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = word.split_at_checked(digits)?;
    let times = match unit {
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        _ => 1.0,
    };
    Some(number.parse::<f64>().ok()? * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"machine": {}, "rows": [
        {"case": "create/64/ext4/files", "value": 2.0, "min": 1.0, "max": 3.0, "unit": "ms"},
        {"case": "create/1024/ext4/files", "skipped": "no room"},
        {"case": "write/4KiB/random/qd16/auto", "value": 5, "min": 5, "max": 5, "unit": "MB/s"}],
        "ratios": [{"name": "create/64/ext4", "median": 4.0, "min": 4.0, "max": 4.0}]}"#;

    #[test]
    fn pattern_finds_cases_by_their_words() {
        let results = Results::read(Ok(DOCUMENT.to_owned()));
        let found = results.matches("create/X/ext4/S");
        let words: Vec<_> = found.iter().map(|it| (it.x.as_str(), it.series.as_str())).collect();
        assert_eq!(words, [("64", "files"), ("1024", "files")]);
        assert!(found[1].case.value.is_err());
        let grid = results.matches("write/Y/random/qdX/auto");
        assert_eq!((grid[0].y.as_str(), grid[0].x.as_str()), ("4KiB", "16"));
        assert!(results.matches("write/Y/qdX/auto").is_empty());
    }

    #[test]
    fn document_that_is_none_gives_the_reason() {
        let results = Results::read(Err("no bench".to_owned()));
        assert_eq!(results.failure.as_deref(), Some("no bench"));
        assert!(Results::read(Ok("{".to_owned())).failure.is_some());
    }

    #[test]
    fn numbers_of_sizes_are_bytes() {
        assert_eq!(
            ["4KiB", "1MiB", "16", "x"].map(number),
            [Some(4096.0), Some(1_048_576.0), Some(16.0), None]
        );
    }
}
