//! The caller, the tool, the arguments and the agent as policy functions see them. Every read is written
//! down, so that an answer is only reused for callers and tools that are equal in all that was read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::asked::{Asked, Lazy, TextField};
use super::glob;
use super::owned::Ledger;
use super::principal::Principal;
use super::rule::{effect_of, open_world};
use super::tier::Tiers;
use crate::catalog::Tool;
use crate::id::AgentId;
use crate::json::Object;
use crate::script::{Dynamic, HostResult, fault, value};

/// Something of the caller that a function read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum CallerRead {
    Subject,
    SubjectIs(Asked, Arc<str>),
    Scopes,
    HasScope(Arc<str>),
    Agent,
    Tier,
    Reaches(Arc<str>),
    Claim(Arc<str>),
    ClientName,
    ClientVersion,
}

impl CallerRead {
    /// Its value, as bytes to compare and hash.
    pub(super) fn value(&self, who: &Principal, tiers: &Tiers) -> Value {
        let text = |t: Option<&str>| t.map_or(Value::Null, Value::from);
        match self {
            Self::Subject => Value::from(&*who.subject),
            Self::SubjectIs(asked, with) => Value::from(asked.of(&who.subject, with)),
            Self::Scopes => who.scopes.iter().map(|s| Value::from(s.as_str())).collect(),
            Self::HasScope(scope) => Value::from(who.has_scope(scope)),
            Self::Agent => text(who.agent.as_ref().map(AgentId::as_str)),
            Self::Tier => text(who.tier.as_deref()),
            Self::Reaches(tier) => Value::from(tiers.reaches(who.tier.as_deref(), tier)),
            Self::Claim(name) => who.claims.get(&**name).cloned().unwrap_or(Value::Null),
            Self::ClientName => text(who.client.name.as_deref()),
            Self::ClientVersion => text(who.client.version.as_deref()),
        }
    }

    /// What an explanation shows: of a question about a text, the text.
    fn shown(&self) -> Self {
        match self {
            Self::SubjectIs(..) => Self::Subject,
            read => read.clone(),
        }
    }

    /// Its name: in an explanation, and in the key of a class.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Subject => "caller.subject".to_owned(),
            Self::SubjectIs(asked, with) => format!("caller.subject {asked:?} {with}"),
            Self::Scopes => "caller.scopes".to_owned(),
            Self::HasScope(scope) => format!("caller.has_scope({scope})"),
            Self::Agent => "caller.agent".to_owned(),
            Self::Tier => "caller.tier".to_owned(),
            Self::Reaches(tier) => format!("caller.tier_at_least({tier})"),
            Self::Claim(name) => format!("caller.claims.{name}"),
            Self::ClientName => "caller.client.name".to_owned(),
            Self::ClientVersion => "caller.client.version".to_owned(),
        }
    }
}

/// Something of the tool that a function read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ToolRead {
    Text(TextField),
    Tags,
    HasTag(Arc<str>),
    Matches(Arc<str>),
    /// Whether a text answers a question.
    Is(TextField, Asked, Arc<str>),
    /// Whether the tool asks for a scope.
    HasScope(Arc<str>),
    ReadOnly,
    Destructive,
    OpenWorld,
    Idempotent,
    Tier,
    Scopes,
    Effect,
    Deprecated,
    Fact(Arc<str>),
}

impl ToolRead {
    /// Its value. One place for reading, for classes and for explanations, so that they cannot differ.
    pub(super) fn value(&self, tool: &ToolFacts) -> Value {
        let tool = &tool.0;
        let texts = |list: &[Arc<str>]| list.iter().map(|t| Value::from(&**t)).collect::<Value>();
        match self {
            Self::Text(field) => Value::from(field.text(tool)),
            Self::Tags => texts(&tool.tags),
            Self::HasTag(tag) => Value::from(tool.tags.contains(tag)),
            Self::Matches(pattern) => Value::from(glob::matches(pattern, tool.id.as_str())),
            Self::Is(field, asked, with) => Value::from(asked.of(field.text(tool), with)),
            Self::HasScope(scope) => Value::from(tool.scopes.iter().any(|s| s.as_str() == &**scope)),
            Self::ReadOnly => Value::from(tool.annotations.is_read_only()),
            Self::Destructive => Value::from(tool.annotations.is_destructive()),
            Self::OpenWorld => Value::from(open_world(tool)),
            Self::Idempotent => Value::from(tool.annotations.idempotent == Some(true)),
            Self::Tier => tool.tier.as_deref().map_or(Value::Null, Value::from),
            Self::Scopes => tool.scopes.iter().map(|s| Value::from(s.as_str())).collect(),
            Self::Effect => Value::from(effect_of(tool)),
            Self::Deprecated => Value::from(tool.deprecated.is_some()),
            Self::Fact(name) => tool.facts.get(&**name).cloned().unwrap_or(Value::Null),
        }
    }

    /// What an explanation shows: of a question about a text, the text.
    fn shown(&self) -> Self {
        match self {
            Self::Is(field, ..) => Self::Text(*field),
            Self::HasScope(_) => Self::Scopes,
            read => read.clone(),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Text(field) | Self::Is(field, ..) => format!("tool.{}", field.name()),
            Self::Tags => "tool.tags".to_owned(),
            Self::HasTag(tag) => format!("tool.has_tag({tag})"),
            Self::Matches(pattern) => format!("tool.matches({pattern})"),
            Self::ReadOnly => "tool.annotations.read_only".to_owned(),
            Self::Destructive => "tool.annotations.destructive".to_owned(),
            Self::OpenWorld => "tool.annotations.open_world".to_owned(),
            Self::Idempotent => "tool.annotations.idempotent".to_owned(),
            Self::Tier => "tool.tier".to_owned(),
            Self::Scopes | Self::HasScope(_) => "tool.scopes".to_owned(),
            Self::Effect => "tool.effect".to_owned(),
            Self::Deprecated => "tool.deprecated".to_owned(),
            Self::Fact(name) => format!("tool.facts.{name}"),
        }
    }
}

/// A tool without its schemas and texts: what policies may read of it, kept beside the catalog.
#[derive(Debug)]
pub(super) struct ToolFacts(Tool);

impl ToolFacts {
    pub(super) fn of(tool: &Tool) -> Self {
        let mut kept = Tool::new(
            tool.id.clone(),
            tool.upstream.clone(),
            Arc::clone(&tool.name),
            crate::schema::SchemaText::empty_object(),
        );
        kept.category = Arc::clone(&tool.category);
        kept.tags = Arc::clone(&tool.tags);
        kept.annotations = tool.annotations.clone();
        kept.tier.clone_from(&tool.tier);
        kept.scopes = Arc::clone(&tool.scopes);
        kept.deprecated.clone_from(&tool.deprecated);
        kept.facts = Arc::clone(&tool.facts);
        Self(kept)
    }
}

/// What one evaluation read.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Which fields are answered question by question.
    pub(super) lazy: Lazy,
    caller: Mutex<Vec<CallerRead>>,
    tool: Mutex<Vec<ToolRead>>,
    arguments: AtomicBool,
    late: AtomicBool,
}

fn once<T: PartialEq>(list: &Mutex<Vec<T>>, read: T) {
    let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
    if !list.contains(&read) {
        list.push(read);
    }
}

impl Log {
    pub(super) fn new(lazy: Lazy) -> Arc<Self> {
        Arc::new(Self { lazy, ..Self::default() })
    }

    pub(super) fn caller(&self, read: CallerRead) {
        once(&self.caller, read);
    }

    pub(super) fn caller_reads(&self) -> Vec<CallerRead> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// In the order of reading: the path through the function.
    pub(super) fn tool_reads(&self) -> Vec<ToolRead> {
        self.tool.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn read_arguments(&self) -> bool {
        self.arguments.load(Ordering::Relaxed)
    }

    /// Notes that the evaluation ran out of time: on another day it might have ended.
    pub(super) fn met_deadline(&self) {
        self.late.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_met_deadline(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }
}

/// `caller`.
#[derive(Debug, Clone)]
pub(super) struct CallerView {
    pub(super) who: Arc<Principal>,
    pub(super) tiers: Arc<Tiers>,
    pub(super) log: Arc<Log>,
}

impl CallerView {
    pub(super) fn read(&self, read: CallerRead) -> Dynamic {
        let found = value::to_dynamic(&read.value(&self.who, &self.tiers));
        self.log.caller(read);
        found
    }
}

/// `caller.claims` and `caller.client`: the same, one step in.
#[derive(Debug, Clone)]
pub(super) struct ClaimsView(pub(super) CallerView);
#[derive(Debug, Clone)]
pub(super) struct ClientView(pub(super) CallerView);

/// `tool`.
#[derive(Debug, Clone)]
pub(super) struct ToolView {
    pub(super) tool: Arc<ToolFacts>,
    pub(super) log: Arc<Log>,
}

impl ToolView {
    pub(super) fn read(&self, read: ToolRead) -> Dynamic {
        let found = value::to_dynamic(&read.value(&self.tool));
        once(&self.log.tool, read);
        found
    }
}

#[derive(Debug, Clone)]
pub(super) struct AnnotationsView(pub(super) ToolView);
#[derive(Debug, Clone)]
pub(super) struct FactsView(pub(super) ToolView);

/// `args`: an object of the arguments, or nothing while they are not known.
#[derive(Debug, Clone)]
pub(super) struct ArgumentsView {
    pub(super) object: Option<Arc<Object>>,
    pub(super) log: Arc<Log>,
}

impl ArgumentsView {
    pub(super) fn known(&self) -> HostResult<&Object> {
        self.log.arguments.store(true, Ordering::Relaxed);
        self.object.as_deref().ok_or_else(|| fault("the arguments are not known yet"))
    }
}

/// What the caller created, for `owns`: the tag of an evaluation.
#[derive(Debug, Clone)]
pub(super) struct OwnershipView {
    pub(super) who: Arc<Principal>,
    /// Nothing while the call is not there.
    pub(super) ledger: Option<Arc<Ledger>>,
    pub(super) log: Arc<Log>,
}

impl OwnershipView {
    pub(super) fn owns(&self, kind: &str, id: &str) -> HostResult<bool> {
        self.log.arguments.store(true, Ordering::Relaxed);
        let ledger = self.ledger.as_ref().ok_or_else(|| fault("ownership is not known before the call"))?;
        Ok(ledger.owns(&self.who.subject, kind, id))
    }
}

/// An agent as `agent_visible` and `agent_open` see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFacts {
    /// Its name.
    pub id: AgentId,
    /// What it is for.
    pub description: Arc<str>,
    /// What it can do, in the words of its card.
    pub capabilities: Vec<Arc<str>>,
    /// The ids or patterns of its tools.
    pub tools: Vec<Arc<str>>,
}

/// The fields of each parameter, for the check at load: `caller.` …, `tool.` …, `agent.` ….
pub(super) fn fields(parameter: &str) -> Option<&'static [&'static str]> {
    Some(match parameter {
        "caller" => &["subject", "scopes", "agent", "tier", "claims", "client"],
        "caller.client" => &["name", "version"],
        "tool" => &[
            "id",
            "name",
            "upstream",
            "category",
            "tags",
            "annotations",
            "tier",
            "scopes",
            "effect",
            "deprecated",
            "facts",
        ],
        "tool.annotations" => &["read_only", "destructive", "open_world", "idempotent"],
        "agent" => &["id", "description", "capabilities", "tools"],
        _ => return None,
    })
}

impl AnnotationsView {
    pub(super) fn read(&self, read: ToolRead) -> Dynamic {
        self.0.read(read)
    }
}

/// What was read, by name, for an explanation.
pub(super) fn facts(
    log: &Log,
    who: &Principal,
    tiers: &Tiers,
    tool: &ToolFacts,
    into: &mut BTreeMap<String, Value>,
) {
    for read in log.caller_reads().iter().map(CallerRead::shown) {
        into.insert(read.name(), read.value(who, tiers));
    }
    for read in log.tool_reads().iter().map(ToolRead::shown) {
        into.insert(read.name(), read.value(tool));
    }
}
