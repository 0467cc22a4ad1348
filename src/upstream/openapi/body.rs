//! Filling the body of a request from arguments: JSON, forms, multipart with files, raw bytes.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::Value;

use super::encode::{Pairs, Style, scalar};
use super::operation::{given, missing, refused};
use crate::call::{HttpBody, HttpRequest, Part, ToolError};
use crate::json::{self, Object};

/// How the body of an operation is made.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub required: bool,
    pub media: Media,
    pub shape: Shape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Media {
    /// JSON under its media type.
    Json(Box<str>),
    Form,
    Multipart,
    Raw(Box<str>),
}

#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// Members of an object are arguments of their own; `open` takes arguments that nobody else knows as
    /// further members.
    Members { fields: Box<[Field]>, open: bool },
    /// One argument is the body.
    Whole { argument: Box<str>, fields: Box<[Field]> },
    /// Text as it is, or bytes in base64.
    Raw { text: Option<Box<str>>, base64: Option<Box<str>> },
}

/// A member of a body and the argument that fills it.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub argument: Box<str>,
    pub name: Box<str>,
    pub required: bool,
    pub coding: Coding,
}

/// How a member is written where the body is not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Coding {
    /// Scalars as text, lists of scalars one by one, anything else as JSON text.
    Auto,
    Style(Style, bool),
    /// A part of this content type.
    Typed(Box<str>),
    /// A file, of this content type unless the argument says another.
    File(Option<Box<str>>),
}

const AUTO: Coding = Coding::Auto;

impl Body {
    /// Sets the request's body. `is_parameter` tells names that fill other parts of the request.
    pub(super) fn fill(
        &self,
        args: &Object,
        is_parameter: impl Fn(&str) -> bool,
        request: &mut HttpRequest,
    ) -> Result<(), ToolError> {
        let content_type = |request: &mut HttpRequest, kind: &str| {
            request.headers.push(("content-type".to_owned(), kind.to_owned()));
        };
        let body = match (&self.shape, &self.media) {
            (Shape::Raw { text, base64 }, media) => {
                let kind = match media {
                    Media::Raw(kind) | Media::Json(kind) => kind.as_ref(),
                    Media::Form | Media::Multipart => "application/octet-stream",
                };
                Self::raw(args, text.as_deref(), base64.as_deref())?
                    .map(|bytes| HttpBody::Raw { content_type: kind.to_owned(), bytes })
            }
            (Shape::Whole { argument, .. }, Media::Json(kind)) => {
                let value = args.get(&**argument).cloned();
                if value.is_some() && &**kind != "application/json" {
                    content_type(request, kind);
                }
                value.map(HttpBody::Json)
            }
            (Shape::Members { fields, open }, Media::Json(kind)) => {
                let members = Self::members(args, fields, *open, &is_parameter);
                let map = self.checked(fields, args, members)?;
                if map.is_some() && &**kind != "application/json" {
                    content_type(request, kind);
                }
                map.map(|m| {
                    HttpBody::Json(Value::Object(
                        m.into_iter().map(|(f, v)| (f.to_owned(), v.clone())).collect(),
                    ))
                })
            }
            (Shape::Members { fields, open }, media) => {
                let members = Self::members(args, fields, *open, &is_parameter);
                match self.checked(fields, args, members)? {
                    Some(members) => Some(coded(media, &members, fields)?),
                    None => None,
                }
            }
            (Shape::Whole { argument, fields }, media) => match given(args, argument) {
                Some(Value::Object(map)) => {
                    let members: Vec<(&str, &Value)> = map.iter().map(|(k, v)| (k.as_str(), v)).collect();
                    Some(coded(media, &members, fields)?)
                }
                Some(_) => return Err(refused(argument, "it must be an object")),
                None => None,
            },
        };
        if body.is_none() && self.required {
            let argument = match &self.shape {
                Shape::Whole { argument, .. } => argument.as_ref(),
                Shape::Raw { text, base64 } => text.as_deref().or(base64.as_deref()).unwrap_or("body"),
                Shape::Members { .. } => "body",
            };
            return Err(missing(argument));
        }
        request.body = body;
        Ok(())
    }

    fn members<'a>(
        args: &'a Object,
        fields: &'a [Field],
        open: bool,
        is_parameter: &impl Fn(&str) -> bool,
    ) -> Vec<(&'a str, &'a Value)> {
        let known = fields.iter().filter_map(|f| Some((&*f.name, args.get(&*f.argument)?)));
        let further = args.iter().filter(|(name, _)| {
            open && !is_parameter(name) && !fields.iter().any(|f| *f.argument == **name || *f.name == **name)
        });
        known.chain(further.map(|(name, value)| (name.as_str(), value))).collect()
    }

    /// No member at all is no body where none is required; a body that is begun needs its required members.
    fn checked<'a>(
        &self,
        fields: &[Field],
        args: &Object,
        members: Vec<(&'a str, &'a Value)>,
    ) -> Result<Option<Vec<(&'a str, &'a Value)>>, ToolError> {
        if members.is_empty() && !self.required {
            return Ok(None);
        }
        match fields.iter().find(|f| f.required && !args.contains_key(&*f.argument)) {
            Some(field) => Err(missing(&field.argument)),
            None => Ok(Some(members)),
        }
    }

    fn raw(args: &Object, text: Option<&str>, base64: Option<&str>) -> Result<Option<Bytes>, ToolError> {
        if let Some((name, value)) = base64.and_then(|name| Some((name, given(args, name)?))) {
            let encoded = value.as_str().ok_or_else(|| refused(name, "it must be a text in base64"))?;
            return decode(encoded).map(Some).ok_or_else(|| refused(name, "it is not base64 (RFC 4648)"));
        }
        Ok(text.and_then(|name| given(args, name)).map(|v| Bytes::from(scalar(v))))
    }
}

fn coding<'a>(fields: &'a [Field], name: &str) -> (&'a Coding, Option<&'a str>) {
    fields
        .iter()
        .find(|f| &*f.name == name)
        .map_or((&AUTO, None), |f| (&f.coding, Some(f.argument.as_ref()).filter(|a| !a.is_empty())))
}

fn coded(media: &Media, members: &[(&str, &Value)], fields: &[Field]) -> Result<HttpBody, ToolError> {
    if *media == Media::Multipart {
        let mut parts = Vec::new();
        for (name, value) in members {
            let (coding, argument) = coding(fields, name);
            let argument = argument.unwrap_or(name);
            if name.contains(char::is_control) {
                return Err(refused(argument, "its name has control characters"));
            }
            multipart(name, argument, value, coding, &mut parts)?;
        }
        return Ok(HttpBody::Multipart(parts));
    }
    let mut pairs: Pairs = Vec::new();
    for (name, value) in members.iter().filter(|(_, v)| !v.is_null()) {
        let (coding, argument) = coding(fields, name);
        let written = match coding {
            Coding::Style(style, explode) => style.as_pairs(*explode, name, value),
            Coding::Typed(kind) if is_json(kind) => Style::Json.as_pairs(false, name, value),
            Coding::Auto | Coding::Typed(_) | Coding::File(_) => match value {
                Value::Object(_) => Style::Json.as_pairs(false, name, value),
                Value::Array(items) if items.iter().any(|v| v.is_array() || v.is_object()) => {
                    Style::Json.as_pairs(false, name, value)
                }
                value => Style::Form.as_pairs(true, name, value),
            },
        };
        pairs.extend(written.map_err(|p| refused(argument.unwrap_or(name), &p))?);
    }
    Ok(HttpBody::Form(pairs))
}

fn multipart(
    name: &str,
    argument: &str,
    value: &Value,
    coding: &Coding,
    parts: &mut Vec<Part>,
) -> Result<(), ToolError> {
    let part = |content_type: Option<&str>, bytes: Vec<u8>| Part {
        name: name.to_owned(),
        file_name: None,
        content_type: content_type.map(str::to_owned),
        bytes: Bytes::from(bytes),
    };
    match (coding, value) {
        (_, Value::Null) => {}
        (Coding::File(_) | Coding::Auto, Value::Array(items)) => {
            for item in items {
                multipart(name, argument, item, coding, parts)?;
            }
        }
        (Coding::File(kind), value) => parts.push(file(name, argument, value, kind.as_deref())?),
        (Coding::Style(style, explode), value) => {
            let pairs = style.as_pairs(*explode, name, value).map_err(|p| refused(argument, &p))?;
            parts.extend(pairs.into_iter().map(|(name, text)| Part {
                name,
                file_name: None,
                content_type: None,
                bytes: Bytes::from(text),
            }));
        }
        (Coding::Typed(kind), value) if is_json(kind) => parts.push(part(Some(kind), json::to_bytes(value))),
        (Coding::Typed(kind), value) => parts.push(part(Some(kind), scalar(value).into_bytes())),
        (Coding::Auto, Value::Object(_)) => parts.push(part(Some("application/json"), json::to_bytes(value))),
        (Coding::Auto, value) => parts.push(part(None, scalar(value).into_bytes())),
    }
    Ok(())
}

/// A file argument: `{filename?, content_type?, text | base64}`, or a bare text.
fn file(name: &str, argument: &str, value: &Value, kind: Option<&str>) -> Result<Part, ToolError> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let bytes = match (value.as_str(), text("base64"), text("text")) {
        (Some(plain), ..) => Bytes::from(plain.to_owned()),
        (_, Some(encoded), _) => {
            decode(encoded).ok_or_else(|| refused(argument, "`base64` is not base64 (RFC 4648)"))?
        }
        (_, None, Some(plain)) => Bytes::from(plain.to_owned()),
        _ => return Err(refused(argument, "a file needs either `base64` or `text`")),
    };
    let file_name = text("filename").unwrap_or(name);
    let content_type = text("content_type").or(kind).unwrap_or("application/octet-stream");
    let plain_type =
        content_type.bytes().all(|b| b.is_ascii_graphic() || b == b' ') && content_type.contains('/');
    if file_name.contains(char::is_control) || !plain_type {
        return Err(refused(argument, "`filename` or `content_type` has characters that no header may have"));
    }
    Ok(Part {
        name: name.to_owned(),
        file_name: Some(file_name.to_owned()),
        content_type: Some(content_type.to_owned()),
        bytes,
    })
}

pub(super) fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or(kind).trim();
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}

/// Base64 in either alphabet, with or without padding; line breaks are skipped.
fn decode(text: &str) -> Option<Bytes> {
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
        .iter()
        .find_map(|engine| engine.decode(&text).ok())
        .map(Bytes::from)
}
