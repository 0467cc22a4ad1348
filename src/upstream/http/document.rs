//! A public document at a fixed address, such as the keys of a token issuer: no credentials, no redirects, bounded.

use bytes::{Bytes, BytesMut};
use reqwest::header::ACCEPT;

use super::{build_client, chain};

/// Reads a document of at most `max` bytes with GET. The error tells why in words. The caller bounds the time.
pub(in crate::upstream) async fn read(url: url::Url, max: usize) -> Result<Bytes, String> {
    let request = build_client().get(url).header(ACCEPT, "application/json");
    let mut response = request.send().await.map_err(|e| chain(&e.without_url()))?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(format!("it answered {}", response.status().as_u16()));
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| chain(&e.without_url()))? {
        if bytes.len() + chunk.len() > max {
            return Err(format!("it has more than {max} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
