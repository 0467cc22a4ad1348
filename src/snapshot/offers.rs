//! What one generation offers besides tools: the packs' resources and prompts, and those of MCP upstreams.
//!
//! What a tool stands behind is as visible as that tool. Everything else is a subject of the policies by itself,
//! in a catalog of its own: `<upstream>.resource.<name>`, `<upstream>.prompt.<name>`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::catalog::{
    Catalog, CatalogBuilder, PromptEntry, ResourceEntry, Tool, UriTemplate, Variables, of_upstream, wire_name,
};
use crate::cursor::{Digest, Parts};
use crate::diagnostic::{Diagnostics, Severity};
use crate::id::{ToolId, ToolNo, UpstreamId};
use crate::json::{self, Object};
use crate::projection::Template;
use crate::upstream::config::{
    BackingCall, OfferAccess, PROMPT_TAG, PromptConfig, PromptPart, RESOURCE_TAG, ResourceConfig,
    ResourceSource, Role, Values,
};
use crate::upstream::{Offered, OfferedResource, UpstreamConfig, UpstreamSet};

/// What policies decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A tool of the catalog.
    Tool(ToolNo),
    /// A row of [`Offers::subjects`].
    Own(ToolNo),
}

/// What a resource holds.
#[derive(Debug, Clone)]
pub enum Source {
    /// A text, with the template's variables put in.
    Text(Template),
    /// Bytes.
    Bytes(Bytes),
    /// What a tool answers.
    Tool(BackingCall, ToolId),
    /// What the upstream answers, under the address that it knows. Of a template: of whatever fits.
    Upstream(Arc<str>),
}

/// A resource, or a template of resources.
#[derive(Debug, Clone)]
pub struct Resource {
    /// As it is listed.
    pub entry: Arc<ResourceEntry>,
    /// The template, where it is one.
    pub template: Option<UriTemplate>,
    /// The upstream that brings it.
    pub upstream: UpstreamId,
    /// What is decided on.
    pub subject: Subject,
    /// What it holds.
    pub source: Source,
    /// Values of the template's variables.
    pub values: BTreeMap<String, Values>,
    /// Changes with everything that a list shows of it.
    pub listed: Digest,
    /// Changes with that and with what a read shows, as far as docent knows it.
    pub digest: Digest,
}

/// What a prompt is made of.
#[derive(Debug, Clone)]
pub enum PromptSource {
    /// A pack's messages; the tools in them by id.
    Messages(Vec<(Role, PromptPart)>),
    /// The upstream's answer, under the name that it knows.
    Upstream(Arc<str>),
}

/// A prompt.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// As it is listed.
    pub entry: Arc<PromptEntry>,
    /// Its id, which callers may write as well: `<upstream>.<name>`.
    pub id: ToolId,
    /// The upstream that brings it.
    pub upstream: UpstreamId,
    /// The row of [`Offers::subjects`].
    pub subject: ToolNo,
    /// What it is made of.
    pub source: PromptSource,
    /// Values of its arguments.
    pub values: BTreeMap<String, Values>,
    /// Changes with everything that a list shows of it.
    pub digest: Digest,
}

/// Where an address leads.
#[derive(Debug, Clone)]
pub enum Found<'a> {
    /// A resource of the list, or one that fits a template.
    Resource(&'a Resource, Variables),
    /// An address of an upstream that it did not list.
    Unlisted(&'a UpstreamId, ToolNo, &'a str),
}

/// All offers of one generation. Immutable.
#[derive(Debug, Default)]
pub struct Offers {
    /// What policies decide on, one row each.
    pub subjects: Arc<Catalog>,
    /// Resources by address.
    pub resources: Vec<Resource>,
    /// Templates by their text.
    pub templates: Vec<Resource>,
    /// Prompts by name.
    pub prompts: Vec<Prompt>,
    /// Changes with any of them and with the policies.
    pub digest: Digest,
    by_uri: HashMap<Arc<str>, usize>,
    unlisted: BTreeMap<UpstreamId, ToolNo>,
}

impl Offers {
    /// Where an address leads; what an upstream lists comes before what merely fits a template.
    pub fn find<'a>(&'a self, uri: &'a str) -> Option<Found<'a>> {
        if let Some(resource) = self.by_uri.get(uri).and_then(|at| self.resources.get(*at)) {
            return Some(Found::Resource(resource, Variables::new()));
        }
        let fits = |r: &'a Resource| Some(Found::Resource(r, r.template.as_ref()?.matches(uri)?));
        if let Some(found) = self.templates.iter().find_map(fits) {
            return Some(found);
        }
        let (upstream, origin) = of_upstream(uri)?;
        let (id, subject) = self.unlisted.get_key_value(upstream)?;
        (!origin.is_empty()).then_some(Found::Unlisted(id, *subject, origin))
    }

    /// What policies decide on where a name is that of an offer and of no tool: the address of a resource or the
    /// name of a prompt. The arguments are what policies see of a read; a tool behind a resource gets its own.
    pub fn subject(&self, name: &str) -> Option<(Subject, Option<Object>)> {
        if let Some(prompt) = self.prompt(name) {
            return Some((Subject::Own(prompt.subject), None));
        }
        Some(match self.find(name)? {
            Found::Resource(Resource { subject: Subject::Tool(no), .. }, _) => (Subject::Tool(*no), None),
            Found::Resource(resource, variables) => (resource.subject, Some(described(name, &variables))),
            Found::Unlisted(_, no, _) => (Subject::Own(no), Some(described(name, &Variables::new()))),
        })
    }

    /// A prompt by its name on the wire or by its id.
    pub fn prompt(&self, name: &str) -> Option<&Prompt> {
        self.prompts.iter().find(|p| &*p.entry.name == name || p.id.as_str() == name)
    }
}

/// What a policy that looks at arguments sees of a read.
pub fn described(uri: &str, variables: &Variables) -> Object {
    let mut out: Object = variables.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect();
    out.insert("uri".to_owned(), Value::from(uri));
    out
}

/// Collects offers while their subjects have no numbers yet.
struct Collector<'a> {
    tools: &'a Catalog,
    subjects: Vec<Tool>,
    taken: HashSet<ToolId>,
    uris: HashSet<Arc<str>>,
    resources: Vec<(Resource, Option<ToolId>)>,
    prompts: Vec<(Prompt, ToolId)>,
    unlisted: Vec<(UpstreamId, ToolId)>,
}

/// Builds the offers of a generation. What is wrong with one is reported, and it is left out.
pub(super) fn build(
    upstreams: &UpstreamSet,
    tools: &Catalog,
    policy: &Digest,
    found: &mut Diagnostics,
) -> Offers {
    let mut collector = Collector {
        tools,
        subjects: Vec::new(),
        taken: HashSet::new(),
        uris: HashSet::new(),
        resources: Vec::new(),
        prompts: Vec::new(),
        unlisted: Vec::new(),
    };
    let discoveries = upstreams.discoveries();
    for config in upstreams.ids().filter_map(|id| upstreams.config(id.as_str())) {
        let discovery = discoveries.get(&config.id);
        let complete = discovery.is_some_and(|d| d.complete);
        config.resources.iter().for_each(|r| collector.resource(config, r, complete, found));
        config.prompts.iter().for_each(|p| collector.prompt(config, p, complete, found));
        if let Some(discovery) = discovery {
            collector.offered(config, &discovery.offered);
        }
    }
    collector.finish(policy, found)
}

impl Collector<'_> {
    /// Notes a subject; one whose id is taken gets another one.
    fn subject(
        &mut self,
        config: &UpstreamConfig,
        tag: &str,
        name: &str,
        access: &OfferAccess,
    ) -> Option<ToolId> {
        let mut subject = config.offer_subject(tag, name, access)?;
        if !self.taken.insert(subject.id.clone()) {
            let hash = blake3::hash(name.as_bytes()).to_hex();
            let other = format!("{}~{}", subject.id, json::cut(&hash, 8));
            subject.id = ToolId::parse(&other).ok().filter(|id| self.taken.insert(id.clone()))?;
        }
        let id = subject.id.clone();
        self.subjects.push(subject);
        Some(id)
    }

    /// The tool that a pack names: its own first, then any.
    fn tool(&self, config: &UpstreamConfig, name: &str) -> Option<(ToolNo, ToolId)> {
        let own = config.tool_id(name);
        let found = own.and_then(|id| self.tools.lookup(id.as_str())).or_else(|| self.tools.lookup(name));
        found.map(|(no, tool)| (no, tool.id.clone()))
    }

    fn resource(
        &mut self,
        config: &UpstreamConfig,
        own: &ResourceConfig,
        complete: bool,
        found: &mut Diagnostics,
    ) {
        if !self.uris.insert(Arc::clone(&own.entry.uri)) {
            let message = format!("the address `{}` is taken by another resource", own.entry.uri);
            let error = config.file.error_at("duplicate-resource", own.offset, message);
            return found.push(error.help("give one of them another address"));
        }
        let (source, subject) = match &own.source {
            ResourceSource::Text(text) => (Source::Text(text.clone()), None),
            ResourceSource::Bytes(bytes) => (Source::Bytes(bytes.clone()), None),
            ResourceSource::Tool(call) => match self.tool(config, &call.tool) {
                Some((no, id)) => (Source::Tool(call.clone(), id), Some(no)),
                None => return self.no_tool(config, own.offset, &call.tool, complete, found),
            },
        };
        let (subject, id) = match subject {
            Some(no) => (Subject::Tool(no), None),
            None => {
                let id = self.subject(config, RESOURCE_TAG, &own.entry.name, &own.access);
                let Some(id) = id else { return };
                (Subject::Own(ToolNo(0)), Some(id))
            }
        };
        let digest = digest_of(&own.entry, &own.source);
        let resource = Resource {
            entry: Arc::new(own.entry.clone()),
            template: own.template.clone(),
            upstream: config.id.clone(),
            subject,
            source,
            values: own.values.clone(),
            listed: digest_of_entry(&own.entry).digest(),
            digest,
        };
        self.resources.push((resource, id));
    }

    /// A tool that is not there is a mistake only once all of the upstream's tools are known.
    fn no_tool(
        &self,
        config: &UpstreamConfig,
        offset: usize,
        tool: &str,
        complete: bool,
        found: &mut Diagnostics,
    ) {
        if !complete {
            return;
        }
        let near = self.tools.tools().iter().filter(|t| t.upstream == config.id).map(|t| &*t.name);
        let help = match crate::diagnostic::did_you_mean(tool, near) {
            Some(near) => format!("did you mean `{near}`? It is left out until then"),
            None => "name a tool of this pack, or any tool by its id; it is left out until then".to_owned(),
        };
        let message = format!("the tool `{tool}` is not in the catalog");
        let mut warning = config.file.error_at("unknown-tool", offset, message);
        warning.severity = Severity::Warning;
        found.push(warning.help(help));
    }

    fn prompt(
        &mut self,
        config: &UpstreamConfig,
        own: &PromptConfig,
        complete: bool,
        found: &mut Diagnostics,
    ) {
        let mut messages = own.messages.clone();
        for (_, part) in &mut messages {
            let PromptPart::Tool(call) = part else { continue };
            match self.tool(config, &call.tool) {
                Some((_, id)) => call.tool = Arc::from(id.as_str()),
                None => return self.no_tool(config, own.offset, &call.tool, complete, found),
            }
        }
        let source = PromptSource::Messages(messages);
        if !self.push_prompt(config, &own.entry, source, own.values.clone(), &own.access) {
            let message = format!("two prompts have the id `{}`", own.entry.name);
            let error = config.file.error_at("duplicate-prompt", own.offset, message);
            found.push(error.help("rename one of them"));
        }
    }

    fn push_prompt(
        &mut self,
        config: &UpstreamConfig,
        entry: &PromptEntry,
        source: PromptSource,
        values: BTreeMap<String, Values>,
        access: &OfferAccess,
    ) -> bool {
        let Some(id) = config.tool_id(&entry.name) else { return true };
        if self.prompts.iter().any(|(p, _)| p.id == id) {
            return false;
        }
        let Some(subject) = self.subject(config, PROMPT_TAG, &entry.name, access) else { return true };
        let prompt = Prompt {
            entry: Arc::new(entry.clone()),
            id,
            upstream: config.id.clone(),
            subject: ToolNo(0),
            digest: digest_of_prompt(entry, &source),
            source,
            values,
        };
        self.prompts.push((prompt, subject));
        true
    }

    fn offered(&mut self, config: &UpstreamConfig, offered: &Offered) {
        let access = OfferAccess::default();
        for OfferedResource { entry, origin, template } in &offered.resources {
            if !self.uris.insert(Arc::clone(&entry.uri)) {
                continue;
            }
            let Some(id) = self.subject(config, RESOURCE_TAG, &entry.name, &access) else { continue };
            let resource = Resource {
                listed: digest_of_entry(entry).digest(),
                digest: digest_of_entry(entry).digest(),
                entry: Arc::new(entry.clone()),
                template: template.clone(),
                upstream: config.id.clone(),
                subject: Subject::Own(ToolNo(0)),
                source: Source::Upstream(Arc::clone(origin)),
                values: BTreeMap::new(),
            };
            self.resources.push((resource, Some(id)));
        }
        for entry in &offered.prompts {
            let source = PromptSource::Upstream(Arc::clone(&entry.name));
            self.push_prompt(config, entry, source, BTreeMap::new(), &access);
        }
        if offered.reads
            && let Some(id) = self.subject(config, RESOURCE_TAG, "unlisted", &access)
        {
            self.unlisted.push((config.id.clone(), id));
        }
    }

    fn finish(self, policy: &Digest, found: &mut Diagnostics) -> Offers {
        let mut builder = CatalogBuilder::new(Vec::new());
        self.subjects.into_iter().for_each(|s| builder.push(s));
        let subjects = builder.build(found);
        let number = |id: &ToolId| subjects.lookup(id.as_str()).map(|(no, _)| no);
        let mut offers = Offers::default();
        for (mut resource, id) in self.resources {
            if let Some(id) = &id {
                let Some(no) = number(id) else { continue };
                resource.subject = Subject::Own(no);
            }
            let list =
                if resource.template.is_some() { &mut offers.templates } else { &mut offers.resources };
            list.push(resource);
        }
        offers.resources.sort_by(|a, b| a.entry.uri.cmp(&b.entry.uri));
        offers.templates.sort_by(|a, b| a.entry.uri.cmp(&b.entry.uri));
        offers.prompts = named(self.prompts, &number);
        offers.unlisted = self.unlisted.iter().filter_map(|(u, id)| Some((u.clone(), number(id)?))).collect();
        offers.by_uri =
            offers.resources.iter().enumerate().map(|(i, r)| (Arc::clone(&r.entry.uri), i)).collect();
        let mut parts = Parts::default();
        parts.add(policy);
        let shown = offers.resources.iter().chain(&offers.templates).map(|r| &r.digest);
        shown.chain(offers.prompts.iter().map(|p| &p.digest)).for_each(|d| parts.add(d));
        for subject in subjects.tools() {
            parts.add(&json::to_bytes(&(&subject.id, &subject.tier, &subject.scopes, &*subject.facts)));
        }
        offers.digest = parts.digest();
        offers.subjects = Arc::new(subjects);
        offers
    }
}

/// Prompts by the names that they get on the wire: those of tools, made of their ids.
fn named(prompts: Vec<(Prompt, ToolId)>, number: &dyn Fn(&ToolId) -> Option<ToolNo>) -> Vec<Prompt> {
    let mut uses: HashMap<String, usize> = HashMap::new();
    for (prompt, _) in &prompts {
        *uses.entry(wire_name(&prompt.id, true)).or_default() += 1;
    }
    let mut out = Vec::with_capacity(prompts.len());
    for (mut prompt, subject) in prompts {
        let Some(no) = number(&subject) else { continue };
        prompt.subject = no;
        let unique = uses.get(&wire_name(&prompt.id, true)) == Some(&1);
        let name: Arc<str> = Arc::from(wire_name(&prompt.id, unique));
        prompt.entry = Arc::new(PromptEntry { name, ..PromptEntry::clone(&prompt.entry) });
        out.push(prompt);
    }
    out.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
    out.dedup_by(|a, b| a.entry.name == b.entry.name);
    out
}

fn digest_of_entry(entry: &ResourceEntry) -> Parts {
    let mut parts = Parts::default();
    parts.add(entry.uri.as_bytes());
    parts.add(&json::to_bytes(&(
        &entry.name,
        &entry.title,
        &entry.description,
        &entry.mime,
        entry.size,
        &entry.annotations,
    )));
    parts
}

fn digest_of(entry: &ResourceEntry, source: &ResourceSource) -> Digest {
    let mut parts = digest_of_entry(entry);
    match source {
        ResourceSource::Bytes(bytes) => parts.add(bytes),
        other => parts.add(format!("{other:?}").as_bytes()),
    }
    parts.digest()
}

fn digest_of_prompt(entry: &PromptEntry, source: &PromptSource) -> Digest {
    let mut parts = Parts::default();
    parts.add(format!("{entry:?}").as_bytes());
    parts.add(format!("{source:?}").as_bytes());
    parts.digest()
}
