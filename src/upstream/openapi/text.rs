//! Texts of a document made fit for models: no markup, no control characters, bounded.

/// Characters of a tool's description: what OpenAI takes of a function's description.
pub(super) const TOOL_CHARS_MAX: usize = 1_024;
/// Characters of an argument's description.
pub(super) const ARGUMENT_CHARS_MAX: usize = 400;
/// Characters of a description inside a schema: models read the first sentence, Stripe writes pages.
pub(super) const NESTED_CHARS_MAX: usize = 200;
/// Characters of a title.
pub(super) const TITLE_CHARS_MAX: usize = 120;

/// The text without HTML tags, control characters and runs of blanks, at most `max` characters, cut behind a
/// sentence or a word where that keeps at least half.
pub(super) fn clean(text: &str, max: usize) -> String {
    // Four times the bound is enough to find it after the markup is gone, and bounds the work.
    let head: String = text.chars().take(max.saturating_mul(4)).collect();
    let plain = without_tags(&head);
    let mut out = String::with_capacity(plain.len().min(max * 2));
    let mut breaks = 0usize;
    let mut blank = false;
    for c in plain.chars() {
        if c == '\n' {
            breaks += 1;
        } else if c.is_whitespace() || c.is_control() {
            blank = true;
        } else {
            if !out.is_empty() {
                match breaks {
                    0 if blank => out.push(' '),
                    0 => {}
                    1 => out.push('\n'),
                    _ => out.push_str("\n\n"),
                }
            }
            (breaks, blank) = (0, false);
            out.push(c);
        }
    }
    bound(out, max)
}

fn bound(text: String, max: usize) -> String {
    if text.chars().count() <= max {
        return text;
    }
    let cut: String = text.chars().take(max.saturating_sub(1)).collect();
    let half = cut.len() / 2;
    let end = cut
        .rfind(". ")
        .map(|i| i + 1)
        .filter(|i| *i >= half)
        .or_else(|| cut.rfind(char::is_whitespace).filter(|i| *i >= half))
        .unwrap_or(cut.len());
    format!("{}…", cut.get(..end).unwrap_or(&cut).trim_end())
}

/// Drops `<tag …>` and `</tag>`, and gives the five named entities their characters. A `<` that opens no tag
/// (as in `a < b`) stays.
fn without_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        out.push_str(before);
        let opens = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!');
        match after.split_once('>').filter(|(tag, _)| opens && tag.len() <= 200 && !tag.contains('<')) {
            Some((tag, tail)) => {
                let name = tag.trim_start_matches('/');
                if ["p", "br", "li", "div", "ul", "tr"]
                    .iter()
                    .any(|b| name.trim_end_matches('/').trim() == *b)
                {
                    out.push('\n');
                }
                rest = tail;
            }
            None => {
                out.push('<');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    if out.contains('&') {
        for (entity, c) in
            [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
        {
            out = out.replace(entity, c);
        }
    }
    out
}

/// Summary and description as one text; the summary once only.
pub(super) fn description(summary: &str, description: &str, fallback: &str) -> String {
    let summary = clean(summary, TITLE_CHARS_MAX * 2);
    let long = clean(description, TOOL_CHARS_MAX);
    let whole = match (summary.is_empty(), long.is_empty()) {
        (true, true) => fallback.to_owned(),
        (true, false) => long,
        (false, true) => summary,
        (false, false) if long.starts_with(summary.trim_end_matches('.')) => long,
        (false, false) => format!("{summary}\n\n{long}"),
    };
    bound(whole, TOOL_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_goes_and_text_stays() {
        assert_eq!(
            clean("<p>One <b>two</b>\u{7}</p>\r\n\r\n\r\nthree  a &lt; b", 100),
            "One two\n\nthree a < b"
        );
        assert_eq!(clean("if a < b and c > d", 100), "if a < b and c > d");
    }

    #[test]
    fn a_cut_ends_behind_a_sentence_or_a_word() {
        assert_eq!(clean("First one. Second one is long", 15), "First one.…");
        assert_eq!(clean("aaaa bbbb cccc dddd", 12), "aaaa bbbb…");
        assert_eq!(clean("äöüäöüäöü", 4), "äöü…");
    }

    #[test]
    fn a_summary_is_not_told_twice() {
        assert_eq!(description("List pets.", "List pets of a shop", "x"), "List pets of a shop");
        assert_eq!(description("List pets", "By page.", "x"), "List pets\n\nBy page.");
        assert_eq!(description("", "", "GET /pets"), "GET /pets");
    }
}
