//! How one value becomes text in a path, a query, a header or a cookie: the styles of OpenAPI 3 (after
//! RFC 6570) and the collection formats of Swagger 2.
//!
//! Values are arguments of a caller, hence hostile: a path value never leaves its segment, a header value never
//! its line, and a list whose element contains the list's own delimiter is refused rather than sent ambiguously.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::json;

/// Everything but the unreserved characters of RFC 3986 §2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Levels of a `deepObject` value: deeper ones are sent as JSON text.
const DEEP_OBJECT_LEVELS_MAX: usize = 8;

/// How a list or an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Pipe,
    /// Swagger 2's `tsv`.
    Tab,
    DeepObject,
    /// A parameter described by `content`: the value as JSON text.
    Json,
}

/// A value that cannot be sent where it belongs: what is wrong and what to do, without the value.
pub(super) type Problem = String;

/// Pairs of a query, a form or a cookie, decoded.
pub(super) type Pairs = Vec<(String, String)>;

/// Percent-encodes one text for a path or a cookie.
pub(super) fn percent(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// A scalar as text; anything nested as JSON text.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => json::to_text(other),
    }
}

impl Style {
    fn delimiter(self) -> &'static str {
        match self {
            Self::Space => " ",
            Self::Pipe => "|",
            Self::Tab => "\t",
            _ => ",",
        }
    }

    /// The value as it stands in a path template, percent-encoded; delimiters of the style stay as they are.
    pub(super) fn in_path(self, explode: bool, name: &str, value: &Value) -> Result<String, Problem> {
        let name = percent(name);
        let text = |v: &Value| percent(&scalar(v));
        let pair = |(k, v): (&String, &Value)| format!("{}={}", percent(k), text(v));
        let flat = |(k, v): (&String, &Value)| format!("{},{}", percent(k), text(v));
        let joined = |parts: Vec<String>, by: &str| parts.join(by);
        let named = |t: String| if t.is_empty() { format!(";{name}") } else { format!(";{name}={t}") };
        let out = match (self, value) {
            (Self::Json, v) => percent(&json::to_text(v)),
            (Self::Label, Value::Array(a)) => {
                format!(".{}", joined(a.iter().map(text).collect(), if explode { "." } else { "," }))
            }
            (Self::Label, Value::Object(o)) if explode => {
                format!(".{}", joined(o.iter().map(pair).collect(), "."))
            }
            (Self::Label, Value::Object(o)) => format!(".{}", joined(o.iter().map(flat).collect(), ",")),
            (Self::Label, v) => format!(".{}", text(v)),
            (Self::Matrix, Value::Array(a)) if explode => a.iter().map(|v| named(text(v))).collect(),
            (Self::Matrix, Value::Array(a)) => named(joined(a.iter().map(text).collect(), ",")),
            (Self::Matrix, Value::Object(o)) if explode => {
                format!(";{}", joined(o.iter().map(pair).collect(), ";"))
            }
            (Self::Matrix, Value::Object(o)) => named(joined(o.iter().map(flat).collect(), ",")),
            (Self::Matrix, v) => named(text(v)),
            (_, Value::Array(a)) => joined(a.iter().map(text).collect(), &percent_delimiter(self)),
            (_, Value::Object(o)) if explode => joined(o.iter().map(pair).collect(), ","),
            (_, Value::Object(o)) => joined(o.iter().map(flat).collect(), ","),
            (_, v) => text(v),
        };
        if out.is_empty() {
            return Err("it stands in the path and must not be empty".to_owned());
        }
        Ok(out)
    }

    /// The value as decoded pairs. An empty list is no pair at all.
    pub(super) fn as_pairs(self, explode: bool, name: &str, value: &Value) -> Result<Pairs, Problem> {
        let one = |text: String| vec![(name.to_owned(), text)];
        Ok(match (self, value) {
            (Self::Json, v) => one(json::to_text(v)),
            (Self::DeepObject, v @ (Value::Object(_) | Value::Array(_))) => {
                let mut out = Vec::new();
                deep(name, v, DEEP_OBJECT_LEVELS_MAX, &mut out);
                out
            }
            (_, Value::Array(items)) if explode => {
                items.iter().map(|v| (name.to_owned(), scalar(v))).collect()
            }
            (_, Value::Array(items)) if items.is_empty() => Vec::new(),
            (_, Value::Array(items)) => one(self.join(items.iter().map(scalar))?),
            (_, Value::Object(map)) if explode => map.iter().map(|(k, v)| (k.clone(), scalar(v))).collect(),
            (_, Value::Object(map)) => one(self.join(map.iter().flat_map(|(k, v)| [k.clone(), scalar(v)]))?),
            (_, v) => one(scalar(v)),
        })
    }

    /// The value of a header line (style `simple`).
    pub(super) fn in_header(self, explode: bool, value: &Value) -> Result<String, Problem> {
        let text = match (self, value) {
            (Self::Json, v) => json::to_text(v),
            (_, Value::Array(items)) => self.join(items.iter().map(scalar))?,
            (_, Value::Object(map)) if explode => {
                self.join(map.iter().map(|(k, v)| format!("{k}={}", scalar(v))))?
            }
            (_, Value::Object(map)) => self.join(map.iter().flat_map(|(k, v)| [k.clone(), scalar(v)]))?,
            (_, v) => scalar(v),
        };
        header_value(&text)?;
        Ok(text)
    }

    fn join(self, parts: impl Iterator<Item = String>) -> Result<String, Problem> {
        let delimiter = self.delimiter();
        let parts: Vec<String> = parts.collect();
        if parts.iter().any(|p| p.contains(delimiter)) {
            return Err(format!(
                "it is sent as a list separated by {delimiter:?}, so no element may contain {delimiter:?}; give the elements one by one"
            ));
        }
        Ok(parts.join(delimiter))
    }
}

fn percent_delimiter(style: Style) -> String {
    if matches!(style, Style::Space | Style::Pipe | Style::Tab) {
        percent(style.delimiter())
    } else {
        ",".to_owned()
    }
}

/// `filter[a][0]=x`: numbers tell elements of lists of objects apart, which `[]` cannot.
fn deep(name: &str, value: &Value, levels: usize, out: &mut Pairs) {
    match value {
        Value::Object(map) if levels > 0 => {
            for (key, inner) in map {
                deep(&format!("{name}[{key}]"), inner, levels - 1, out);
            }
        }
        Value::Array(items) if levels > 0 => {
            for (i, inner) in items.iter().enumerate() {
                deep(&format!("{name}[{i}]"), inner, levels - 1, out);
            }
        }
        v => out.push((name.to_owned(), scalar(v))),
    }
}

/// Whether a text may stand in a header line: visible ASCII, blanks and tabs (RFC 9110 §5.5 without obs-text).
pub(super) fn header_value(text: &str) -> Result<(), Problem> {
    if text.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b)) {
        Ok(())
    } else {
        Err("it is sent as a header, so it must be ASCII without line breaks or control characters"
            .to_owned())
    }
}

/// Whether a text is a header name (a token of RFC 9110 §5.6.2).
pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(style: Style, explode: bool, value: &Value) -> String {
        style.in_path(explode, "color", value).unwrap()
    }

    #[test]
    fn path_styles_are_those_of_the_specification() {
        let (text, list, map) = (json!("blue"), json!(["blue", "black"]), json!({"R": 100, "G": 200}));
        for (style, explode, expected) in [
            (Style::Simple, false, ["blue", "blue,black", "R,100,G,200"]),
            (Style::Simple, true, ["blue", "blue,black", "R=100,G=200"]),
            (Style::Label, false, [".blue", ".blue,black", ".R,100,G,200"]),
            (Style::Label, true, [".blue", ".blue.black", ".R=100.G=200"]),
            (Style::Matrix, false, [";color=blue", ";color=blue,black", ";color=R,100,G,200"]),
            (Style::Matrix, true, [";color=blue", ";color=blue;color=black", ";R=100;G=200"]),
        ] {
            let found =
                [path(style, explode, &text), path(style, explode, &list), path(style, explode, &map)];
            assert_eq!(found, expected, "{style:?} {explode}");
        }
        assert_eq!(path(Style::Matrix, false, &json!("")), ";color");
        assert_eq!(path(Style::Simple, false, &json!("a/b?c#d\\e%2f ü")), "a%2Fb%3Fc%23d%5Ce%252f%20%C3%BC");
        assert_eq!(path(Style::Simple, false, &json!(["a,b", "c"])), "a%2Cb,c");
        assert!(Style::Simple.in_path(false, "x", &json!("")).is_err());
    }

    #[test]
    fn query_styles_are_those_of_the_specification() {
        let (list, map) = (json!(["blue", "black"]), json!({"R": 100, "G": 200}));
        let pairs = |style: Style, explode, value: &Value| {
            let found = style.as_pairs(explode, "color", value).unwrap();
            found.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&")
        };
        assert_eq!(pairs(Style::Form, true, &list), "color=blue&color=black");
        assert_eq!(pairs(Style::Form, false, &list), "color=blue,black");
        assert_eq!(pairs(Style::Form, true, &map), "R=100&G=200");
        assert_eq!(pairs(Style::Form, false, &map), "color=R,100,G,200");
        assert_eq!(pairs(Style::Space, false, &list), "color=blue black");
        assert_eq!(pairs(Style::Pipe, false, &list), "color=blue|black");
        assert_eq!(pairs(Style::Pipe, true, &list), "color=blue&color=black");
        assert_eq!(pairs(Style::Tab, false, &list), "color=blue\tblack");
        assert_eq!(pairs(Style::DeepObject, true, &map), "color[R]=100&color[G]=200");
        assert_eq!(
            pairs(Style::DeepObject, true, &json!({"a": {"b": [1, {"c": true}]}})),
            "color[a][b][0]=1&color[a][b][1][c]=true"
        );
        assert_eq!(pairs(Style::Json, true, &map), r#"color={"R":100,"G":200}"#);
        assert_eq!(pairs(Style::Form, false, &json!([])), "");
        assert!(
            Style::Form.as_pairs(false, "c", &json!(["a,b"])).unwrap_err().contains("','")
                || Style::Form.as_pairs(false, "c", &json!(["a,b"])).unwrap_err().contains("\",\"")
        );
    }

    #[test]
    fn headers_stay_on_their_line() {
        let header = |v: Value| Style::Simple.in_header(false, &v);
        assert_eq!(header(json!(["a", "b"])).unwrap(), "a,b");
        assert_eq!(Style::Simple.in_header(true, &json!({"R": 1})).unwrap(), "R=1");
        for bad in ["a\r\nx: y", "a\nb", "a\0", "ü", "\u{7f}"] {
            assert!(header(json!(bad)).is_err(), "{bad:?}");
        }
        assert!(header(json!(["a,b"])).is_err());
        assert!(is_header_name("X-A_b") && !is_header_name("a b") && !is_header_name(""));
    }
}
