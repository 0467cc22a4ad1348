//! Outcomes as bytes, for the store. What an older version wrote is read or refused, never guessed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::call::{ErrorCode, ToolError, ToolOutcome, ToolResult};
use crate::json::{self, JsonText};

/// Bytes of one kept outcome: a result with its blocks is far smaller.
const BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    structured: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    is_plain: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<KeptError>,
}

#[derive(Serialize, Deserialize)]
struct KeptError {
    code: String,
    message: String,
    retryable: bool,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    retry_after_seconds: Option<u64>,
    #[serde(default)]
    details: Option<Box<Value>>,
}

/// An outcome as bytes.
pub(super) fn write(outcome: &ToolOutcome) -> Vec<u8> {
    let nothing = Kept {
        structured: None,
        text: None,
        blocks: Vec::new(),
        meta: None,
        is_error: true,
        is_plain: false,
        error: None,
    };
    json::to_bytes(&match outcome {
        ToolOutcome::Completed(result) => Kept {
            structured: result.structured.as_ref().map(|s| s.raw().to_owned()),
            text: result.text.clone(),
            blocks: result.blocks.clone(),
            meta: result.meta.clone(),
            is_error: result.is_error,
            is_plain: result.is_plain,
            error: None,
        },
        ToolOutcome::Failed(error) => Kept {
            error: Some(KeptError {
                code: error.code.as_str().to_owned(),
                message: error.message.clone(),
                retryable: error.retryable,
                field: error.field.clone(),
                retry_after_seconds: error.retry_after_seconds,
                details: error.details.clone(),
            }),
            ..nothing
        },
    })
}

/// The outcome of bytes; `None` where this version cannot read them.
pub(super) fn read(bytes: &[u8]) -> Option<ToolOutcome> {
    let kept: Kept = json::parse_as(bytes, BYTES_MAX).ok()?;
    if let Some(error) = kept.error {
        return Some(ToolOutcome::Failed(ToolError {
            code: ErrorCode::parse(&error.code)?,
            message: error.message,
            retryable: error.retryable,
            field: error.field,
            retry_after_seconds: error.retry_after_seconds,
            details: error.details,
        }));
    }
    let structured = match kept.structured {
        Some(raw) => Some(JsonText::parse(raw.get().to_owned()).ok()?),
        None => None,
    };
    let Kept { text, blocks, meta, is_error, is_plain, .. } = kept;
    Some(ToolOutcome::Completed(ToolResult { structured, text, blocks, meta, is_error, is_plain }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_outcome_comes_back_digit_for_digit() {
        let big = r#"{"n":123456789012345678901234567890}"#;
        let result = ToolResult {
            structured: Some(JsonText::parse(big.to_owned()).unwrap()),
            text: Some("t".to_owned()),
            blocks: vec![RawValue::from_string(r#"{"type": "image"}"#.to_owned()).unwrap()],
            meta: Some(json!({"k": 1})),
            is_error: true,
            is_plain: true,
        };
        let Some(ToolOutcome::Completed(back)) = read(&write(&ToolOutcome::Completed(result))) else {
            panic!()
        };
        assert_eq!(back.structured.unwrap().as_str(), big);
        assert_eq!(
            (back.text.as_deref(), back.meta, back.is_error, back.is_plain),
            (Some("t"), Some(json!({"k": 1})), true, true)
        );
        assert_eq!(back.blocks[0].get(), r#"{"type": "image"}"#);
        let error = ToolError::new(ErrorCode::Conflict, "no").field("/a").details(json!([1])).retry_after(3);
        let Some(ToolOutcome::Failed(back)) = read(&write(&ToolOutcome::Failed(error.clone()))) else {
            panic!()
        };
        assert_eq!(back, error);
        assert!(read(b"{\"error\":{\"code\":\"NEWER\",\"message\":\"\",\"retryable\":true}}").is_none());
        assert!(read(b"nonsense").is_none());
    }
}
