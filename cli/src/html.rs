//! Text of pages of HTML and of the pictures in them.
//!
//! `bench` has this file, too.

/// Text as HTML has it.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// A picture, with a text for who does not see it. It is never wider than drawn.
pub(crate) fn svg(width: f64, height: f64, title: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" style=\"max-width:{width:.0}px\" role=\"img\" \
         aria-label=\"{0}\"><title>{0}</title>{body}</svg>\n",
        escaped(title)
    )
}

/// A text in a picture.
pub(crate) fn label(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text))
}
