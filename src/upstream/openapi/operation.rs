//! An operation as docent calls it: arguments in, an HTTP request out.
//!
//! The request stays below the upstream's address whatever the arguments are: it has no host and no scheme,
//! every path value stays inside its segment, and no argument reaches a place where a credential goes.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::body::Body;
use super::encode::{Problem, percent};
use super::parameter::Parameter;
use super::security::{CredentialPlace, Requirement};
use crate::call::{ErrorCode, HttpRequest, ToolError};
use crate::json::{self, Object};

/// A part of a request that an argument fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Location {
    /// A segment of the path.
    Path,
    /// The query.
    Query,
    /// A header.
    Header,
    /// The `Cookie` header.
    Cookie,
    /// The body.
    Body,
}

impl Location {
    /// The word of the documents: `path`, `query`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
            Self::Body => "body",
        }
    }
}

/// An argument whose name is not the one of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    /// The argument's name.
    pub argument: String,
    /// Where its value goes.
    pub location: Location,
    /// The name there.
    pub name: String,
}

/// A piece of a path: text as it is sent, or the number of the parameter that stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Box<str>),
    Parameter(usize),
}

/// How calls of one operation become requests.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(super) method: &'static str,
    pub(super) template: Arc<str>,
    pub(super) pieces: Box<[Piece]>,
    /// Query that the path template itself holds (`/?Action=List`).
    pub(super) fixed_query: Box<[(String, String)]>,
    pub(super) parameters: Box<[Parameter]>,
    pub(super) body: Option<Body>,
    pub(super) accept: Option<Arc<str>>,
    pub(super) guarded: Arc<[CredentialPlace]>,
    pub(super) security: Arc<[Vec<Requirement>]>,
    pub(super) renames: Box<[Rename]>,
}

impl Operation {
    /// The method, in upper case.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// The path as the document writes it, e.g. `/users/{id}`.
    pub fn path_template(&self) -> &str {
        &self.template
    }

    /// Whether the method promises to change nothing (RFC 9110 §9.2.1).
    pub fn is_read_only(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
    }

    /// Alternatives of credentials that it needs; none means that it needs none.
    pub fn security(&self) -> &[Vec<Requirement>] {
        &self.security
    }

    /// Arguments whose names are not those of the document.
    pub fn renames(&self) -> &[Rename] {
        &self.renames
    }

    /// The media types it answers with, as an `Accept` header; `None` where the document says nothing.
    pub fn accept(&self) -> Option<&str> {
        self.accept.as_deref()
    }

    /// The request of a call. The arguments are expected to fit the tool's schema; what still cannot be sent is
    /// `INVALID_ARGUMENT` with the argument's name.
    pub fn request(&self, args: &Object) -> Result<HttpRequest, ToolError> {
        let path = self.path(args)?;
        let mut query: Vec<(String, String)> = self.fixed_query.to_vec();
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut cookies: Vec<(String, String)> = Vec::new();
        for parameter in &self.parameters {
            let Some(value) = given(args, &parameter.argument) else {
                if parameter.required {
                    return Err(missing(&parameter.argument));
                }
                continue;
            };
            let sent = |problem: Problem| refused(&parameter.argument, &problem);
            match parameter.location {
                Location::Query => query.extend(parameter.pairs(value).map_err(sent)?),
                Location::Cookie => cookies.extend(parameter.pairs(value).map_err(sent)?),
                Location::Header => {
                    headers.push((parameter.name.to_string(), parameter.header(value).map_err(sent)?));
                }
                Location::Path | Location::Body => {}
            }
        }
        self.guard(Location::Query, query.iter().skip(self.fixed_query.len()))?;
        self.guard(Location::Cookie, cookies.iter())?;
        if !cookies.is_empty() {
            let line: Vec<String> =
                cookies.iter().map(|(k, v)| format!("{}={}", percent(k), percent(v))).collect();
            headers.push(("cookie".to_owned(), line.join("; ")));
        }
        if let Some(accept) = &self.accept {
            headers.push(("accept".to_owned(), accept.as_ref().to_owned()));
        }
        let mut request = HttpRequest { method: self.method.to_owned(), path, query, headers, body: None };
        if let Some(body) = &self.body {
            body.fill(args, self.names_without_body(), &mut request)?;
        }
        Ok(request)
    }

    fn names_without_body(&self) -> impl Fn(&str) -> bool + '_ {
        |name| self.parameters.iter().any(|p| &*p.argument == name)
    }

    fn path(&self, args: &Object) -> Result<String, ToolError> {
        let mut path = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => path.push_str(text),
                Piece::Parameter(no) => {
                    let Some(parameter) = self.parameters.get(*no) else { continue };
                    let value =
                        given(args, &parameter.argument).ok_or_else(|| missing(&parameter.argument))?;
                    let text = parameter.segment(value).map_err(|p| refused(&parameter.argument, &p))?;
                    path.push_str(&text);
                }
            }
        }
        if has_dot_segment(&path) {
            let argument = self.pieces.iter().find_map(|p| match p {
                Piece::Parameter(no) => self.parameters.get(*no).map(|p| &*p.argument),
                Piece::Text(_) => None,
            });
            return Err(refused(
                argument.unwrap_or_default(),
                "a path segment must not be `.` or `..`: it would leave the place of this operation",
            ));
        }
        Ok(path)
    }

    /// An object spread over the query (`explode`) names its own keys: none of them may be a credential's.
    fn guard<'a>(
        &self,
        location: Location,
        mut pairs: impl Iterator<Item = &'a (String, String)>,
    ) -> Result<(), ToolError> {
        match pairs.find(|(name, _)| self.guarded.iter().any(|place| place.is(location, name))) {
            Some(_) => Err(ToolError::new(
                ErrorCode::InvalidArgument,
                format!(
                    "an argument would set the credential of this {} parameter; leave it out, docent sets it",
                    location.as_str()
                ),
            )),
            None => Ok(()),
        }
    }
}

/// Whether a path has a segment that a server would resolve.
pub(super) fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| {
        segment.len() <= 6 && matches!(&*percent_decode_str(segment).decode_utf8_lossy(), "." | "..")
    })
}

/// The value of an argument; null is as good as absent outside bodies.
pub(super) fn given<'a>(args: &'a Object, argument: &str) -> Option<&'a Value> {
    args.get(argument).filter(|v| !v.is_null())
}

pub(super) fn missing(argument: &str) -> ToolError {
    ToolError::new(ErrorCode::InvalidArgument, format!("`{argument}` is missing")).field(pointer(argument))
}

pub(super) fn refused(argument: &str, problem: &str) -> ToolError {
    ToolError::new(ErrorCode::InvalidArgument, format!("`{argument}` cannot be sent: {problem}"))
        .field(pointer(argument))
}

fn pointer(argument: &str) -> String {
    format!("/{}", json::pointer_token(argument))
}
