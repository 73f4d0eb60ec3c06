//! The page: one file of HTML with its style and pictures in it, and no script.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Name,
    figures::{Figure, Kind, PUBLICATIONS, Publication},
    plot::{self, Line, short},
    results::{Case, Match, Results, number},
    shown,
};
use crate::{html::escaped, options::word, spread::Spread};

/// That of the page of `kakehi run --report`, and what this one has more.
const STYLE: [&str; 2] =
    [include_str!("../../../cli/src/profile/report.css"), include_str!("page.css")];

/// The results of each bench.
pub(super) type Found = [(Name, Results)];

pub(super) fn text(found: &Found, time: Duration, is_quick: bool) -> String {
    let figures: Vec<String> = PUBLICATIONS.iter().map(|source| drawn(source, found)).collect();
    let body = figures.concat();
    let missing = body.matches("<b class=\"missing\">").count();
    let note = match missing {
        0 => "every figure is complete".to_owned(),
        1 => "1 figure is incomplete".to_owned(),
        many => format!("{many} figures are incomplete"),
    };
    let quick = if is_quick { " <code>--quick</code>: fewer cells and rounds." } else { "" };
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>kakehi bench all</title><style>{}</style></head><body><main>\
         <h1>kakehi bench all</h1><p class=\"about\">{}</p>\
         <p class=\"about\">Measured in {}; {note}.{quick} Points are medians, with the smallest \
         and the largest of the rounds.</p>\n{body}{}</main></body></html>\n",
        STYLE.concat(),
        machine(found),
        shown(time),
        cases(found),
    )
}

/// The machine, as the first bench that ran describes it.
fn machine(found: &Found) -> String {
    let Some((_, results)) = found.iter().find(|(_, it)| it.failure.is_none()) else {
        return "Nothing was measured.".to_owned();
    };
    let text = |field: &str| {
        let value = results.machine.get(field).unwrap_or(&serde_json::Value::Null);
        value.as_str().map_or_else(|| value.to_string(), str::to_owned)
    };
    let bytes = results.machine.get("memory_bytes").and_then(serde_json::Value::as_u64);
    escaped(&format!(
        "{}, {} cores, {} GiB, Linux {}; Kakehi {}, commit {}",
        text("cpu"),
        text("cores"),
        bytes.unwrap_or(0) >> 30,
        text("kernel"),
        env!("CARGO_PKG_VERSION"),
        text("commit"),
    ))
}

fn drawn(source: &Publication, found: &Found) -> String {
    let figures = source.figures.iter().map(|figure| {
        let results = found.iter().find(|(name, _)| *name == figure.bench).map(|(_, it)| it);
        figure_text(figure, results)
    });
    format!("<h2>{}</h2>{}\n", escaped(source.title), figures.collect::<String>())
}

fn figure_text(figure: &Figure, results: Option<&Results>) -> String {
    let none = Results::default();
    let results = results.unwrap_or(&none);
    let (picture, missing) = match &figure.kind {
        Kind::Lines { patterns, x, y, until } => lines(figure, results, patterns, [x, y], until),
        Kind::Grids { patterns, x, y } => grids(results, patterns, [x, y]),
        Kind::Table { patterns } => {
            table(&patterns.iter().flat_map(|pattern| results.matches(pattern)).collect::<Vec<_>>())
        }
    };
    let missing = results.failure.clone().or(missing);
    let mark = missing.map_or_else(String::new, |why| {
        format!("<p class=\"note\"><b class=\"missing\">[INCOMPLETE]</b> {}.</p>", escaped(&why))
    });
    format!(
        "<h3>{}</h3>{mark}{picture}<p class=\"note\">Reported: {} \
         Here: <code>kakehi bench {}</code>.</p>\n",
        escaped(figure.title),
        escaped(figure.reported),
        word(figure.bench),
    )
}

/// Why cases of a figure are missing.
fn missing(cases: &[Match<'_>]) -> Option<String> {
    let reasons: Vec<_> = cases.iter().filter_map(|it| it.case.value.as_ref().err()).collect();
    let mut counts = BTreeMap::new();
    reasons.iter().for_each(|why| *counts.entry(why.as_str()).or_insert(0_usize) += 1);
    let (why, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(format!("{} of {} cases: {why}", reasons.len(), cases.len()))
}

const NOTHING: &str = "no such case was run";

fn lines(
    figure: &Figure,
    results: &Results,
    patterns: &[&str],
    names: [&str; 2],
    until: &str,
) -> (String, Option<String>) {
    let mut lines: BTreeMap<String, Vec<(f64, Spread)>> = BTreeMap::new();
    let mut all = Vec::new();
    let mut words: Vec<(f64, String)> = Vec::new();
    let [_, unit] = names;
    for (index, pattern) in patterns.iter().enumerate() {
        // Other cases have such names, too.
        let found = results.matches(pattern).into_iter().filter(|it| number(&it.x).is_some());
        for found in found.filter(|it| it.case.unit == unit || it.case.value.is_err()) {
            if let (Some(x), Ok(spread)) = (number(&found.x), &found.case.value) {
                let name = line_name(&found, patterns, index);
                lines.entry(name).or_default().push((x, *spread));
                words.push((x, found.x.clone()));
            }
            all.push(found);
        }
    }
    let lines: Vec<_> = lines
        .into_iter()
        .map(|(name, mut points)| {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Line { name, points }
        })
        .collect();
    if lines.is_empty() {
        return (String::new(), missing(&all).or_else(|| Some(NOTHING.to_owned())));
    }
    let x_shown =
        |x: f64| words.iter().find(|(at, _)| *at == x).map_or(short(x), |(_, it)| it.clone());
    let picture = plot::lines(&lines, figure.title, names, x_shown);
    let most = words.iter().map(|(x, _)| *x).fold(0.0, f64::max);
    let is_short = number(until).is_some_and(|until| most < until);
    let short = || is_short.then(|| format!("the source goes up to {until}"));
    (picture, missing(&all).or_else(short))
}

/// A series' name: with the pattern's own words where there are several patterns.
fn line_name(found: &Match<'_>, patterns: &[&str], index: usize) -> String {
    let pattern = patterns.get(index).copied().unwrap_or_default();
    let own = pattern.split('/').filter(|part| {
        let is_letter = part.contains(['X', 'S']);
        let is_common = patterns.iter().all(|other| other.split('/').any(|it| it == *part));
        !is_letter && !is_common && !matches!(*part, "tcp" | "tmpfs" | "spin")
    });
    own.chain([found.series.as_str()]).collect::<Vec<_>>().join(", ")
}

fn grids(results: &Results, patterns: &[&str], names: [&str; 2]) -> (String, Option<String>) {
    let (mut pictures, mut all) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let found: Vec<_> = results
            .matches(pattern)
            .into_iter()
            .filter(|it| number(&it.x).is_some() && !it.series.contains(':'))
            .collect();
        let axis = |word: fn(&Match<'_>) -> String| {
            let mut words: Vec<_> =
                found.iter().filter(|it| it.case.value.is_ok()).map(|it| word(it)).collect();
            words.sort_by(|one, other| {
                number(one).unwrap_or(0.0).total_cmp(&number(other).unwrap_or(0.0))
            });
            words.dedup();
            words
        };
        let (columns, rows) = (axis(|it| it.x.clone()), axis(|it| it.y.clone()));
        let mut series: Vec<_> = found.iter().map(|it| it.series.as_str()).collect();
        series.sort_unstable();
        series.dedup();
        let title = |series: &str| {
            let kind: Vec<_> =
                pattern.split('/').filter(|part| !part.contains(['X', 'Y', 'S'])).collect();
            format!("{}: {series}", kind.join(" "))
        };
        for series in series {
            let value = |column: &str, row: &str| {
                let is_its = |it: &&Match<'_>| it.series == series && it.x == column && it.y == row;
                found.iter().find(is_its).and_then(|it| it.case.value.clone().ok())
            };
            let has_any = found.iter().any(|it| it.series == series && it.case.value.is_ok());
            if has_any {
                let title = title(series);
                let picture = plot::grid(&title, names, &columns, &rows, value);
                pictures.push(format!(
                    "<figure style=\"width:{:.0}px\"><figcaption>{}</figcaption>{picture}</figure>",
                    plot::grid_width(columns.len()),
                    escaped(&title)
                ));
            }
        }
        all.extend(found);
    }
    let why = if pictures.is_empty() { Some(NOTHING.to_owned()) } else { None };
    (format!("<div class=\"grids\">{}</div>", pictures.concat()), missing(&all).or(why))
}

fn table(found: &[Match<'_>]) -> (String, Option<String>) {
    let rows: String = found.iter().map(|it| row(it.case)).collect();
    let why = if found.is_empty() { Some(NOTHING.to_owned()) } else { None };
    (heads(&rows), missing(found).or(why))
}

fn heads(rows: &str) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<table><thead><tr><th>Case</th><th class=\"number\">Median</th>\
         <th class=\"number\">Smallest</th><th class=\"number\">Largest</th>\
         <th>Unit</th></tr></thead><tbody>{rows}</tbody></table>"
    )
}

fn row(case: &Case) -> String {
    let name = escaped(&case.name);
    match &case.value {
        Ok(Spread { median, min, max }) => {
            let numbers =
                [median, min, max].map(|it| format!("<td class=\"number\">{}</td>", short(*it)));
            let unit = if case.unit.is_empty() { "ratio" } else { &case.unit };
            format!("<tr><td>{name}</td>{}<td>{}</td></tr>", numbers.concat(), escaped(unit))
        }
        Err(why) => format!("<tr><td>{name}</td><td colspan=\"4\">{}</td></tr>", escaped(why)),
    }
}

/// Every case that was measured, behind a click.
fn cases(found: &Found) -> String {
    let mut text = "<h2>All cases</h2>".to_owned();
    for (name, results) in found {
        let all = results.rows().iter().chain(results.ratios());
        let rows: String = all.filter(|case| case.value.is_ok()).map(row).collect();
        let table = match &results.failure {
            Some(why) => format!("<p>{}</p>", escaped(why)),
            None => heads(&rows),
        };
        text += &format!("<details><summary>{}</summary>{table}</details>\n", word(*name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{super::PARTS, *};

    fn found(tasks: &str) -> Vec<(Name, Results)> {
        let of = |part: &super::super::Part| match part.name {
            Name::Tasks => Ok(tasks.to_owned()),
            _ => Err("it was not run".to_owned()),
        };
        PARTS.iter().map(|part| (part.name, Results::read(of(part)))).collect()
    }

    #[test]
    fn figures_without_cases_are_marked_with_the_reason() {
        let tasks = r#"{"rows": [
            {"case": "create/64/ext4/files", "value": 2.0, "min": 1.0, "max": 3.0, "unit": "ms"},
            {"case": "create/64/ext4/multifile", "value": 1, "min": 1, "max": 1, "unit": "ms"},
            {"case": "particles/10/write/native", "skipped": "no <mpicc>"}], "ratios": []}"#;
        let page = text(&found(tasks), Duration::from_secs(3), true);
        assert!(page.contains("[INCOMPLETE]</b> the source goes up to 65536"), "{page}");
        assert!(page.contains("[INCOMPLETE]</b> 1 of 1 cases: no &lt;mpicc&gt;"), "{page}");
        assert!(page.contains("[INCOMPLETE]</b> it was not run"), "{page}");
        assert!(page.contains("ext4, files: 2 (1 to 3)"), "{page}");
        for other in ["http:", "https:", "src=", "@import", "url(", "<script"] {
            assert!(!page.contains(other), "{other}");
        }
    }

    #[test]
    fn every_figure_names_its_source_and_bench() {
        for figure in PUBLICATIONS.iter().flat_map(|source| source.figures) {
            assert!(!figure.reported.is_empty() && !figure.title.is_empty());
            assert!(PARTS.iter().any(|part| part.name == figure.bench), "{}", figure.title);
        }
    }
}
