//! The shaping of one tool as `upstream.toml` writes it: read and checked, not yet compiled.

use std::sync::Arc;

use serde_json::Value;

use super::PackSources;
use super::pointer::Pointer;
use super::template::Template;
use crate::diagnostic::{Diagnostic, SourceFile};
use crate::schema::SchemaText;
use crate::settings::Located;

/// The shaping of one tool as `upstream.toml` writes it (contract §1.3, §1.7), read but not yet compiled.
#[derive(Debug, Clone, Default)]
pub struct ProjectionSpec {
    /// The pack's scripts and schemas.
    pub(super) pack: Arc<PackSources>,
    /// Where it stands, for mistakes that only compiling finds.
    pub(super) place: Place,
    /// The request template.
    pub(super) request: Option<RequestSpec>,
    /// The script and the names of its functions.
    pub(super) script: Option<ScriptSpec>,
    /// How text output becomes records.
    pub(super) lines: Option<LinesSpec>,
    /// The declarative mapping.
    pub(super) mapping: Option<MappingSpec>,
    /// The names of the result families the tool may answer with.
    pub(super) families: Vec<Located<String>>,
    /// A schema of its own for the bare result, where it has no families.
    pub(super) output_schema: Option<Located<SchemaText>>,
}

/// A file and an offset in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// The file; `None` only for a spec made by tests.
    pub(super) file: Option<SourceFile>,
    /// Byte offset.
    pub(super) offset: usize,
}

impl Place {
    /// An error at `offset` in the same file.
    pub(super) fn error_at(&self, offset: usize, code: &'static str, message: String) -> Diagnostic {
        match &self.file {
            Some(file) => file.error_at(code, offset, message),
            None => Diagnostic::error(code, "upstream.toml", message),
        }
    }
}

/// `request = { method, path, query, headers, body | form | multipart | raw }`.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestSpec {
    /// `GET`, `POST`, …
    pub(super) method: String,
    /// Below the upstream's `base_url`, begins with `/`.
    pub(super) path: Located<Template>,
    /// Pairs in file order; a pair whose argument is absent is dropped.
    pub(super) query: Vec<(String, Located<Template>)>,
    /// Headers; one whose argument is absent is dropped.
    pub(super) headers: Vec<(String, Located<Template>)>,
    /// The body.
    pub(super) body: BodySpec,
}

impl Default for Located<Template> {
    fn default() -> Self {
        Self { value: Template::default(), offset: 0 }
    }
}

/// The body of a [`RequestSpec`].
#[derive(Debug, Clone, Default)]
pub(super) enum BodySpec {
    /// None.
    #[default]
    Empty,
    /// `body = "name"`: the argument's value as JSON.
    Argument(Located<String>),
    /// `body = "*"`: a JSON object of all arguments that the rest of the template does not use.
    Rest,
    /// `body = { … }`: a JSON object with placeholders; a whole `"{name}"` keeps the argument's type.
    Json(BodyNode, usize),
    /// `form = { … }`: urlencoded pairs.
    Form(Vec<(String, Located<Template>)>),
    /// `raw = "name"`: the argument's bytes, as they are.
    Raw(Located<String>),
    /// `multipart = { … }`: parts of a form; an argument that is a file is a file there.
    Multipart(Vec<(String, Located<Template>)>),
}

/// A node of a JSON body template.
#[derive(Debug, Clone)]
pub(super) enum BodyNode {
    /// As it is.
    Literal(Value),
    /// A text with placeholders.
    Text(Template),
    /// Elements; one whose argument is absent is dropped.
    List(Vec<BodyNode>),
    /// Members; one whose argument is absent is dropped.
    Table(Vec<(String, BodyNode)>),
}

/// `script = "file.rhai"` or `script = { file, request, project, run, failed }`.
#[derive(Debug, Clone)]
pub(super) struct ScriptSpec {
    /// The source.
    pub(super) source: SourceFile,
    /// Where it is named.
    pub(super) offset: usize,
    /// Function names; the defaults are the roles' own names.
    pub(super) request: Option<String>,
    /// Shapes a reply.
    pub(super) project: Option<String>,
    /// Makes several calls.
    pub(super) run: Option<String>,
    /// Shapes a failure.
    pub(super) failed: Option<String>,
}

/// `lines = { columns, separator, record_separator, skip, numbers }`: text output to records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinesSpec {
    /// The name of each column; text beyond the last belongs to the last.
    pub(super) columns: Vec<String>,
    /// Between columns; `None` is any run of blanks.
    pub(super) separator: Option<String>,
    /// Between records.
    pub(super) record_separator: String,
    /// Records left out at the start (headings).
    pub(super) skip: usize,
    /// Columns that are JSON numbers where the text is one.
    pub(super) numbers: Vec<String>,
}

/// How long a string of the result may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TruncateSpec {
    /// Bytes of every string.
    pub(super) all: Option<usize>,
    /// Bytes by output name.
    pub(super) fields: Vec<(String, usize)>,
}

/// What is known of the upstream's paging.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PagingMode {
    /// The upstream pages: what it sent is a window of more.
    #[default]
    Upstream,
    /// The upstream sends the complete collection.
    Complete,
}

/// `fields`, `rename`, `collection`, `limit`, `truncate`, `drop_null`, `paging`.
#[derive(Debug, Clone, Default)]
pub(super) struct MappingSpec {
    /// Where the records are; `None`: the reply is one record.
    pub(super) collection: Option<Pointer>,
    /// Output name and pointer into a record; empty: every member of the record.
    pub(super) fields: Vec<(String, Pointer)>,
    /// New names for members of the record, where `fields` is empty.
    pub(super) rename: Vec<(String, String)>,
    /// Records at most.
    pub(super) limit: Option<usize>,
    /// Text ceilings.
    pub(super) truncate: TruncateSpec,
    /// Whether null members are left out.
    pub(super) drop_null: bool,
    /// What is known of paging.
    pub(super) paging: PagingMode,
    /// Where the upstream tells the total.
    pub(super) total: Option<Pointer>,
    /// What a record is called in `page.unit`.
    pub(super) unit: Option<String>,
}
