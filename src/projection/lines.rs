//! Text output to records: what a command prints becomes a JSON list that the mapping or a script reads.

use super::spec::LinesSpec;
use crate::json;

impl LinesSpec {
    /// The records of a text as a JSON list of objects. Columns that a record lacks stay absent.
    pub(super) fn to_json(&self, text: &str) -> String {
        let mut out = String::from("[");
        let records = text
            .split(self.record_separator.as_str())
            .map(|r| r.trim_matches(|c| c == '\n' || c == '\r'))
            .filter(|r| !r.is_empty())
            .skip(self.skip);
        for (i, record) in records.enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push('{');
            for (j, (name, value)) in self.columns.iter().zip(self.split(record)).enumerate() {
                if j > 0 {
                    out.push(',');
                }
                out.push_str(&json::to_text(name));
                out.push(':');
                let trimmed = value.trim();
                if self.numbers.contains(name) && is_number(trimmed) {
                    out.push_str(trimmed);
                } else {
                    out.push_str(&json::to_text(value));
                }
            }
            out.push('}');
        }
        out.push(']');
        out
    }

    /// As many parts as there are columns; the last one keeps the rest.
    fn split<'a>(&self, record: &'a str) -> Vec<&'a str> {
        let count = self.columns.len().max(1);
        match &self.separator {
            Some(separator) => record.splitn(count, separator.as_str()).collect(),
            None => {
                let mut parts = Vec::with_capacity(count);
                let mut rest = record.trim();
                while parts.len() + 1 < count {
                    let Some((head, tail)) = rest.split_once(char::is_whitespace) else { break };
                    parts.push(head);
                    rest = tail.trim_start();
                }
                parts.push(rest);
                parts
            }
        }
    }
}

/// Whether a text is a JSON number as it stands.
fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c == '-' || c.is_ascii_digit())
        && serde_json::from_str::<serde_json::Number>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(columns: &[&str], separator: Option<&str>, record: &str, skip: usize) -> LinesSpec {
        LinesSpec {
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            separator: separator.map(str::to_owned),
            record_separator: record.to_owned(),
            skip,
            numbers: vec!["n".to_owned()],
        }
    }

    #[test]
    fn text_becomes_records() {
        let spec = lines(&["n", "who", "what"], Some("\t"), "\n", 1);
        assert_eq!(
            spec.to_json("HEAD\n12\ta\tx\ty\n-\tb\"\n\n"),
            r#"[{"n":12,"who":"a","what":"x\ty"},{"n":"-","who":"b\""}]"#
        );
        let blanks = lines(&["n", "name"], None, "\n", 0);
        assert_eq!(
            blanks.to_json("  1   a b  \n00012345678901234567890 c\r\n"),
            r#"[{"n":1,"name":"a b"},{"n":"00012345678901234567890","name":"c"}]"#
        );
        assert_eq!(lines(&["f"], Some("\t"), "\0", 0).to_json("a\nb\0c\0"), r#"[{"f":"a\nb"},{"f":"c"}]"#);
        assert_eq!(blanks.to_json(""), "[]");
    }
}
