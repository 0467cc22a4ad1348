//! `{"$file": "<id>"}` as an argument: a path for programs, bytes for a request that sends them, base64 for everything
//! else.
//!
//! The files are looked up before policy is asked, which sees the reference as the caller wrote it; their bytes
//! are read only once the call is permitted. In their places the schema is not asked: what stands there is made
//! here.

use serde_json::{Value, json};

use base64::Engine as _;

use crate::call::{ErrorCode, ToolError};
use crate::catalog::Tool;
use crate::files::{FileError, FileMeta, Lent};
use crate::json::{self, Object};
use crate::limits;
use crate::projection::Projection;
use crate::upstream::config::KindConfig;

use super::files::file_failure;
use super::view::View;
use super::{Gateway, RequestContext, references};

/// The key of an argument that stands for a file.
const REFERENCE: &str = "$file";

/// A file and the place in the arguments where it stands, as a JSON Pointer.
#[derive(Debug, Clone)]
pub(super) struct FileArgument {
    pub(super) place: String,
    file: FileMeta,
}

impl Gateway {
    /// The files that arguments name. Another caller's file is one that is not there.
    pub(super) async fn file_arguments(
        &self,
        ctx: &RequestContext,
        arguments: &Object,
    ) -> Result<Vec<FileArgument>, ToolError> {
        let found = references::find(arguments, limits::FILE_REFERENCES_MAX, reference);
        let mut out = Vec::with_capacity(found.len());
        for (place, id) in found {
            let refuse =
                |code, why: &str| Err(ToolError::new(code, format!("`{place}`: {why}")).field(&*place));
            if out.len() >= limits::FILE_REFERENCES_MAX {
                let why = format!("a call takes at most {} files.", limits::FILE_REFERENCES_MAX);
                return refuse(ErrorCode::InvalidArgument, &why);
            }
            let Some(id) = id else {
                let why = "`$file` is the id of a file, as a text, and stands alone.";
                return refuse(ErrorCode::InvalidArgument, why);
            };
            match Box::pin(self.file(ctx, &id)).await {
                Ok(file) => out.push(FileArgument { place, file }),
                Err(FileError::NotFound) => {
                    let why =
                        "there is no such file for you (any more). Upload it again, or list your files.";
                    return refuse(ErrorCode::NotFound, why);
                }
                Err(e) => return Err(file_failure(&e)),
            }
        }
        Ok(out)
    }

    /// Puts the files into a permitted call's arguments: as paths of private copies, or as base64.
    pub(super) async fn put_files(
        &self,
        files: &[FileArgument],
        arguments: &mut Object,
        (tool, projection): (&Tool, Option<&Projection>),
        view: &View,
    ) -> Result<Lent, ToolError> {
        let config = view.snapshot.upstreams.config(tool.upstream.as_str());
        let as_paths = matches!(config.map(|c| &c.kind), Some(KindConfig::Command(_)));
        let metas: Vec<FileMeta> = files.iter().map(|f| f.file.clone()).collect();
        let mut whole = Value::Object(std::mem::take(arguments));
        let mut lent = Lent::default();
        if as_paths {
            lent = self.files().lend(&metas).await.map_err(|e| file_failure(&e))?;
            for (file, path) in files.iter().zip(&lent.paths) {
                put(&mut whole, &file.place, Value::from(path.to_string_lossy().into_owned()));
            }
        } else {
            let (schema, mut room) = (tool.input_schema.value(), limits::FILE_ARGUMENT_BYTES_MAX);
            for file in files {
                let read = self.files().read(&file.file, room).await;
                let bytes = read.map_err(|e| too_large(&e, &file.place, file.file.size))?;
                room = room.saturating_sub(file.file.size);
                let data = base64::engine::general_purpose::STANDARD.encode(bytes);
                let argument = file.place.split('/').nth(1).map(json::pointer_name).unwrap_or_default();
                let value = if projection.is_some_and(|p| p.sends_bytes_of(&argument)) {
                    json!({ "base64": data, "filename": file.file.name, "content_type": file.file.mime })
                } else {
                    shaped(&file.file, data, place_of(&schema, &file.place))
                };
                put(&mut whole, &file.place, value);
            }
        }
        if let Value::Object(filled) = whole {
            *arguments = filled;
        }
        Ok(lent)
    }
}

fn too_large(error: &FileError, place: &str, size: u64) -> ToolError {
    match error {
        FileError::TooLarge { .. } => ToolError::new(
            ErrorCode::InvalidArgument,
            format!(
                "`{place}`: the file has {size} bytes; the files of one call have at most {} together here.",
                limits::FILE_ARGUMENT_BYTES_MAX
            ),
        )
        .field(place),
        other => file_failure(other),
    }
}

/// The object with name and type where the tool takes one, else the base64 alone.
fn shaped(file: &FileMeta, data: String, schema: Option<&Value>) -> Value {
    let takes = |key: &str| schema.and_then(|s| s.pointer("/properties")?.get(key)).is_some();
    if !takes("base64") {
        return Value::from(data);
    }
    let mut out = json!({ "base64": data });
    if let Some(map) = out.as_object_mut() {
        if takes("filename") {
            map.insert("filename".to_owned(), Value::from(file.name.as_str()));
        }
        if takes("content_type") {
            map.insert("content_type".to_owned(), Value::from(file.mime.as_str()));
        }
    }
    out
}

fn put(whole: &mut Value, place: &str, value: Value) {
    if let Some(slot) = whole.pointer_mut(place) {
        *slot = value;
    }
}

/// The schema of a place, through properties and items.
fn place_of<'a>(schema: &'a Value, place: &str) -> Option<&'a Value> {
    place.split('/').skip(1).try_fold(schema, |at, key| {
        let key = json::pointer_name(key);
        at.get("properties").and_then(|p| p.get(&key)).or_else(|| at.get("items"))
    })
}

/// The id in a reference; `Some(None)` for what looks like one and is none.
#[expect(clippy::option_option, reason = "no reference, a bad one, a good one")]
fn reference(map: &Object) -> Option<Option<String>> {
    let id = map.get(REFERENCE)?;
    Some(id.as_str().filter(|_| map.len() == 1).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_and_what_only_looks_like_one_is_told() {
        let value = json!({"a/b": {"$file": "x"}, "list": [{"$file": "y"}, {"$file": "z", "more": 1}], "n": {"$file": 7}});
        let found = references::find(value.as_object().unwrap(), 10, reference);
        let some = |t: &str| Some(t.to_owned());
        let expected = [("/a~1b", some("x")), ("/list/0", some("y")), ("/list/1", None), ("/n", None)];
        assert_eq!(found, expected.map(|(p, id)| (p.to_owned(), id)));
    }

    #[test]
    fn a_place_of_the_schema_decides_the_shape() {
        let file = json!({"type": "object", "properties": {"base64": {}, "filename": {}}});
        let schema = json!({"properties": {"one": file, "all": {"type": "array", "items": file}, "text": {"type": "string"}}});
        let meta = FileMeta {
            id: "0".into(),
            name: "a.txt".into(),
            mime: "text/plain".into(),
            size: 1,
            blake3: String::new(),
            origin: String::new(),
            created_ms: 0,
            expires_ms: 0,
            seq: 0,
        };
        let at = |place: &str| shaped(&meta, "AA==".into(), place_of(&schema, place));
        assert_eq!(at("/one"), json!({"base64": "AA==", "filename": "a.txt"}));
        assert_eq!(at("/all/3"), at("/one"));
        assert_eq!(at("/text"), json!("AA=="));
        assert_eq!(at("/unknown"), json!("AA=="));
    }
}
