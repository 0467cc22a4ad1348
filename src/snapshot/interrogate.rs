//! Questions to the policies of a generation, by the names that people know: of tools, resources and prompts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Resource, Snapshot, Subject};
use crate::json::Object;
use crate::policy::{Explanation, MatrixRow, Principal, Standing};

/// How one caller stands to everything that there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OfferedRow {
    /// The tools.
    #[serde(flatten)]
    pub tools: MatrixRow,
    /// Resources and templates that it sees, by address.
    pub resources: BTreeMap<String, Standing>,
    /// Prompts that it sees, by name.
    pub prompts: BTreeMap<String, Standing>,
}

impl Snapshot {
    /// Why a caller may or may not use a tool, a resource (by address) or a prompt (by name); nothing where there
    /// is none of that name. Without arguments a read is explained with its own.
    pub fn explain(&self, who: &Principal, name: &str, arguments: Option<&Object>) -> Option<Explanation> {
        if let Some((no, _)) = self.catalog.lookup(name) {
            return self.policy.explain(&self.catalog, who, no, arguments);
        }
        let (subject, own) = self.offers.subject(name)?;
        let arguments = arguments.or(own.as_ref());
        match subject {
            Subject::Tool(no) => self.policy.explain(&self.catalog, who, no, arguments),
            Subject::Own(no) => self.policy.explain(&self.offers.subjects, who, no, arguments),
        }
    }

    /// How named callers stand to every tool, resource and prompt.
    pub fn matrix(&self, callers: &[(String, Principal)]) -> Vec<OfferedRow> {
        let rows = self.policy.matrix(&self.catalog, callers);
        let offers = &self.offers;
        rows.into_iter()
            .zip(callers)
            .map(|(tools, (_, who))| {
                let of_tools = self.policy.roster(&self.catalog, who);
                let own = self.policy.roster(&offers.subjects, who);
                let standing = |subject: Subject| match subject {
                    Subject::Tool(no) => of_tools.standing(no),
                    Subject::Own(no) => own.standing(no),
                };
                let resource = |r: &Resource| Some((r.entry.uri.to_string(), standing(r.subject)?));
                let prompts = offers.prompts.iter();
                OfferedRow {
                    tools,
                    resources: offers
                        .resources
                        .iter()
                        .chain(&offers.templates)
                        .filter_map(resource)
                        .collect(),
                    prompts: prompts
                        .filter_map(|p| Some((p.entry.name.to_string(), own.standing(p.subject)?)))
                        .collect(),
                }
            })
            .collect()
    }
}
