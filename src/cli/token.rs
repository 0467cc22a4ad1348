//! `docent token new NAME`: a new token, shown once, and the table to paste.

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Context, Failure, failure};
use crate::auth::GeneratedToken;
use crate::id::{AgentId, Scope};

/// Makes tokens for callers.
#[derive(Debug, Args)]
pub(super) struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    New(New),
}

/// Prints a new token once, and the [callers.NAME] table for docent.toml.
#[derive(Debug, Args)]
struct New {
    /// The caller's name
    name: String,
    /// Scopes that the caller holds, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = parse_scope, value_name = "SCOPE,…")]
    scopes: Vec<Scope>,
    /// The agent that the caller speaks as: a table of [agents]
    #[arg(long, value_parser = parse_agent)]
    agent: Option<AgentId>,
    /// The caller's tier: one of `tiers.order`
    #[arg(long)]
    tier: Option<String>,
    /// Print `{token, toml}`
    #[arg(long)]
    json: bool,
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::parse(text).map_err(|e| e.to_string())
}

fn parse_agent(text: &str) -> Result<AgentId, String> {
    AgentId::parse(text).map_err(|e| e.to_string())
}

impl Token {
    pub(super) fn run(self, context: &mut Context) -> Result<(), Failure> {
        let TokenCommand::New(new) = self.command;
        if new.name.is_empty() || new.name.contains(char::is_control) {
            return Err(Failure::Usage("the caller's name must be a word".to_owned()));
        }
        let drawn = GeneratedToken::draw()
            .map_err(|e| Failure::failed(format_args!("the system has no random source: {e}")))?;
        let toml = table(&new, &drawn.hash.to_string());
        if new.json {
            return context.out.json(&json!({ "token": drawn.token.expose(), "toml": toml }));
        }
        failure::say("The token is shown this once; docent.toml needs only its hash.\n");
        context.out.line(drawn.token.expose())?;
        context.out.line("")?;
        context.out.line(toml.trim_end())
    }
}

/// The `[callers.NAME]` table as TOML text.
fn table(new: &New, hash: &str) -> String {
    let quote = |text: &str| toml::Value::from(text).to_string();
    let bare = new.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let name = if bare { new.name.clone() } else { quote(&new.name) };
    let scopes: Vec<String> = new.scopes.iter().map(|s| quote(s.as_str())).collect();
    let mut lines = vec![
        format!("[callers.{name}]"),
        format!("token_hash = {}", quote(hash)),
        format!("scopes = [{}]", scopes.join(", ")),
    ];
    if let Some(agent) = &new.agent {
        lines.push(format!("agent = {}", quote(agent.as_str())));
    }
    if let Some(tier) = &new.tier {
        lines.push(format!("tier = {}", quote(tier)));
    }
    lines.join("\n") + "\n"
}
