//! Completion: arguments of prompts and variables of templates, with what the caller may see and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::files::file_failure;
use super::super::{Gateway, RequestContext, failure};
use super::{Completing, Completion, OfferAnswer, OfferView, own};
use crate::call::{ErrorCode, ToolError};
use crate::files::FileMeta;
use crate::id::{ToolNo, UpstreamId};
use crate::limits::COMPLETION_VALUES_MAX;
use crate::snapshot::{PromptSource, Source, Subject};
use crate::upstream::config::{KnownValues, Values};
use crate::upstream::{ErrorSource, OfferAsk};

/// Files of one caller that a completion looks through.
const FILES_MAX: usize = 1_000;
/// Kept results of one caller that a completion looks through.
const RESULTS_MAX: usize = 1_000;
/// Bytes of what was typed: longer texts complete nothing.
const TYPED_BYTES_MAX: usize = 1_024;

/// The values that fit, best first, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completed {
    /// At most [`COMPLETION_VALUES_MAX`].
    pub values: Vec<String>,
    /// How many fit; `None` where only the upstream could say and did not.
    pub total: Option<usize>,
    /// Whether there are more than are here.
    pub has_more: bool,
}

/// What an offer says of one of its arguments.
struct Asked<'a> {
    values: Option<&'a Values>,
    /// The upstream to ask, with the subject and its own reference.
    upstream: Option<(&'a UpstreamId, ToolNo, Value)>,
}

impl Gateway {
    /// Completes what was typed so far.
    pub async fn complete(&self, ctx: &RequestContext, asked: &Completion) -> OfferAnswer<Completed> {
        let view = OfferView::of(self, ctx);
        if asked.value.len() > TYPED_BYTES_MAX {
            return OfferAnswer::Done(Completed { total: Some(0), ..Completed::default() });
        }
        let found = match &asked.of {
            Completing::Resource(uri) if own_values(uri).is_some() => match own_values(uri) {
                Some((name, which)) if *name == *asked.argument => {
                    return self.known(ctx, &view, which, &asked.value).await;
                }
                _ => Err(unknown(&asked.argument)),
            },
            Completing::Resource(uri) => match view.templates().find(|(_, t)| *t.entry.uri == **uri) {
                None => return OfferAnswer::NotFound,
                Some((_, template)) => {
                    let named = template.template.iter().flat_map(crate::catalog::UriTemplate::variables);
                    if named.into_iter().any(|n| n == asked.argument) {
                        let upstream = match (&template.source, template.subject) {
                            (Source::Upstream(origin), Subject::Own(no)) => {
                                let reference = json!({ "type": "ref/resource", "uri": &**origin });
                                Some((&template.upstream, no, reference))
                            }
                            _ => None,
                        };
                        Ok(Asked { values: template.values.get(&asked.argument), upstream })
                    } else {
                        Err(unknown(&asked.argument))
                    }
                }
            },
            Completing::Prompt(name) => match view.prompt(name) {
                None => return OfferAnswer::NotFound,
                Some(prompt) if prompt.entry.arguments.iter().any(|a| *a.name == *asked.argument) => {
                    let upstream = match &prompt.source {
                        PromptSource::Upstream(origin) => {
                            let reference = json!({ "type": "ref/prompt", "name": &**origin });
                            Some((&prompt.upstream, prompt.subject, reference))
                        }
                        PromptSource::Messages(_) => None,
                    };
                    Ok(Asked { values: prompt.values.get(&asked.argument), upstream })
                }
                Some(_) => Err(unknown(&asked.argument)),
            },
        };
        match found {
            Err(e) => OfferAnswer::Failed(e),
            Ok(Asked { upstream: Some((upstream, subject, reference)), .. }) => {
                self.complete_upstream(ctx, &view, (upstream, subject, reference), asked).await
            }
            Ok(Asked { values, .. }) => match values {
                None | Some(Values::Any) => {
                    OfferAnswer::Done(Completed { total: Some(0), ..Completed::default() })
                }
                Some(Values::Fixed(list)) => {
                    OfferAnswer::Done(fitting(list.iter().map(Arc::clone), &asked.value))
                }
                Some(Values::Known(which)) => self.known(ctx, &view, *which, &asked.value).await,
            },
        }
    }

    /// Values that docent knows, as far as this caller may.
    async fn known(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        which: KnownValues,
        typed: &str,
    ) -> OfferAnswer<Completed> {
        match which {
            KnownValues::Tools | KnownValues::Categories | KnownValues::Upstreams => {
                return OfferAnswer::Done(known(view, which, typed));
            }
            KnownValues::Jobs => {
                let jobs = self.list_jobs(ctx).await;
                let jobs = jobs.iter().map(|job| (Arc::clone(&job.id), &*job.tool));
                return OfferAnswer::Done(newest(jobs, typed));
            }
            KnownValues::Results => return self.known_results(ctx, view, typed).await,
            KnownValues::Files => {}
        }
        match self.files().list(&ctx.principal.subject, 0, FILES_MAX).await {
            Err(e) => OfferAnswer::Failed(file_failure(&e)),
            // By id or by name: what is proposed is the id, which is what an argument takes.
            Ok(files) => {
                let typed = typed.to_lowercase();
                let fits = |f: &&FileMeta| f.id.starts_with(&typed) || f.name.to_lowercase().contains(&typed);
                let ids = files.iter().filter(fits).map(|f| Arc::from(f.id.as_str()));
                OfferAnswer::Done(fitting(ids, ""))
            }
        }
    }

    /// Kept results of the caller, of tools that it may still know of.
    async fn known_results(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        typed: &str,
    ) -> OfferAnswer<Completed> {
        let now = self.clock().unix_ms();
        match self.store().results_of(&ctx.principal.subject, now, RESULTS_MAX).await {
            Ok(rows) => {
                let seen = rows.iter().filter(|(_, tool)| view.view.find(tool).is_some());
                OfferAnswer::Done(newest(seen.map(|(id, tool)| (Arc::from(id.as_str()), &**tool)), typed))
            }
            Err(error) => {
                tracing::error!(error = %error, "kept results cannot be listed");
                OfferAnswer::Failed(failure::internal())
            }
        }
    }

    async fn complete_upstream(
        &self,
        ctx: &RequestContext,
        view: &OfferView,
        (upstream, subject, reference): (&UpstreamId, ToolNo, Value),
        asked: &Completion,
    ) -> OfferAnswer<Completed> {
        let permit = match view.decide(ctx, subject, &asked.context) {
            Ok(permit) => permit,
            Err(answer) => return answer,
        };
        let mut params = json!({
            "ref": reference,
            "argument": { "name": asked.argument, "value": asked.value },
        });
        if let (false, Some(map)) = (asked.context.is_empty(), params.as_object_mut()) {
            map.insert("context".to_owned(), json!({ "arguments": asked.context }));
        }
        match self.ask_upstream(ctx, view, upstream, &permit, OfferAsk::Complete(&params)).await {
            Ok(raw) => {
                let value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
                let completion = value.get("completion").cloned().unwrap_or_default();
                let list = completion.get("values").and_then(Value::as_array);
                let mut values: Vec<String> =
                    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
                let cut = values.len() > COMPLETION_VALUES_MAX;
                values.truncate(COMPLETION_VALUES_MAX);
                let total = completion.get("total").and_then(Value::as_u64);
                let more = completion.get("hasMore").and_then(Value::as_bool).unwrap_or(false);
                let total = total.and_then(|n| usize::try_from(n).ok());
                OfferAnswer::Done(Completed { values, total, has_more: cut || more })
            }
            // It completes nothing: then there is nothing to propose.
            Err((ErrorSource::Unsupported | ErrorSource::Caller, _)) => {
                OfferAnswer::Done(Completed::default())
            }
            Err((_, e)) => OfferAnswer::Failed(e),
        }
    }
}

fn unknown(argument: &str) -> ToolError {
    let shown = crate::json::cut(argument, 120);
    ToolError::new(ErrorCode::InvalidArgument, format!("There is no argument `{shown}` to complete."))
}

/// Names of what this caller sees.
fn known(view: &OfferView, which: KnownValues, typed: &str) -> Completed {
    let shelf = &view.view.shelf;
    match which {
        KnownValues::Tools => {
            let tools = view.view.roster.visible.iter().filter_map(|no| view.view.catalog().get(no));
            fitting(tools.flat_map(|t| [Arc::from(t.id.as_str()), Arc::clone(&t.wire_name)]), typed)
        }
        KnownValues::Categories => fitting(
            shelf.categories.iter().map(|(name, _)| Arc::clone(name)).filter(|n| !n.is_empty()),
            typed,
        ),
        KnownValues::Upstreams => fitting(shelf.upstreams.keys().map(|id| Arc::from(id.as_str())), typed),
        // They are the caller's own, and asked for elsewhere.
        KnownValues::Files | KnownValues::Jobs | KnownValues::Results => Completed::default(),
    }
}

/// The argument of one of docent's own templates, and what completes it.
fn own_values(uri: &str) -> Option<(&'static str, KnownValues)> {
    match uri {
        own::TOOLS => Some(("tool", KnownValues::Tools)),
        own::FILES => Some(("id", KnownValues::Files)),
        own::JOBS => Some(("id", KnownValues::Jobs)),
        own::RESULTS => Some(("id", KnownValues::Results)),
        _ => None,
    }
}

/// Ids that begin with what was typed, or whose tool holds it, in the order given: the newest first.
fn newest<'a>(ids: impl Iterator<Item = (Arc<str>, &'a str)>, typed: &str) -> Completed {
    let typed = typed.to_lowercase();
    let fits = ids.filter(|(id, tool)| id.starts_with(&typed) || tool.to_lowercase().contains(&typed));
    let all: Vec<String> = fits.map(|(id, _)| id.as_ref().to_owned()).collect();
    let (total, values) = (all.len(), all.into_iter().take(COMPLETION_VALUES_MAX).collect::<Vec<_>>());
    Completed { has_more: total > values.len(), total: Some(total), values }
}

/// Values that begin with what was typed, then those that hold it, each in order; case does not matter.
fn fitting(values: impl Iterator<Item = Arc<str>>, typed: &str) -> Completed {
    let typed = typed.to_lowercase();
    let (mut first, mut second) = (BTreeSet::new(), BTreeSet::new());
    for value in values {
        match value.to_lowercase().find(&typed) {
            Some(0) => first.insert(value),
            Some(_) => second.insert(value),
            None => false,
        };
    }
    let total = first.len() + second.difference(&first).count();
    let values: Vec<String> = first
        .iter()
        .chain(second.difference(&first))
        .take(COMPLETION_VALUES_MAX)
        .map(|v| v.as_ref().to_owned())
        .collect();
    Completed { has_more: total > values.len(), total: Some(total), values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_so_comes_first_and_all_are_counted() {
        let list = ["git_log", "git.log", "log.git", "digit", "other"].map(Arc::from);
        let found = fitting(list.into_iter(), "GIT");
        assert_eq!(found.values, ["git.log", "git_log", "digit", "log.git"]);
        assert_eq!((found.total, found.has_more), (Some(4), false));
        let many = fitting((0..250).map(|n| Arc::from(format!("v{n:03}"))), "v");
        assert_eq!((many.values.len(), many.total, many.has_more), (100, Some(250), true));
        assert_eq!(many.values[0], "v000");
        assert_eq!(fitting(std::iter::empty(), "").total, Some(0));
        let ids =
            || [("job_b", "git.log"), ("job_a", "files.list")].into_iter().map(|(id, t)| (Arc::from(id), t));
        assert_eq!(newest(ids(), "job_").values, ["job_b", "job_a"]);
        assert_eq!(
            (newest(ids(), "Files").values, newest(ids(), "x").total),
            (vec!["job_a".to_owned()], Some(0))
        );
    }
}
