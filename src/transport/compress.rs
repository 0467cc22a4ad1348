//! Compressed answers for clients that ask for them (RFC 9110 §12.5.3): a page of 200 tools is 100 KB of JSON,
//! of which a tenth is left. Event streams go as they come, since an event must not wait in a compressor.

use std::io::Write as _;

use axum::body::{Body, Bytes};
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, VARY,
};
use axum::http::{Response, StatusCode};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

/// Answers below this are sent as they are: a packet or two either way.
const LEAST_BYTES: u64 = 8 * 1024;
/// Larger ones too: compressing takes some 10 ms a megabyte of the thread that serves other calls as well.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Whether a request takes gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok());
    let mut best: Option<(bool, bool)> = None;
    for coding in lines.flat_map(|line| line.split(',')) {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let name = name.trim();
        let named = name.eq_ignore_ascii_case("gzip");
        if named || name == "*" {
            let refused = parameters
                .trim()
                .strip_prefix("q=")
                .is_some_and(|q| q.trim().parse::<f32>().is_ok_and(|q| q <= 0.0));
            // `gzip` says more than `*`, whichever comes first.
            if named || best.is_none() {
                best = Some((named, !refused));
            }
        }
    }
    best.is_some_and(|(_, takes)| takes)
}

/// The answer compressed, where that is worth it.
pub(super) async fn compressed(mut response: Response<Body>) -> Response<Body> {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|t| t.as_bytes() == b"application/json");
    if !is_json || response.status() != StatusCode::OK {
        return response;
    }
    response.headers_mut().append(VARY, HeaderValue::from_static("accept-encoding"));
    // Only what is there whole has an exact size.
    let size = response.body().size_hint().exact();
    if !size.is_some_and(|n| (LEAST_BYTES..=MOST_BYTES).contains(&n)) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(whole) = body.collect().await else { return Response::from_parts(parts, Body::empty()) };
    let whole = whole.to_bytes();
    match gzip(&whole) {
        Some(small) => {
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.remove(CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(small))
        }
        None => Response::from_parts(parts, Body::from(whole)),
    }
}

fn gzip(bytes: &Bytes) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn asks(lines: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_str(line).unwrap());
        }
        takes_gzip(&headers)
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        for lines in [&["gzip"][..], &["br, GZIP;q=0.5"], &["deflate", "gzip"], &["*"], &["*;q=0, gzip"]] {
            assert!(asks(lines), "{lines:?}");
        }
        for lines in
            [&[][..], &["identity"], &["gzip;q=0"], &["*;q=0"], &["gzip;q=0, *"], &["*, gzip; q=0.0"]]
        {
            assert!(!asks(lines), "{lines:?}");
        }
    }

    #[tokio::test]
    async fn only_whole_json_of_some_size_is_compressed() {
        let of = |kind: &'static str, bytes: usize| {
            let mut response = Response::new(Body::from("x".repeat(bytes)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        };
        let small = compressed(of("application/json", 100)).await;
        assert!(!small.headers().contains_key(CONTENT_ENCODING) && small.headers().contains_key(VARY));
        assert!(!compressed(of("text/plain", 100_000)).await.headers().contains_key(CONTENT_ENCODING));
        let packed = compressed(of("application/json", 100_000)).await;
        assert_eq!(packed.headers().get(CONTENT_ENCODING).unwrap(), "gzip");
        let bytes = packed.into_body().collect().await.unwrap().to_bytes();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert!(bytes.len() < 1_000 && text == "x".repeat(100_000));
    }
}
