//! Request bodies: read within a size and a time, or refused.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::limits::{REQUEST_BODY_BYTES_MAX, REQUEST_BODY_DRAIN_BYTES, REQUEST_BODY_TIME};

/// Room taken at once for a body that comes in pieces: what a client announces, it need not send.
const ROOM_AT_ONCE: usize = 64 * 1024;

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyRefusal {
    /// More than [`REQUEST_BODY_BYTES_MAX`].
    TooLarge,
    /// Not there in time.
    TooSlow,
    /// The connection broke.
    Broken,
}

/// Reads a body whole. What is too large is read on for a while and thrown away, because a client that is
/// still sending would otherwise see a broken connection instead of the answer.
pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, BodyRefusal> {
    let announced: Option<usize> = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    if announced.is_some_and(|n| n > REQUEST_BODY_BYTES_MAX) && headers.contains_key(EXPECT) {
        return Err(BodyRefusal::TooLarge);
    }
    within(REQUEST_BODY_TIME, collect(body, announced.unwrap_or(0))).await
}

async fn within<T>(
    time: Duration,
    reading: impl Future<Output = Result<T, BodyRefusal>>,
) -> Result<T, BodyRefusal> {
    tokio::time::timeout(time, reading).await.unwrap_or(Err(BodyRefusal::TooSlow))
}

async fn collect(mut body: Body, announced: usize) -> Result<Bytes, BodyRefusal> {
    // Most bodies come in one piece, which is taken as it is.
    let (mut whole, mut kept) = (None, BytesMut::new());
    let mut seen = 0usize;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(BodyRefusal::Broken) };
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > REQUEST_BODY_DRAIN_BYTES {
            return Err(BodyRefusal::TooLarge);
        }
        if seen > REQUEST_BODY_BYTES_MAX {
            (whole, kept) = (None, BytesMut::new());
        } else if whole.is_none() && kept.is_empty() {
            whole = Some(data);
        } else {
            if let Some(first) = whole.take() {
                kept.reserve(announced.min(REQUEST_BODY_BYTES_MAX).min(ROOM_AT_ONCE));
                kept.extend_from_slice(&first);
            }
            kept.extend_from_slice(&data);
        }
    }
    if seen > REQUEST_BODY_BYTES_MAX {
        return Err(BodyRefusal::TooLarge);
    }
    Ok(whole.unwrap_or_else(|| kept.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_without_being_kept() {
        let headers = HeaderMap::new();
        let most = Body::from(vec![b'x'; REQUEST_BODY_BYTES_MAX]);
        assert_eq!(read(&headers, most).await.map(|b| b.len()), Ok(REQUEST_BODY_BYTES_MAX));
        let more = Body::from(vec![b'x'; REQUEST_BODY_BYTES_MAX + 1]);
        assert_eq!(read(&headers, more).await, Err(BodyRefusal::TooLarge));
        let flood =
            futures_util::stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from(vec![b'x'; 1 << 20])));
        assert_eq!(read(&headers, Body::from_stream(flood)).await, Err(BodyRefusal::TooLarge));
    }

    #[tokio::test]
    async fn a_body_is_whole_however_many_pieces_it_comes_in() {
        for pieces in [&[][..], &["a"], &["", "a"], &["a", ""], &["a", "b"], &["", "a", "bc", "", "d"]] {
            let stream = futures_util::stream::iter(pieces.iter().map(|p| Ok::<_, std::io::Error>(*p)));
            let read = read(&HeaderMap::new(), Body::from_stream(stream)).await;
            assert_eq!(read, Ok(Bytes::from(pieces.concat())), "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn a_body_that_never_ends_is_given_up() {
        let stuck = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let reading = within(Duration::from_millis(10), collect(Body::from_stream(stuck), 0));
        assert_eq!(reading.await, Err(BodyRefusal::TooSlow));
    }
}
