//! What a tool brings besides text (images, audio, files) kept as files of its caller, with a link for each.
//!
//! Small pictures and texts stay in the result as well, since a model looks at them there; everything else is
//! only linked. What cannot be kept stays as it came, and the result says why.

use base64::Engine as _;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::call::{Artifact, McpReply, ReplyBody, UpstreamReply, text_of_block};
use crate::catalog::Tool;
use crate::files::FileMeta;
use crate::limits;
use crate::media;
use crate::snapshot::Snapshot;

use super::offers::rename;
use super::{Gateway, RequestContext};

/// Bytes of a block up to which it also stays in the result: a picture of 1,000 by 1,000 points, say.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// A block that is a file: its name, type and bytes.
struct Found {
    name: String,
    mime: String,
    bytes: Vec<u8>,
    /// Whether the result keeps it besides the link.
    stays: bool,
}

/// Whether a reply may hold files: all but the texts that most tools answer.
pub(super) fn may_be_in(reply: &UpstreamReply) -> bool {
    match &reply.body {
        ReplyBody::Mcp(mcp) => {
            mcp.artifacts.is_some() || !mcp.content.iter().all(|block| text_of_block(block).is_some())
        }
        ReplyBody::Bytes { .. } => true,
        ReplyBody::Empty | ReplyBody::Value(_) => false,
    }
}

impl Gateway {
    /// Keeps a reply's files for its caller and links them.
    pub(super) async fn keep_artifacts(
        &self,
        snapshot: &Snapshot,
        ctx: &RequestContext,
        tool: &Tool,
        reply: &mut UpstreamReply,
    ) {
        if reply.status < 400
            && let Some(found) = binary_body(&reply.body, tool)
        {
            self.keep_body(snapshot, ctx, tool, reply, found).await;
            return;
        }
        let ReplyBody::Mcp(mcp) = &mut reply.body else { return };
        let is_run = mcp.artifacts.is_some();
        let mut content = Vec::with_capacity(mcp.content.len());
        let mut kept = Vec::new();
        for raw in std::mem::take(&mut mcp.content) {
            if text_of_block(&raw).is_some() {
                content.push(raw);
                continue;
            }
            let mut block: Value = serde_json::from_str(raw.get()).unwrap_or_default();
            let room = kept.len() < limits::COMMAND_FILES_MAX && self.files().are_kept();
            let found = if room { file_of(&block, tool, kept.len(), is_run) } else { None };
            let Some(found) = found else {
                if !is_run && is_link(&block) {
                    rename(tool.upstream.as_str(), &mut block);
                    content.extend(as_raw(&block));
                } else {
                    content.push(raw);
                }
                continue;
            };
            match self.keep_file(snapshot, ctx, tool, &found).await {
                Ok(file) => {
                    if found.stays && raw.get().len() <= INLINE_BYTES_MAX {
                        if let Some(uri) = block.pointer_mut("/resource/uri") {
                            *uri = Value::from(file.uri());
                        }
                        content.extend(as_raw(&block));
                    }
                    content.extend(as_raw(&link(&file)));
                    kept.push(file);
                }
                Err(why) => {
                    reply.warnings.push(format!("`{}` could not be kept as a file: {why}", found.name));
                    content.push(raw);
                }
            }
        }
        mcp.content = content;
        if is_run {
            mcp.artifacts = Some(kept.iter().map(|file| artifact(snapshot, file)).collect());
        }
    }

    async fn keep_file(
        &self,
        snapshot: &Snapshot,
        ctx: &RequestContext,
        tool: &Tool,
        found: &Found,
    ) -> Result<FileMeta, String> {
        let limits = &snapshot.settings.files;
        let (owner, origin) = (&ctx.principal.subject, tool.id.as_str());
        let named = (found.name.as_str(), Some(found.mime.as_str()));
        let kept = self.files().put(limits, owner, named, origin, &found.bytes).await;
        kept.map_err(|e| super::files::file_failure(&e).message)
    }

    /// A body that is no text: the file instead of it.
    async fn keep_body(
        &self,
        snapshot: &Snapshot,
        ctx: &RequestContext,
        tool: &Tool,
        reply: &mut UpstreamReply,
        found: Found,
    ) {
        if !self.files().are_kept() {
            return;
        }
        let file = match self.keep_file(snapshot, ctx, tool, &found).await {
            Ok(file) => file,
            Err(why) => {
                reply.warnings.push(format!("the answer could not be kept as a file: {why}"));
                return;
            }
        };
        let mut content = Vec::new();
        if found.stays && found.bytes.len() <= INLINE_BYTES_MAX / 4 * 3 {
            let kind = found.mime.split('/').next().unwrap_or_default();
            let data = base64::engine::general_purpose::STANDARD.encode(&found.bytes);
            content.extend(as_raw(&json!({ "type": kind, "data": data, "mimeType": found.mime })));
        }
        content.extend(as_raw(&link(&file)));
        let artifacts = Some(vec![artifact(snapshot, &file)]);
        reply.body = ReplyBody::Mcp(McpReply { content, artifacts, ..McpReply::default() });
    }
}

/// A file as a result tells of it.
fn artifact(snapshot: &Snapshot, file: &FileMeta) -> Artifact {
    let base = snapshot.settings.public_url.as_deref().unwrap_or("");
    Artifact {
        id: file.id.clone(),
        name: file.name.clone(),
        mime: file.mime.clone(),
        size: file.size,
        url: format!("{base}{}", file.path()),
    }
}

fn as_raw(value: &Value) -> Option<Box<RawValue>> {
    RawValue::from_string(crate::json::to_text(value)).ok()
}

/// A file as a content block (MCP, resource links).
fn link(file: &FileMeta) -> Value {
    json!({
        "type": "resource_link",
        "uri": file.uri(),
        "name": file.name,
        "mimeType": file.mime,
        "size": file.size,
    })
}

fn is_link(block: &Value) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("resource" | "resource_link"))
}

/// A body of bytes that is neither text nor JSON.
fn binary_body(body: &ReplyBody, tool: &Tool) -> Option<Found> {
    let ReplyBody::Bytes { media_type, bytes } = body else { return None };
    let kind = media_type.split('/').next().unwrap_or_default();
    let shown = matches!(kind, "image" | "audio");
    // Of bytes that nobody named, what reads as text is text.
    let is_unnamed = matches!(media_type.as_str(), "" | media::BINARY);
    let reads_as_text = || std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
    if bytes.is_empty() || media::is_text(media_type) || (is_unnamed && reads_as_text()) {
        return None;
    }
    let name = format!("{}{}", tool.wire_name, media::ending(media_type));
    Some(Found { name, mime: media_type.clone(), bytes: bytes.to_vec(), stays: shown })
}

/// The file that a content block holds. Of embedded texts only those of a program's run are files.
fn file_of(block: &Value, tool: &Tool, number: usize, is_command: bool) -> Option<Found> {
    let text = |at: &Value, key: &str| at.get(key).and_then(Value::as_str).map(str::to_owned);
    let decode = |data: String| base64::engine::general_purpose::STANDARD.decode(data).ok();
    let kind = block.get("type").and_then(Value::as_str)?;
    let (mime, bytes, uri, stays) = match kind {
        "image" | "audio" => (text(block, "mimeType"), decode(text(block, "data")?)?, None, true),
        "resource" => {
            let resource = block.get("resource")?;
            let (bytes, stays) = match (text(resource, "blob"), text(resource, "text")) {
                (Some(blob), _) => (decode(blob)?, false),
                (None, Some(text)) if is_command => (text.into_bytes(), true),
                _ => return None,
            };
            (text(resource, "mimeType"), bytes, text(resource, "uri"), stays)
        }
        _ => return None,
    };
    let mime = mime.as_deref().and_then(media::essence).unwrap_or_else(|| media::BINARY.to_owned());
    let own = text(block, "name").or_else(|| {
        let uri = uri?;
        let last = uri.rsplit('/').find(|part| !part.is_empty())?;
        Some(percent_encoding::percent_decode_str(last).decode_utf8_lossy().into_owned())
    });
    let name = own.unwrap_or_else(|| format!("{}-{}{}", tool.wire_name, number + 1, media::ending(&mime)));
    Some(Found { name, mime, bytes, stays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ToolId, UpstreamId};
    use crate::schema::SchemaText;

    fn found(block: &Value, is_command: bool) -> Option<(String, String, usize, bool)> {
        let (id, upstream) = (ToolId::parse("u.draw").unwrap(), UpstreamId::parse("u").unwrap());
        let mut tool = Tool::new(id, upstream, "draw", SchemaText::empty_object());
        tool.wire_name = std::sync::Arc::from("u_draw");
        file_of(block, &tool, 0, is_command).map(|f| (f.name, f.mime, f.bytes.len(), f.stays))
    }

    #[test]
    fn images_sounds_and_blobs_are_files_and_texts_only_of_programs() {
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "Image/PNG"});
        assert_eq!(found(&image, false), Some(("u_draw-1.png".into(), "image/png".into(), 3, true)));
        let blob = json!({"type": "resource", "resource": {"uri": "x://d/a%20b.pdf", "mimeType": "application/pdf", "blob": "AA=="}});
        assert_eq!(found(&blob, false), Some(("a b.pdf".into(), "application/pdf".into(), 1, false)));
        let text = json!({"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hi"}});
        assert_eq!(found(&text, false), None);
        assert_eq!(found(&text, true), Some(("a.txt".into(), "text/plain".into(), 2, true)));
        for other in
            [json!({"type": "text", "text": "x"}), json!({"type": "image", "data": "no base64!"}), json!(7)]
        {
            assert_eq!(found(&other, true), None, "{other}");
        }
    }
}
