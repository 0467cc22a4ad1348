//! Parameters: gathering those of an operation, and writing a value where its parameter belongs.

use serde_json::Value;

use super::document::{At, Documents, Version};
use super::encode::{Pairs, Problem, Style};
use super::operation::Location;

/// A parameter of a request and the argument that fills it.
#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub argument: Box<str>,
    pub name: Box<str>,
    pub location: Location,
    pub style: Style,
    pub explode: bool,
    pub required: bool,
}

impl Parameter {
    pub(super) fn segment(&self, value: &Value) -> Result<String, Problem> {
        self.style.in_path(self.explode, &self.name, value)
    }

    pub(super) fn pairs(&self, value: &Value) -> Result<Pairs, Problem> {
        self.style.as_pairs(self.explode, &self.name, value)
    }

    pub(super) fn header(&self, value: &Value) -> Result<String, Problem> {
        self.style.in_header(self.explode, value)
    }
}

/// A parameter as the document declares it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Declared<'d> {
    pub at: At<'d>,
    pub name: &'d str,
    pub location: Location,
    /// Swagger 2's `formData`: a field of a form body, rather than the body itself.
    pub is_form_field: bool,
}

/// Headers that HTTP itself or docent sets. The first three are to be ignored by the specification
/// (OpenAPI 3.1 §4.8.12.2.1); the others would break the message or reach the connection.
const NOT_FOR_ARGUMENTS: [&str; 13] = [
    "accept",
    "content-type",
    "authorization",
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "cookie",
    "proxy-authorization",
];

/// Whether a header may be an argument.
pub(super) fn is_argument_header(name: &str) -> bool {
    !NOT_FOR_ARGUMENTS.iter().any(|n| name.eq_ignore_ascii_case(n))
}

/// The parameters of an operation: those of its path, replaced by its own of the same name and place. The error
/// names one that cannot be read, for without it the operation cannot be called as it is meant.
pub(super) fn gather<'d>(
    documents: &'d Documents,
    path_item: At<'d>,
    operation: At<'d>,
) -> Result<Vec<Declared<'d>>, String> {
    let mut list: Vec<Declared<'d>> = Vec::new();
    for declared in path_item.items("parameters").chain(operation.items("parameters")) {
        let (at, _) =
            documents.resolve(declared).map_err(|why| format!("a parameter is not known: {why}"))?;
        let place = at.text("in").ok_or("a parameter does not say where it is `in`")?;
        let name = at.text("name").ok_or("a parameter has no name")?;
        let (location, is_form_field) = match place {
            "path" => (Location::Path, false),
            "query" => (Location::Query, false),
            "header" => (Location::Header, false),
            "cookie" => (Location::Cookie, false),
            "body" => (Location::Body, false),
            "formData" => (Location::Body, true),
            other => {
                return Err(format!(
                    "the parameter `{name}` is in `{other}`, which is no place of a request"
                ));
            }
        };
        let new = Declared { at, name, location, is_form_field };
        let same = list.iter_mut().find(|d| {
            d.location == location
                && d.is_form_field == is_form_field
                && (d.name == name || location == Location::Header && d.name.eq_ignore_ascii_case(name))
        });
        match same {
            Some(old) => *old = new,
            None => list.push(new),
        }
    }
    Ok(list)
}

impl<'d> Declared<'d> {
    /// The schema: under `schema`, under a `content` entry, or (Swagger 2) the parameter itself.
    pub(super) fn schema(&self, version: Version) -> Option<At<'d>> {
        if version == Version::Swagger2 {
            return Some(self.at);
        }
        self.at.get("schema").or_else(|| self.content()?.get("schema"))
    }

    fn content(&self) -> Option<At<'d>> {
        self.at.members("content").next().map(|(_, media)| media)
    }

    /// How the value is written.
    pub(super) fn style(&self, version: Version) -> (Style, bool) {
        if version == Version::Swagger2 {
            return collection_format(self.at, self.location);
        }
        if self.at.get("schema").is_none() && self.content().is_some() {
            return (Style::Json, false);
        }
        style(self.at, self.location)
    }
}

/// `style` and `explode`, with the defaults of the place. `allowReserved` changes nothing: it lets a client leave
/// reserved characters as they are, and encoded they mean the same.
pub(super) fn style(at: At<'_>, location: Location) -> (Style, bool) {
    let default =
        if matches!(location, Location::Path | Location::Header) { Style::Simple } else { Style::Form };
    let style = match (at.text("style"), location) {
        (Some("label"), Location::Path) => Style::Label,
        (Some("matrix"), Location::Path) => Style::Matrix,
        (Some("spaceDelimited"), Location::Query | Location::Body) => Style::Space,
        (Some("pipeDelimited"), Location::Query | Location::Body) => Style::Pipe,
        (Some("deepObject"), Location::Query | Location::Body) => Style::DeepObject,
        _ => default,
    };
    let explode = at.value.get("explode").and_then(Value::as_bool).unwrap_or(style == Style::Form);
    (style, explode)
}

/// Swagger 2's `collectionFormat`, at the parameter or at its items.
pub(super) fn collection_format(at: At<'_>, location: Location) -> (Style, bool) {
    let plain =
        if matches!(location, Location::Path | Location::Header) { Style::Simple } else { Style::Form };
    match at.text("collectionFormat") {
        Some("multi") => (Style::Form, true),
        Some("ssv") => (Style::Space, false),
        Some("tsv") => (Style::Tab, false),
        Some("pipes") => (Style::Pipe, false),
        _ => (plain, false),
    }
}
