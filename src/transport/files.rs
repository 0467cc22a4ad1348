//! `/api/v1/files`: uploads as raw bodies and as forms, streamed to disk; downloads with ranges, under headers
//! that keep a browser from taking a file for a page of this server. The caller is authenticated as on `/mcp`.

use std::io::SeekFrom;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest as _, Multipart, Path, Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, IF_RANGE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response};
use http_body_util::BodyExt as _;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use url::form_urlencoded;

use super::api::identify;
use super::http::Server;
use super::reply::{Answer, Refusal, failure, json_value, of};
use crate::call::{ErrorCode, ToolError};
use crate::files::{FileError, FileMeta, UPLOADED, Upload};
use crate::gateway::{Gateway, RequestContext, file_failure};
use crate::limits::REQUEST_BODY_TIME;
use crate::media;

/// Files of one form.
const PARTS_MAX: usize = 100;
/// Files of one page of a list.
const LISTED: usize = 1_000;
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Whom a request speaks for, and the gateway with the files; else its answer.
async fn admit<'a>(
    server: &'a Server,
    headers: &HeaderMap,
) -> Result<(RequestContext, &'a Gateway), Refusal> {
    let who = identify(&server.access.current(), headers).await?;
    let gateway = server.mcp.service().gateway().ok_or_else(|| refused(&FileError::NoPlace))?;
    Ok((RequestContext::new(who, server.mcp.correlation_id()), gateway))
}

fn refused(error: &FileError) -> Response<Body> {
    let status = match error {
        FileError::NotFound => 404,
        FileError::TooLarge { .. } => 413,
        FileError::Type(_) => 415,
        FileError::Full { .. } => 507,
        FileError::NoPlace => 501,
        FileError::Store(_) | FileError::Io(_) => 500,
    };
    failure(status, &file_failure(error))
}

fn invalid(message: &str) -> Response<Body> {
    failure(400, &ToolError::new(ErrorCode::InvalidArgument, message))
}

/// What an upload is told: the file, and all of them where a form brought several.
fn created(gateway: &Gateway, files: Vec<FileMeta>) -> Response<Body> {
    let entries: Vec<Value> = files.into_iter().map(|f| json!(gateway.file_entry(f))).collect();
    let Some(mut answer) = entries.first().cloned() else {
        return invalid("The form has no file: send it as a part with a `filename`.");
    };
    if let (true, Some(map)) = (entries.len() > 1, answer.as_object_mut()) {
        map.insert("files".to_owned(), Value::Array(entries));
    }
    json_value(201, &answer)
}

/// `POST /api/v1/files`: a raw body, named by `?name=` or `Content-Disposition`, or `multipart/form-data`.
pub(super) async fn upload(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, mut body) = request.into_parts();
    let (ctx, gateway) = admit(&server, &parts.headers).await?;
    let Announced { kind, size, name } = Announced::of(&parts);
    if kind.trim_start().to_ascii_lowercase().starts_with("multipart/form-data") {
        return form(gateway, &ctx, Request::from_parts(parts, body)).await;
    }
    let mime = Some(kind.as_str()).filter(|k| !k.is_empty());
    let mut upload = gateway.begin_upload(&ctx, (&name, mime), size).await.map_err(|e| refused(&e))?;
    loop {
        let frame = match tokio::time::timeout(REQUEST_BODY_TIME, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(invalid("The body broke off.").into()),
            Err(_) => return Err(slow().into()),
        };
        if let Ok(data) = frame.into_data() {
            upload.write(&data).await.map_err(|e| refused(&e))?;
        }
    }
    finish(gateway, &ctx, vec![upload]).await
}

/// What a raw upload says of itself.
struct Announced {
    kind: String,
    size: Option<u64>,
    name: String,
}

impl Announced {
    fn of(parts: &Parts) -> Self {
        let text = |name: &HeaderName| parts.headers.get(name).and_then(|v| v.to_str().ok());
        let kind = text(&CONTENT_TYPE).unwrap_or_default().to_owned();
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let named = form_urlencoded::parse(query).find(|(k, _)| k == "name").map(|(_, v)| v.into_owned());
        // Not only visible ASCII: clients send names as they are.
        let disposition = parts.headers.get(CONTENT_DISPOSITION);
        let disposition = disposition.and_then(|v| std::str::from_utf8(v.as_bytes()).ok());
        let name = named.or_else(|| disposition.and_then(disposition_name));
        let ending = media::essence(&kind).map_or("", |k| media::ending(&k));
        Self {
            size: text(&CONTENT_LENGTH).and_then(|n| n.parse().ok()),
            name: name.unwrap_or_else(|| format!("file{ending}")),
            kind,
        }
    }
}

fn slow() -> Response<Body> {
    failure(408, &ToolError::new(ErrorCode::InvalidArgument, "The body did not arrive in time."))
}

/// Every part that has a file name is a file; the others are passed over.
async fn form(gateway: &Gateway, ctx: &RequestContext, request: Request) -> Answer {
    let broken = || invalid("The form cannot be read: it is not multipart/form-data (RFC 7578).");
    let refuse = |e: FileError| refused(&e);
    let mut parts = Multipart::from_request(request, &()).await.map_err(|_e| broken())?;
    let mut uploads: Vec<Upload> = Vec::new();
    let mut taken = 0_u64;
    loop {
        let next = tokio::time::timeout(REQUEST_BODY_TIME, parts.next_field()).await;
        let next = next.map_err(|_late| slow())?;
        let Some(mut part) = next.map_err(|_e| broken())? else { break };
        // Without a name it is no file; with an empty one it is the field of a form in which none was chosen.
        let Some(name) = part.file_name().filter(|n| !n.is_empty()).map(str::to_owned) else { continue };
        if uploads.len() >= PARTS_MAX {
            let message = format!("A form brings at most {PARTS_MAX} files.");
            return Err(invalid(&message).into());
        }
        let mime = part.content_type().map(str::to_owned);
        let mut upload = gateway.begin_upload(ctx, (&name, mime.as_deref()), None).await.map_err(refuse)?;
        loop {
            let chunk = tokio::time::timeout(REQUEST_BODY_TIME, part.chunk()).await;
            let chunk = chunk.map_err(|_late| slow())?;
            let Some(data) = chunk.map_err(|_e| broken())? else { break };
            upload.write(&data).await.map_err(refuse)?;
            // None of them counts before all are there, so each alone would fit.
            upload.fits_beside(taken).map_err(refuse)?;
        }
        taken = taken.saturating_add(upload.size());
        uploads.push(upload);
    }
    finish(gateway, ctx, uploads).await
}

/// Files are kept only once all of a request have arrived whole, and all of them or none.
async fn finish(gateway: &Gateway, ctx: &RequestContext, uploads: Vec<Upload>) -> Answer {
    let mut files: Vec<FileMeta> = Vec::with_capacity(uploads.len());
    for upload in uploads {
        match upload.finish(UPLOADED).await {
            Ok(file) => files.push(file),
            Err(error) => {
                for file in files {
                    // Its sender is told of none of them. One that cannot be removed expires.
                    gateway.remove_file(ctx, &file.id).await.ok();
                }
                return Err(refused(&error).into());
            }
        }
    }
    Ok(created(gateway, files))
}

/// The file name of a `Content-Disposition` (RFC 6266), the extended form first.
fn disposition_name(value: &str) -> Option<String> {
    let found = parameters(value);
    let of = |name: &str| found.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    let extended = of("filename*").and_then(|v| {
        let (_, encoded) = v.split_once("''").filter(|(set, _)| set.eq_ignore_ascii_case("utf-8"))?;
        percent_decode_str(encoded).decode_utf8().ok().map(std::borrow::Cow::into_owned)
    });
    extended.or_else(|| of("filename").map(str::to_owned)).filter(|n| !n.is_empty())
}

/// The parameters of a header by their names in lower case; a value in quotes may hold anything (RFC 9110 §5.6.4).
fn parameters(value: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = value.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((name, after)) = rest.split_once('=') {
        let (text, next) = match after.trim_start().strip_prefix('"') {
            None => {
                let (text, next) = after.split_once(';').unwrap_or((after, ""));
                (text.trim().to_owned(), next)
            }
            Some(quoted) => {
                let (text, next) = unquoted(quoted);
                (text, next.split_once(';').map_or("", |(_, next)| next))
            }
        };
        // What has no value stands before the name of the next one that has.
        let name = name.rsplit(';').next().unwrap_or(name);
        found.push((name.trim().to_ascii_lowercase(), text));
        rest = next;
    }
    found
}

/// A quoted text from behind its first quote on, and what comes after the last one.
fn unquoted(text: &str) -> (String, &str) {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    (out, chars.as_str())
}

/// `GET /api/v1/files`: the caller's files; `?from=` is `next` of the page before.
pub(super) async fn list(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let (parts, _) = request.into_parts();
    let (ctx, gateway) = admit(&server, &parts.headers).await?;
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let from = form_urlencoded::parse(query).find(|(k, _)| k == "from").map(|(_, v)| v.parse());
    let from = from.transpose().map_err(|_none| invalid("`from` is the `next` of the page before."))?;
    let found = gateway.files().list(&ctx.principal.subject, from.unwrap_or(0), LISTED + 1).await;
    let mut files = found.map_err(|e| refused(&e))?;
    let next = files.get(LISTED).map(|f| f.seq);
    files.truncate(LISTED);
    let entries: Vec<_> = files.into_iter().map(|f| gateway.file_entry(f)).collect();
    Ok(json_value(200, &json!({ "files": entries, "next": next })))
}

/// `GET` and `DELETE /api/v1/files/{id}`.
pub(super) async fn one(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let (parts, _) = request.into_parts();
    let (ctx, gateway) = admit(&server, &parts.headers).await?;
    if parts.method == Method::DELETE {
        gateway.remove_file(&ctx, &id).await.map_err(|e| refused(&e))?;
        return Ok(of(204, Body::empty()));
    }
    let file = gateway.file(&ctx, &id).await.map_err(|e| refused(&e))?;
    Ok(json_value(200, &gateway.file_entry(file)))
}

/// `GET /api/v1/files/{id}/content`, whole or one range of it (RFC 9110 §14).
pub(super) async fn content(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let (parts, _) = request.into_parts();
    let (ctx, gateway) = admit(&server, &parts.headers).await?;
    let file = gateway.file(&ctx, &id).await.map_err(|e| refused(&e))?;
    Ok(send(gateway, &file, &parts).await.map_err(|e| refused(&e))?)
}

async fn send(gateway: &Gateway, file: &FileMeta, parts: &Parts) -> Result<Response<Body>, FileError> {
    let text = |name: HeaderName| parts.headers.get(name).and_then(|v| v.to_str().ok());
    let etag = format!("\"{}\"", file.blake3);
    if text(IF_NONE_MATCH).is_some_and(|list| list == "*" || list.split(',').any(|t| weak(t) == etag)) {
        return Ok(with_file(of(304, Body::empty()), file, &etag));
    }
    // A range of other bytes than the client has the rest of is the whole.
    let same = text(IF_RANGE).is_none_or(|t| t == etag);
    let (status, from, length) = match text(RANGE).filter(|_| same).map(|r| range(r, file.size)) {
        None | Some(Asked::Whole) => (200, 0, file.size),
        Some(Asked::Part(from, to)) => (206, from, to - from + 1),
        Some(Asked::Nothing) => {
            let mut response = with_file(of(416, Body::empty()), file, &etag);
            put(response.headers_mut(), CONTENT_RANGE, &format!("bytes */{}", file.size));
            return Ok(response);
        }
    };
    let mut bytes = gateway.files().open(file).await?;
    bytes.seek(SeekFrom::Start(from)).await?;
    let stream = tokio_util::io::ReaderStream::with_capacity(bytes.take(length), 64 * 1024);
    let mut response = with_file(of(status, Body::from_stream(stream)), file, &etag);
    let headers = response.headers_mut();
    put(headers, CONTENT_LENGTH, &length.to_string());
    if status == 206 {
        put(headers, CONTENT_RANGE, &format!("bytes {from}-{}/{}", from + length - 1, file.size));
    }
    Ok(response)
}

/// An entity tag without the mark that it is weak: that does not count here (RFC 9110 §13.1.2).
fn weak(tag: &str) -> &str {
    let tag = tag.trim();
    tag.strip_prefix("W/").unwrap_or(tag)
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The headers of a file: always a download, never a page or a script of this server.
fn with_file(mut response: Response<Body>, file: &FileMeta, etag: &str) -> Response<Body> {
    let headers = response.headers_mut();
    let fallback: String = file
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || " ._-()".contains(c) { c } else { '_' })
        .collect();
    let encoded = utf8_percent_encode(&file.name, NON_ALPHANUMERIC);
    let disposition = format!("attachment; filename=\"{fallback}\"; filename*=UTF-8''{encoded}");
    put(headers, CONTENT_DISPOSITION, &disposition);
    put(headers, CONTENT_TYPE, &file.mime);
    put(headers, ETAG, etag);
    put(headers, ACCEPT_RANGES, "bytes");
    put(headers, CACHE_CONTROL, "private, no-cache");
    put(headers, X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(headers, CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox");
    put(headers, RESOURCE_POLICY, "same-origin");
    response
}

/// What a `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// Everything: no range that is understood, or several, which a server may answer so.
    Whole,
    /// From the first to the last byte.
    Part(u64, u64),
    /// Nothing that the file has.
    Nothing,
}

fn range(text: &str, size: u64) -> Asked {
    let Some(spec) = text.trim().strip_prefix("bytes=").filter(|s| !s.contains(',')) else {
        return Asked::Whole;
    };
    let Some((first, last)) = spec.split_once('-') else { return Asked::Whole };
    let number = |t: &str| (!t.is_empty() && t.bytes().all(|b| b.is_ascii_digit())).then(|| t.parse::<u64>());
    match (first.trim(), last.trim()) {
        ("", suffix) => match number(suffix) {
            Some(Ok(0)) => Asked::Nothing,
            Some(Ok(n)) if size > 0 => Asked::Part(size.saturating_sub(n), size - 1),
            Some(Ok(_)) => Asked::Nothing,
            _ => Asked::Whole,
        },
        (first, last) => {
            match (number(first), last.is_empty().then_some(Ok(u64::MAX)).or_else(|| number(last))) {
                (Some(Ok(from)), Some(Ok(to))) if from > to => Asked::Whole,
                (Some(Ok(from)), Some(Ok(to))) if from < size => Asked::Part(from, to.min(size - 1)),
                (Some(Ok(_)), Some(Ok(_))) => Asked::Nothing,
                _ => Asked::Whole,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        for (text, asked) in [
            ("bytes=0-4", Asked::Part(0, 4)),
            ("bytes=5-", Asked::Part(5, 9)),
            ("bytes=0-99", Asked::Part(0, 9)),
            ("bytes=-3", Asked::Part(7, 9)),
            ("bytes=-99", Asked::Part(0, 9)),
            ("bytes=10-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=4-2", Asked::Whole),
            ("bytes=0-1,3-4", Asked::Whole),
            ("lines=0-1", Asked::Whole),
            ("bytes=x-1", Asked::Whole),
            ("bytes=99999999999999999999-", Asked::Whole),
        ] {
            assert_eq!(range(text, 10), asked, "{text}");
        }
        assert_eq!(range("bytes=-1", 0), Asked::Nothing);
        assert_eq!(range("bytes=0-", 0), Asked::Nothing);
    }

    #[test]
    fn names_of_dispositions_are_found() {
        assert_eq!(disposition_name("attachment; filename=\"a b.txt\"").as_deref(), Some("a b.txt"));
        let both = "attachment; filename=\"x\"; filename*=UTF-8''%C3%BC.txt";
        assert_eq!(disposition_name(both).as_deref(), Some("ü.txt"));
        assert_eq!(disposition_name("inline"), None);
        for (value, name) in [
            ("attachment; filename=\"a;b \\\"c\\\".txt\"; size=3", "a;b \"c\".txt"),
            ("attachment;filename=plain.txt ; x=\"y\"", "plain.txt"),
            ("attachment; inline; FileName = \"x.txt\"", "x.txt"),
            ("attachment; x=\"filename=evil\"; filename=good", "good"),
            ("attachment; filename=\"ü.txt\"", "ü.txt"),
            ("attachment; filename=\"never ends", "never ends"),
            ("attachment; filename*=latin1''%E4; filename=b", "b"),
        ] {
            assert_eq!(disposition_name(value).as_deref(), Some(name), "{value}");
        }
        assert_eq!(disposition_name("attachment; filename=\"\""), None);
    }
}
