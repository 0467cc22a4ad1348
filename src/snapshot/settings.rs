//! What docent.toml says of the server as a whole: read by `config`, used by everything from here up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::files::FileLimits;
use crate::id::AgentId;
use crate::limits;
use crate::policy::{DiscoveryMode, Principal, pattern_matches};
use crate::projection::ResultBudget;
use crate::secret::Secret;

use super::AgentSettings;

/// `[server]`, `[budgets]`, `[tiers]` and `[agents]` of docent.toml (contract §1.3), defaults filled in.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// `server.name`: the server's name and the prefix of its meta-tools.
    pub name: Arc<str>,
    /// `server.instructions`: the operator's own words, put before what docent adds.
    pub instructions: Option<Arc<str>>,
    /// `server.public_url`: how callers reach the server, for metadata and links; without a final `/`.
    pub public_url: Option<Arc<str>>,
    /// `server.discovery`: the mode where nothing nearer to the caller says otherwise.
    pub discovery: DiscoveryMode,
    /// `server.page_size`: tools on one page of `tools/list`.
    pub page_size: usize,
    /// `server.listed_tools_max`: permitted tools up to which `auto` lists in full.
    pub listed_tools_max: usize,
    /// `server.allowed_origins`: values of `Origin` that a browser may send, besides the server's own.
    pub allowed_origins: Vec<String>,
    /// `server.allowed_hosts`: values of `Host` that are taken, besides loopback and `public_url`.
    pub allowed_hosts: Vec<String>,
    /// `server.step_up_as_result`: patterns of client names (`clientInfo.name`) that are told of missing scopes in
    /// a tool result, since they cannot act on an HTTP 403.
    pub step_up_as_result: Vec<String>,
    /// `[budgets]`
    pub budgets: Budgets,
    /// `[files]`
    pub files: FileLimits,
    /// `tiers.order`, lowest first.
    pub tiers: Vec<String>,
    /// `[agents]`
    pub agents: BTreeMap<AgentId, AgentSettings>,
    /// `auth.issuer`: where tokens come from, for the metadata of the resource.
    pub issuer: Option<Arc<str>>,
    /// `auth.scopes_supported`, for the same.
    pub scopes_supported: Vec<String>,
    /// The key of page tokens where several nodes share one (at least 32 bytes); random per process if absent.
    pub cursor_key: Option<Secret>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            name: Arc::from("docent"),
            instructions: None,
            public_url: None,
            discovery: DiscoveryMode::Full,
            page_size: limits::PAGE_SIZE,
            listed_tools_max: limits::LISTED_TOOLS_MAX,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            step_up_as_result: Vec::new(),
            budgets: Budgets::default(),
            files: FileLimits::default(),
            tiers: ["workbench", "action", "system"].map(str::to_owned).to_vec(),
            agents: BTreeMap::new(),
            issuer: None,
            scopes_supported: Vec::new(),
            cursor_key: None,
        }
    }
}

impl ServerSettings {
    /// Whether this caller's client is told of missing scopes in a tool result and not by a 403.
    pub fn tells_step_up_as_result(&self, who: &Principal) -> bool {
        let name = who.client.name.as_deref().unwrap_or_default();
        self.step_up_as_result.iter().any(|pattern| pattern_matches(pattern, name))
    }
}

/// `[budgets]`: ceilings in bytes unless named otherwise. Those without a default are checked only if set.
#[derive(Debug, Clone)]
pub struct Budgets {
    /// `listed_tools_max`: tools that a caller may be shown before `docent check` warns.
    pub listed_tools_max: Option<usize>,
    /// `listed_tools_min`: tools below which `docent check` warns (a pack got lost).
    pub listed_tools_min: Option<usize>,
    /// `description_bytes_total`: all descriptions together.
    pub description_bytes_total: Option<usize>,
    /// `schema_bytes_per_tool`: one input schema on the wire.
    pub schema_bytes_per_tool: usize,
    /// `instructions_bytes`: the server's instructions; never more than the 2,048 that clients keep.
    pub instructions_bytes: usize,
    /// `result_bytes`: the structured half of a result.
    pub result_bytes: usize,
    /// `text_bytes`: the text of an unprojected result.
    pub text_bytes: usize,
    /// `records`: records of one projected page.
    pub records: usize,
    /// `kept_bytes`: of one result that is kept aside where only a part is shown; 0 keeps nothing.
    pub kept_bytes: usize,
    /// `kept_bytes_per_caller`: of all results that are kept for one caller.
    pub kept_bytes_per_caller: usize,
    /// `kept_seconds`: how long they are kept.
    pub kept: Duration,
    /// `upstream_read_bytes`: what is read of one upstream reply.
    pub upstream_read_bytes: usize,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            listed_tools_max: None,
            listed_tools_min: None,
            description_bytes_total: None,
            schema_bytes_per_tool: limits::SCHEMA_BYTES_PER_TOOL,
            instructions_bytes: limits::INSTRUCTIONS_BYTES,
            result_bytes: limits::RESULT_BYTES,
            text_bytes: limits::TEXT_BYTES,
            records: limits::RESULT_RECORDS,
            kept_bytes: limits::KEPT_BYTES,
            kept_bytes_per_caller: limits::KEPT_BYTES_PER_CALLER,
            kept: limits::KEPT_TIME,
            upstream_read_bytes: limits::UPSTREAM_READ_BYTES,
        }
    }
}

impl Budgets {
    /// The part that bounds one result.
    pub fn of_result(&self) -> ResultBudget {
        ResultBudget { result_bytes: self.result_bytes, text_bytes: self.text_bytes, records: self.records }
    }
}
