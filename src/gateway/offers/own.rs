//! docent's own resources: the full entry of every tool, the caller's files and jobs, results that were too large.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::meta;
use super::super::{Gateway, JobAnswer, JobReport, RequestContext, failure};
use super::{ContentBody, OfferAnswer, OfferView, ResourceContent};
use crate::call::{ErrorCode, ToolError};
use crate::catalog::ResourceEntry;
use crate::files::{FileMeta, URI_PREFIX};
use crate::jobs::JobView;
use crate::json::{self, JsonText, Object};

/// The template of tools.
pub(super) const TOOLS: &str = "docent://tools/{tool}";
/// The template of the caller's files.
pub(super) const FILES: &str = "docent://files/{id}";
/// The template of results that did not fit.
pub(super) const RESULTS: &str = "docent://results/{id}";
/// The template of the caller's jobs.
pub(super) const JOBS: &str = "docent://jobs/{id}";
const JOB_PREFIX: &str = "docent://jobs/";
const TOOL_PREFIX: &str = "docent://tools/";
const RESULT_PREFIX: &str = "docent://results/";

/// docent's own templates, in the order of listing.
pub(super) fn templates(gateway: &Gateway) -> Vec<Arc<ResourceEntry>> {
    let entry = |uri: &str, name: &str, title: &str, description: &str, mime: Option<&str>| {
        Arc::new(ResourceEntry {
            uri: Arc::from(uri),
            name: Arc::from(name),
            title: Some(Arc::from(title)),
            description: Some(Arc::from(description)),
            mime: mime.map(Arc::from),
            ..ResourceEntry::default()
        })
    };
    let json = Some("application/json");
    let tools = "Strict schemas, hints and permissions of one tool that you may use, by id or name.";
    let results = "What did not fit into a result, whole, by the `result_id` that the result names.";
    let jobs = "How one of your jobs stands and, once it has ended, what came of it, by its `job_id`.";
    let mut all = vec![
        entry(TOOLS, "tool", "A tool's full entry", tools, json),
        entry(RESULTS, "result", "A kept result", results, json),
        entry(JOBS, "job", "A job of yours", jobs, json),
    ];
    if gateway.files().are_kept() {
        let files = "One of your files: uploaded by you, or made for you by a tool.";
        all.push(entry(FILES, "file", "A file of yours", files, None));
    }
    all
}

/// A file of the caller as it is listed.
pub(super) fn file(file: &FileMeta) -> Arc<ResourceEntry> {
    let made = match file.origin.as_str() {
        crate::files::UPLOADED => "Uploaded by you.".to_owned(),
        tool => format!("Made by `{tool}`."),
    };
    Arc::new(ResourceEntry {
        uri: Arc::from(file.uri()),
        name: Arc::from(file.name.as_str()),
        description: Some(Arc::from(made)),
        mime: Some(Arc::from(file.mime.as_str())),
        size: Some(file.size),
        ..ResourceEntry::default()
    })
}

/// Whether the caller may watch one of docent's own addresses: those of tools. Files and kept results never
/// change.
pub(super) fn shows(view: &OfferView, ctx: &RequestContext, uri: &str) -> bool {
    uri.strip_prefix(TOOL_PREFIX).is_some_and(|name| tool(view, ctx, name).is_ok())
}

fn tool(view: &OfferView, ctx: &RequestContext, name: &str) -> Result<JsonText, ToolError> {
    let arguments: Object = [("tool".to_owned(), Value::from(name))].into_iter().collect();
    meta::describe(&view.view, &ctx.principal, &arguments)
}

fn report_text(job: &JobView, server: &str) -> Result<JsonText, ToolError> {
    JsonText::parse(json::to_text(&JobReport::of(job, server))).map_err(|_broken| failure::internal())
}

/// A read of one of docent's own addresses; `None` where it is none of them.
pub(super) async fn read(
    gateway: &Gateway,
    view: &OfferView,
    ctx: &RequestContext,
    uri: &str,
) -> Option<OfferAnswer<Vec<ResourceContent>>> {
    if let Some(id) = uri.strip_prefix(URI_PREFIX) {
        return Some(gateway.read_file_resource(ctx, uri, id).await);
    }
    let found = if let Some(id) = uri.strip_prefix(JOB_PREFIX) {
        match gateway.job(ctx, id, Duration::ZERO).await {
            JobAnswer::Job(job) => report_text(&job, view.view.server()),
            JobAnswer::Unknown => return Some(OfferAnswer::NotFound),
            JobAnswer::Challenge(challenge) => return Some(OfferAnswer::Challenge(challenge)),
            JobAnswer::Refused(error) => Err(error),
        }
    } else if let Some(id) = uri.strip_prefix(RESULT_PREFIX) {
        gateway.kept_result(&view.view, &ctx.principal, id).await.map(|(_, json)| json)
    } else {
        tool(view, ctx, uri.strip_prefix(TOOL_PREFIX)?)
    };
    Some(match found {
        Ok(json) => OfferAnswer::Done(vec![ResourceContent {
            uri: uri.to_owned(),
            mime: Some("application/json".to_owned()),
            body: ContentBody::Text(json.as_str().to_owned()),
        }]),
        Err(e) if e.code == ErrorCode::NotFound => OfferAnswer::NotFound,
        Err(e) => OfferAnswer::Failed(e),
    })
}
