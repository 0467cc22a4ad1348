//! Resources and prompts for one caller: what it is shown, and one gate for all that it may use.
//!
//! Hidden and absent are one answer here too. A resource that a tool stands behind is decided by that tool.

mod answer;
mod complete;
mod list;
mod own;
mod prompt;
mod read;
mod rounds;
mod watch;

use std::sync::Arc;

use serde_json::Value;

pub use answer::{
    Completing, Completion, ContentBody, OfferAnswer, PromptMessage, PromptPage, PromptText, ResourceContent,
    ResourcePage,
};
pub use complete::Completed;
pub(super) use prompt::rename;
pub(super) use read::content;
pub use watch::Watched;
pub(super) use watch::Watches;

use super::record::refusal;
use super::view::View;
use super::{Gateway, RequestContext, failure};
use crate::audit::Audit;
use crate::id::ToolNo;
use crate::json::Object;
use crate::policy::{Decision, Permit, Reason, Roster};
use crate::snapshot::{Offers, Prompt, Resource, Subject};

/// One request's view of the offers, over the same snapshot as that of the tools.
#[derive(Debug)]
pub(super) struct OfferView {
    pub(super) view: View,
    roster: Arc<Roster>,
    audit: Audit,
}

impl OfferView {
    pub(super) fn of(gateway: &Gateway, ctx: &RequestContext) -> Self {
        let view = View::of(gateway, ctx);
        let roster = view.snapshot.policy.roster(&view.snapshot.offers.subjects, &ctx.principal);
        Self { view, roster, audit: gateway.audit().clone() }
    }

    pub(super) fn offers(&self) -> &Offers {
        &self.view.snapshot.offers
    }

    /// Callers who see the same tools and the same offers.
    fn class(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.view.class);
        hasher.update(&self.roster.shown());
        *hasher.finalize().as_bytes()
    }

    fn shows(&self, subject: Subject) -> bool {
        match subject {
            Subject::Tool(no) => self.view.roster.visible.contains(no),
            Subject::Own(no) => self.roster.visible.contains(no),
        }
    }

    fn resources(&self) -> impl Iterator<Item = (usize, &Resource)> {
        self.offers().resources.iter().enumerate().filter(|(_, r)| self.shows(r.subject))
    }

    fn templates(&self) -> impl Iterator<Item = (usize, &Resource)> {
        self.offers().templates.iter().enumerate().filter(|(_, r)| self.shows(r.subject))
    }

    fn prompts(&self) -> impl Iterator<Item = (usize, &Prompt)> {
        self.offers().prompts.iter().enumerate().filter(|(_, p)| self.shows(Subject::Own(p.subject)))
    }

    fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.offers().prompt(name).filter(|p| self.shows(Subject::Own(p.subject)))
    }

    /// What policy says of using an offer; the answer for the caller where that is no permit.
    fn decide<T>(
        &self,
        ctx: &RequestContext,
        subject: ToolNo,
        arguments: &Object,
    ) -> Result<Permit, OfferAnswer<T>> {
        let (policy, subjects) = (&self.view.snapshot.policy, &self.offers().subjects);
        let name = subjects.get(subject).map_or("", |s| s.id.as_str());
        let decision = policy.decide(subjects, &ctx.principal, subject, Some(arguments));
        if !matches!(decision, Decision::Permit(_)) {
            refusal(&self.audit, ctx, ("offer", name), (decision.word(), Some(decision.rule())));
        }
        match decision {
            Decision::Permit(permit) => Ok(permit),
            Decision::Challenge(challenge) => Err(OfferAnswer::Challenge(challenge)),
            Decision::Deny { reason: Reason::Hidden, .. } => Err(OfferAnswer::NotFound),
            Decision::Confirm(asked) => Err(OfferAnswer::Failed(failure::confirmation(name, &asked))),
            Decision::Deny { reason, rule } => {
                if let Reason::PolicyFault(detail) = &reason {
                    tracing::error!(
                        offer.id = name,
                        principal.id = %ctx.principal.subject,
                        policy.rule = %rule,
                        error = %detail,
                        "a policy could not be evaluated"
                    );
                }
                Err(OfferAnswer::Failed(failure::denial(name, &reason)))
            }
        }
    }
}

/// The arguments of a backing call: templates filled, a text that is one placeholder as the type that the tool
/// wants.
pub(super) fn bind(arguments: &Object, values: &Object, schema: &Value) -> Object {
    let mut out = Object::new();
    for (name, value) in arguments {
        let wanted = schema.pointer("/properties").and_then(|p| p.get(name));
        if let Some(bound) = bind_value(value, values, wanted) {
            out.insert(name.clone(), bound);
        }
    }
    out
}

fn bind_value(value: &Value, values: &Object, wanted: Option<&Value>) -> Option<Value> {
    match value {
        Value::String(text) => {
            let template = crate::projection::Template::parse(text).ok()?;
            // A placeholder that has no value takes its argument with it.
            let filled = template.fill(values)?;
            if template.whole().is_some() {
                return Some(typed(filled, wanted));
            }
            Some(Value::from(filled))
        }
        Value::Array(items) => {
            let of_items = wanted.and_then(|w| w.get("items"));
            Some(items.iter().filter_map(|v| bind_value(v, values, of_items)).collect())
        }
        Value::Object(map) => {
            let properties = wanted.and_then(|w| w.get("properties"));
            let bound = map.iter().filter_map(|(k, v)| {
                Some((k.clone(), bind_value(v, values, properties.and_then(|p| p.get(k)))?))
            });
            Some(Value::Object(bound.collect()))
        }
        other => Some(other.clone()),
    }
}

/// A text as the number or boolean that a schema wants; as it is where it is none.
fn typed(text: String, wanted: Option<&Value>) -> Value {
    let kind = wanted.and_then(|w| w.get("type")).and_then(Value::as_str).unwrap_or("string");
    let parsed = match kind {
        "integer" => text.parse::<i64>().ok().map(Value::from),
        "number" => text.parse::<f64>().ok().map(Value::from),
        "boolean" => text.parse::<bool>().ok().map(Value::from),
        _ => None,
    };
    parsed.unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_take_the_type_that_the_tool_wants() {
        let schema = json!({"properties": {"id": {"type": "integer"}, "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}}}});
        let arguments = json!({"id": "{id}", "q": "name:{id}", "deep": {"on": "{on}"}, "list": ["{id}", 1], "gone": "{absent}"});
        let values = json!({"id": "7", "on": "true"});
        let bound = bind(arguments.as_object().unwrap(), values.as_object().unwrap(), &schema);
        let expected = json!({"id": 7, "q": "name:7", "deep": {"on": true}, "list": ["7", 1]});
        assert_eq!(Value::Object(bound), expected);
        let text = bind(arguments.as_object().unwrap(), json!({"id": "x"}).as_object().unwrap(), &schema);
        assert_eq!(text["id"], "x", "the tool's own schema says what is wrong with it");
    }
}
