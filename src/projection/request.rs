//! A request template put to work: every argument encoded for the place it stands in, so that no value can
//! change the route, add a header or end a path early.

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::spec::{BodyNode, BodySpec, Place, RequestSpec};
use super::template::{Piece, Template, plain, present};
use super::upload;
use crate::call::{ErrorCode, HttpBody, HttpRequest, ToolError};
use crate::diagnostic::{Diagnostics, did_you_mean};
use crate::json::{self, Object};

/// Everything but RFC 3986's unreserved characters is encoded.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A checked request template.
#[derive(Debug, Clone)]
pub(super) struct Request {
    spec: RequestSpec,
    /// Arguments that the template names itself; `body = "*"` takes the others.
    used: BTreeSet<String>,
}

impl Request {
    /// Checks that every placeholder is an argument of the tool's input schema.
    pub(super) fn compile(
        spec: &RequestSpec,
        place: &Place,
        input_schema: &Value,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let empty = Object::new();
        let properties = input_schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let mut used = BTreeSet::new();
        let mut check = |name: &str, offset: usize| {
            used.insert(name.to_owned());
            if properties.contains_key(name) {
                return;
            }
            let help = match did_you_mean(name, properties.keys().map(String::as_str)) {
                Some(near) => format!("did you mean `{{{near}}}`?"),
                None => "add it to `input_schema.properties`".to_owned(),
            };
            let message = format!("`{{{name}}}` is not an argument of this tool");
            diagnostics.push(place.error_at(offset, "unknown-argument", message).help(help));
        };
        let pairs = spec.query.iter().chain(&spec.headers).map(|(_, t)| t);
        let form = match &spec.body {
            BodySpec::Form(pairs) | BodySpec::Multipart(pairs) => pairs.as_slice(),
            _ => &[],
        };
        for template in std::iter::once(&spec.path).chain(pairs).chain(form.iter().map(|(_, t)| t)) {
            template.value.arguments().for_each(|name| check(name, template.offset));
        }
        match &spec.body {
            BodySpec::Argument(name) | BodySpec::Raw(name) => check(&name.value, name.offset),
            BodySpec::Json(node, offset) => node.arguments(&mut |name| check(name, *offset)),
            BodySpec::Empty | BodySpec::Rest | BodySpec::Form(_) | BodySpec::Multipart(_) => {}
        }
        Self { spec: spec.clone(), used }
    }

    /// The request for one call, defaults already filled in.
    pub(super) fn build(&self, args: &Object) -> Result<HttpRequest, ToolError> {
        Ok(HttpRequest {
            method: self.spec.method.clone(),
            path: path(&self.spec.path.value, args)?,
            query: pairs(self.spec.query.iter().map(|(n, t)| (n, &t.value)), args)?,
            headers: headers(self.spec.headers.iter().map(|(n, t)| (n, &t.value)), args)?,
            body: self.body(args)?,
        })
    }

    /// Whether an argument is sent as bytes, so that a file in its place keeps its name and type.
    pub(super) fn sends_bytes_of(&self, argument: &str) -> bool {
        match &self.spec.body {
            BodySpec::Raw(name) => name.value == argument,
            BodySpec::Multipart(form) => form.iter().any(|(_, t)| t.value.whole() == Some(argument)),
            _ => false,
        }
    }

    fn body(&self, args: &Object) -> Result<Option<HttpBody>, ToolError> {
        Ok(match &self.spec.body {
            BodySpec::Empty => None,
            BodySpec::Argument(name) => present(args, &name.value).cloned().map(HttpBody::Json),
            BodySpec::Rest => {
                let rest = args.iter().filter(|(name, _)| !self.used.contains(*name));
                Some(HttpBody::Json(Value::Object(rest.map(|(k, v)| (k.clone(), v.clone())).collect())))
            }
            BodySpec::Json(node, _) => node.fill(args).map(HttpBody::Json),
            BodySpec::Form(form) => {
                Some(HttpBody::Form(pairs(form.iter().map(|(n, t)| (n, &t.value)), args)?))
            }
            BodySpec::Raw(name) => {
                present(args, &name.value).map(|value| upload::raw(&name.value, value)).transpose()?
            }
            BodySpec::Multipart(form) => {
                let mut parts = Vec::new();
                for (name, template) in form {
                    match template.value.whole() {
                        Some(argument) => {
                            let value = present(args, argument);
                            value.map_or(Ok(()), |v| upload::parts(name, argument, v, &mut parts))?;
                        }
                        None => parts.extend(template.value.fill(args).map(|t| upload::text_part(name, t))),
                    }
                }
                Some(HttpBody::Multipart(parts))
            }
        })
    }
}

impl BodyNode {
    fn arguments(&self, found: &mut impl FnMut(&str)) {
        match self {
            Self::Literal(_) => {}
            Self::Text(template) => template.arguments().for_each(found),
            Self::List(items) => items.iter().for_each(|i| i.arguments(found)),
            Self::Table(members) => members.iter().for_each(|(_, m)| m.arguments(found)),
        }
    }

    /// The value; `None` where its argument is absent.
    fn fill(&self, args: &Object) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Text(template) => match template.whole() {
                Some(name) => present(args, name).cloned(),
                None => template.fill(args).map(Value::from),
            },
            Self::List(items) => Some(Value::Array(items.iter().filter_map(|i| i.fill(args)).collect())),
            Self::Table(members) => Some(Value::Object(
                members.iter().filter_map(|(k, m)| Some((k.clone(), m.fill(args)?))).collect(),
            )),
        }
    }
}

/// Headers that belong to the upstream's own settings or to the connection, never to a tool.
const HEADERS_REFUSED: [&str; 8] = [
    "authorization",
    "host",
    "cookie",
    "content-length",
    "transfer-encoding",
    "connection",
    "proxy-authorization",
    "upgrade",
];

/// Whether a tool may not set a header (its name in lower case), or it is no header name at all.
pub(super) fn refused_header(lower: &str) -> bool {
    let token = !lower.is_empty()
        && lower.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    !token || HEADERS_REFUSED.contains(&lower)
}

/// One path segment, encoded; `None` for what cannot be one: empty, `.`, `..`.
pub(super) fn encode_segment(text: &str) -> Option<String> {
    (!matches!(text, "" | "." | "..")).then(|| utf8_percent_encode(text, SEGMENT).to_string())
}

fn invalid(name: &str, why: &str) -> ToolError {
    ToolError::new(ErrorCode::InvalidArgument, format!("the argument `{name}` {why}"))
        .field(format!("/{}", json::pointer_token(name)))
}

/// Refuses what has no plain text.
fn flat<'a>(name: &str, value: &'a Value) -> Result<&'a Value, ToolError> {
    let nested = |v: &Value| v.is_object() || v.is_array();
    match value {
        Value::Object(_) => Err(invalid(name, "is an object; a text, a number or a list is expected here")),
        Value::Array(items) if items.iter().any(nested) => {
            Err(invalid(name, "is a list of lists or objects; a flat list is expected here"))
        }
        _ => Ok(value),
    }
}

/// Every argument becomes one encoded segment (or several, for `{*name}`), never empty, `.` or `..`.
fn path(template: &Template, args: &Object) -> Result<String, ToolError> {
    let mut out = String::new();
    for piece in &template.0 {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Argument { name, segments } => {
                let value =
                    present(args, name).ok_or_else(|| invalid(name, "is missing: it is part of the path"))?;
                let text = plain(flat(name, value)?);
                let parts: Vec<&str> =
                    if *segments { text.trim_matches('/').split('/').collect() } else { vec![&text] };
                for (i, part) in parts.iter().enumerate() {
                    if i > 0 {
                        out.push('/');
                    }
                    let encoded = encode_segment(part);
                    out.push_str(&encoded.ok_or_else(|| {
                        invalid(name, "must not be empty, `.` or `..`, nor have such a segment")
                    })?);
                }
            }
        }
    }
    // A literal beside an argument could still join to `..`.
    if out.split('/').any(|s| s == "." || s == "..") {
        return Err(ToolError::new(ErrorCode::InvalidArgument, "the arguments would climb out of the path"));
    }
    Ok(out)
}

/// Pairs of a query or a form; absent arguments drop their pair, a list repeats it.
fn pairs<'a>(
    templates: impl Iterator<Item = (&'a String, &'a Template)>,
    args: &Object,
) -> Result<Vec<(String, String)>, ToolError> {
    let mut out = Vec::new();
    for (name, template) in templates {
        for argument in template.arguments() {
            if let Some(value) = present(args, argument) {
                flat(argument, value)?;
            }
        }
        match template.whole().and_then(|a| present(args, a)) {
            Some(Value::Array(items)) => {
                out.extend(items.iter().map(|item| (name.clone(), plain(item))));
            }
            _ => out.extend(template.fill(args).map(|text| (name.clone(), text))),
        }
    }
    Ok(out)
}

fn headers<'a>(
    templates: impl Iterator<Item = (&'a String, &'a Template)>,
    args: &Object,
) -> Result<Vec<(String, String)>, ToolError> {
    let mut out = Vec::new();
    for (name, template) in templates {
        let Some(text) = template.fill(args) else { continue };
        if text.chars().any(|c| c.is_control() || !c.is_ascii()) {
            let argument = template.arguments().next().unwrap_or(name);
            return Err(invalid(argument, "has a character that a header cannot carry"));
        }
        out.push((name.clone(), text.trim().to_owned()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::{PackSources, ProjectionSpec};
    use super::*;
    use crate::diagnostic::SourceFile;
    use crate::settings;

    fn compile(toml: &str, schema: &Value) -> (Request, Vec<String>) {
        let mut diagnostics = Diagnostics::default();
        let file = SourceFile::new("upstream.toml", toml);
        let spec = settings::read(&file, &mut diagnostics, |s| {
            ProjectionSpec::read(s, &Arc::new(PackSources::default()))
        })
        .unwrap();
        let request = Request::compile(&spec.request.unwrap(), &spec.place, schema, &mut diagnostics);
        (request, diagnostics.0.iter().map(|d| format!("{}:{} {}", d.line, d.column, d.message)).collect())
    }

    fn build(toml: &str, schema: &Value, args: &Value) -> Result<HttpRequest, ToolError> {
        let (request, found) = compile(toml, schema);
        assert_eq!(found, Vec::<String>::new());
        request.build(args.as_object().unwrap())
    }

    fn schema(names: &[&str]) -> Value {
        json!({"type": "object", "properties": names.iter().map(|n| ((*n).to_owned(), json!({}))).collect::<Object>()})
    }

    #[test]
    fn arguments_are_encoded_and_absent_ones_drop_their_pair() {
        let toml = "request = { path = \"/r/{owner}/c/{*file}\", query = { q = \"{q}\", l = \"{labels}\", p = \"{page}\", s = \"x-{q}\" }, headers = { X-Mode = \"{mode}\" } }";
        let schema =
            json!({"properties": {"owner": {}, "file": {}, "q": {}, "labels": {}, "page": {}, "mode": {}}});
        let args =
            json!({"owner": "a/b?c", "file": "src/ü.rs", "labels": ["x", "y&z"], "page": 1, "mode": null});
        let request = build(toml, &schema, &args).unwrap();
        assert_eq!(request.path, "/r/a%2Fb%3Fc/c/src/%C3%BC.rs");
        assert_eq!(
            request.query,
            [("l", "x"), ("l", "y&z"), ("p", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert!(request.headers.is_empty() && request.body.is_none());
    }

    #[test]
    fn values_cannot_leave_their_place() {
        let toml = "request = { path = \"/a/{id}\", headers = { x-k = \"{k}\" }, query = { q = \"{q}\" } }";
        let schema = schema(&["id", "k", "q"]);
        for bad in [
            json!({"id": ".."}),
            json!({"id": ""}),
            json!({}),
            json!({"id": {}}),
            json!({"id": "x", "k": "a\r\nb: c"}),
            json!({"id": "x", "q": {"a": 1}}),
        ] {
            let error = build(toml, &schema, &bad).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{bad}");
        }
        let climbing =
            build("request = { path = \"/a/{*p}\" }", &self::schema(&["p"]), &json!({"p": "x/../y"}));
        assert!(climbing.is_err());
    }

    #[test]
    fn bodies_keep_types() {
        let schema = schema(&["id", "title", "labels", "note"]);
        let args = json!({"id": 7, "title": "t", "labels": [1], "note": null});
        let body = |toml: &str| build(toml, &schema, &args).unwrap().body;
        assert_eq!(
            body("request = { path = \"/{id}\", body = \"*\" }"),
            Some(HttpBody::Json(json!({"title": "t", "labels": [1], "note": null})))
        );
        assert_eq!(body("request = { path = \"/\", body = \"labels\" }"), Some(HttpBody::Json(json!([1]))));
        assert_eq!(
            body(
                "request = { path = \"/\", body = { t = \"{title}!\", n = \"{note}\", l = \"{labels}\", k = [\"{id}\", 2] } }"
            ),
            Some(HttpBody::Json(json!({"t": "t!", "l": [1], "k": [7, 2]})))
        );
        assert_eq!(
            body("request = { path = \"/\", form = { a = \"{id}\", b = \"{note}\" } }"),
            Some(HttpBody::Form(vec![("a".to_owned(), "7".to_owned())]))
        );
    }

    #[test]
    fn files_are_sent_as_bytes() {
        let schema = schema(&["file", "note"]);
        let args = json!({"file": {"base64": "aGk=", "filename": "a.txt", "content_type": "text/plain"}, "note": "n"});
        let toml = "request = { method = \"POST\", path = \"/\", multipart = { upload = \"{file}\", note = \"x {note}\" } }";
        let (request, found) = compile(toml, &schema);
        assert!(found.is_empty() && request.sends_bytes_of("file") && !request.sends_bytes_of("note"));
        let Some(HttpBody::Multipart(parts)) = build(toml, &schema, &args).unwrap().body else { panic!() };
        assert_eq!((parts[0].file_name.as_deref(), &parts[0].bytes[..]), (Some("a.txt"), &b"hi"[..]));
        assert_eq!((parts[1].name.as_str(), &parts[1].bytes[..]), ("note", &b"x n"[..]));
        let raw = "request = { method = \"PUT\", path = \"/\", raw = \"file\" }";
        let Some(HttpBody::Raw { content_type, bytes }) = build(raw, &schema, &args).unwrap().body else {
            panic!()
        };
        assert_eq!((content_type.as_str(), &bytes[..]), ("text/plain", &b"hi"[..]));
        let both = "request = { path = \"/\", raw = \"file\", form = { a = \"{note}\" } }";
        assert_eq!(compile(both, &schema).1, ["1:11 `form` and `raw` exclude each other"]);
    }

    #[test]
    fn unknown_placeholders_are_told() {
        let (_, found) = compile("request = { path = \"/{ownr}\", body = \"payload\" }", &schema(&["owner"]));
        assert_eq!(
            found,
            [
                "1:20 `{ownr}` is not an argument of this tool",
                "1:38 `{payload}` is not an argument of this tool"
            ]
        );
    }

    proptest! {
        #[test]
        fn a_path_keeps_its_segments(value in "\\PC{1,20}") {
            let (request, _) = compile("request = { path = \"/a/{id}/b\" }", &schema(&["id"]));
            if let Ok(built) = request.build(json!({"id": value}).as_object().unwrap()) {
                let parts: Vec<&str> = built.path.split('/').collect();
                prop_assert_eq!(parts.len(), 4);
                prop_assert_eq!((parts[1], parts[3]), ("a", "b"));
                prop_assert_eq!(percent_encoding::percent_decode_str(parts[2]).decode_utf8_lossy(), value);
            }
        }
    }
}
