//! Progress of a running call as notifications (MCP, progress: strictly increasing, nothing after the end).

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::encode::write_json;
use crate::upstream::ProgressSink;

/// A sink that turns reports into notifications for `send`, which must not block. Reports that do not
/// increase, and all that come after `cancel`, are dropped.
pub(super) fn sink(
    token: &RawValue,
    cancel: CancellationToken,
    send: impl Fn(Bytes) + Send + Sync + 'static,
) -> ProgressSink {
    let token = token.to_owned();
    let last = Mutex::new(f64::NEG_INFINITY);
    ProgressSink::new(move |progress, total, message| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if !progress.is_finite() || progress <= *last || cancel.is_cancelled() {
            return;
        }
        *last = progress;
        send(notification(&token, progress, total.filter(|t| t.is_finite()), message));
    })
}

fn notification(token: &RawValue, progress: f64, total: Option<f64>, message: Option<&str>) -> Bytes {
    let mut out =
        br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"#.to_vec();
    out.extend_from_slice(token.get().as_bytes());
    // `Display` of a float is its shortest decimal, and `50` for 50.0: JSON either way.
    out.extend_from_slice(format!(",\"progress\":{progress}").as_bytes());
    if let Some(total) = total {
        out.extend_from_slice(format!(",\"total\":{total}").as_bytes());
    }
    if let Some(message) = message {
        out.extend_from_slice(b",\"message\":");
        write_json(&mut out, message);
    }
    out.extend_from_slice(b"}}");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::json;

    #[test]
    fn progress_only_grows_and_stops_with_the_call() {
        let token = RawValue::from_string("\"t\"".to_owned()).unwrap();
        let cancel = CancellationToken::new();
        let sent: Arc<Mutex<Vec<Value>>> = Arc::default();
        let into = Arc::clone(&sent);
        let sink =
            sink(&token, cancel.clone(), move |b| into.lock().unwrap().push(json::parse(&b, 1_000).unwrap()));
        sink.report(0.0, Some(100.0), None);
        sink.report(0.0, None, None);
        sink.report(f64::NAN, None, None);
        sink.report(0.5, Some(f64::INFINITY), Some("half \"way\""));
        cancel.cancel();
        sink.report(1.0, None, None);
        let params: Vec<Value> = sent.lock().unwrap().iter().map(|m| m["params"].clone()).collect();
        assert_eq!(
            params,
            [
                json!({"progressToken": "t", "progress": 0, "total": 100}),
                json!({"progressToken": "t", "progress": 0.5, "message": "half \"way\""}),
            ]
        );
    }
}
