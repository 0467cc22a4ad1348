//! A caller's files: taken, listed, read, forgotten. Ownership is the whole of the decision: another caller's
//! file is an unknown file, and no right is needed for one's own.

use serde::Serialize;
use serde_json::json;

use crate::call::{ErrorCode, ToolError};
use crate::files::{FileError, FileMeta, UPLOADED, URI_PREFIX, Upload};
use crate::json::{JsonText, Object};
use crate::limits;

use super::meta::args;
use super::offers::{OfferAnswer, ResourceContent, content};
use super::view::View;
use super::{Gateway, RequestContext, failure};

/// Files of one page of `list_files`.
const LISTED: usize = 100;
const PURPOSE: &str = "files";

/// A file as a result shows it (seed 000: artifacts).
#[derive(Debug, Serialize)]
pub struct FileEntry {
    #[serde(flatten)]
    file: FileMeta,
    /// Its address for `resources/read`.
    uri: String,
    /// Where its bytes are over HTTP.
    url: String,
}

impl Gateway {
    /// A file with its addresses, as callers are told of it.
    pub fn file_entry(&self, file: FileMeta) -> FileEntry {
        let base = self.snapshot().settings.public_url.clone().unwrap_or_default();
        FileEntry { uri: file.uri(), url: format!("{base}{}", file.path()), file }
    }

    /// Begins an upload of this caller.
    pub async fn begin_upload(
        &self,
        ctx: &RequestContext,
        (name, mime): (&str, Option<&str>),
        announced: Option<u64>,
    ) -> Result<Upload, FileError> {
        let limits = &self.snapshot().settings.files;
        self.files().begin(limits, &ctx.principal.subject, mime, name, announced).await
    }

    /// One of this caller's files.
    pub async fn file(&self, ctx: &RequestContext, id: &str) -> Result<FileMeta, FileError> {
        self.files().get(&ctx.principal.subject, id).await
    }

    /// Forgets one of this caller's files.
    pub async fn remove_file(&self, ctx: &RequestContext, id: &str) -> Result<(), FileError> {
        self.files().remove(&ctx.principal.subject, id).await?;
        self.resource_changed(&format!("{URI_PREFIX}{id}"));
        Ok(())
    }

    /// `upload_file`: content in base64, as large as a request may be.
    pub(super) async fn upload_file(
        &self,
        ctx: &RequestContext,
        given: &Object,
    ) -> Result<JsonText, ToolError> {
        use base64::Engine as _;
        use base64::engine::DecodePaddingMode;
        use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
        // With and without its padding: models leave it out.
        let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let decoder = GeneralPurpose::new(&base64::alphabet::STANDARD, config);
        let text: String =
            args::text(given, "content").unwrap_or_default().split_ascii_whitespace().collect();
        let bytes = decoder.decode(text).map_err(|_bad| {
            let message =
                "`content` is not base64 (RFC 4648). Larger files and raw bytes go to `POST /api/v1/files`.";
            ToolError::new(ErrorCode::InvalidArgument, message).field("/content")
        })?;
        let (name, mime) = (args::text(given, "name").unwrap_or_default(), args::text(given, "mime"));
        let limits = &self.snapshot().settings.files;
        let file = self
            .files()
            .put(limits, &ctx.principal.subject, (name, mime), UPLOADED, &bytes)
            .await
            .map_err(|e| file_failure(&e))?;
        Ok(JsonText::of(&json!(self.file_entry(file))))
    }

    /// `list_files`: this caller's files and artifacts, in the order of their making.
    pub(super) async fn list_files(
        &self,
        view: &View,
        ctx: &RequestContext,
        given: &Object,
    ) -> Result<JsonText, ToolError> {
        let owner = &ctx.principal.subject;
        let question = *blake3::hash(owner.as_bytes()).as_bytes();
        // Files come and go with every call: the token is bound to the caller alone.
        let binding = crate::cursor::Binding { purpose: PURPOSE, class: [0; 32], question, state: [0; 32] };
        let key = self.cursor_key(&view.snapshot);
        let from = match args::text(given, "cursor") {
            None => 0,
            Some(token) => key.open(&binding, token).map_err(|_bad| {
                let message = "The cursor is not valid (any more); start again without it.";
                ToolError::new(ErrorCode::StaleCursor, message).field("/cursor")
            })?,
        };
        let most = args::size(given, "limit").unwrap_or(LISTED).min(LISTED);
        let mut found = self.files().list(owner, from, most + 1).await.map_err(|e| file_failure(&e))?;
        let next = found.get(most).map(|f| key.seal(&binding, f.seq));
        found.truncate(most);
        let limits = &view.snapshot.settings.files;
        let (bytes, files) = self.files().used(owner).await.map_err(|e| file_failure(&e))?;
        let entries: Vec<FileEntry> = found.into_iter().map(|f| self.file_entry(f)).collect();
        let mut answer = json!({
            "files": entries,
            "total": files,
            "bytes_used": bytes,
            "bytes_allowed": limits.quota_bytes,
        });
        if let (Some(next), Some(map)) = (next, answer.as_object_mut()) {
            map.insert("next_cursor".to_owned(), json!(next));
        }
        Ok(JsonText::of(&answer))
    }

    /// A file as the contents of a resource: inline as far as that is allowed, else the way to it.
    pub(super) async fn read_file_resource(
        &self,
        ctx: &RequestContext,
        uri: &str,
        id: &str,
    ) -> OfferAnswer<Vec<ResourceContent>> {
        let file = match self.file(ctx, id).await {
            Ok(file) => file,
            Err(FileError::NotFound) => return OfferAnswer::NotFound,
            Err(e) => return OfferAnswer::Failed(file_failure(&e)),
        };
        let max = u64::try_from(limits::RESOURCE_INLINE_BYTES_MAX).unwrap_or(u64::MAX);
        if file.size > max {
            let message = format!(
                "The file has {} bytes, more than the {max} that are read inline. Get it over HTTP: \
                 `GET {}` with the same token, in parts with `Range`.",
                file.size,
                self.file_entry(file.clone()).url
            );
            return OfferAnswer::Failed(ToolError::new(ErrorCode::UnsupportedCapability, message));
        }
        match self.files().read(&file, max).await {
            Ok(bytes) => OfferAnswer::Done(vec![ResourceContent {
                uri: uri.to_owned(),
                body: content(&bytes, Some(&file.mime)),
                mime: Some(file.mime),
            }]),
            Err(e) => OfferAnswer::Failed(file_failure(&e)),
        }
    }
}

/// A failure with files as callers are told: what is the server's own stands in the log.
pub fn file_failure(error: &FileError) -> ToolError {
    let code = match error {
        FileError::NotFound => ErrorCode::NotFound,
        FileError::TooLarge { .. } | FileError::Type(_) => ErrorCode::InvalidArgument,
        FileError::Full { .. } => ErrorCode::Conflict,
        FileError::NoPlace => ErrorCode::UnsupportedCapability,
        FileError::Store(_) | FileError::Io(_) => {
            tracing::error!(error = %error, "a file could not be kept or read");
            return failure::internal();
        }
    };
    ToolError::new(code, format!("{error}."))
}
