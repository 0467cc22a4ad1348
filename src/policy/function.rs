//! The phases that a policy file may define as functions: found by name, checked at load, run one by one.

use std::sync::Arc;

use super::answer::{Answer, Outcome, Vote};
use super::asked::Lazy;
use super::decision::RuleRef;
use super::owned::Ledger;
use super::principal::Principal;
use super::tier::Tiers;
use super::views::{
    AgentFacts, ArgumentsView, CallerRead, CallerView, Log, OwnershipView, ToolFacts, ToolView, fields,
};
use crate::diagnostic::{Diagnostic, Diagnostics, did_you_mean};
use crate::json::Object;
use crate::script::{Access, Dynamic, ErrorKind, Function, Script, ScriptError, Step};

/// A phase and what its function gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Rules,
    Visible,
    Decide,
    AgentVisible,
    AgentOpen,
    Redact,
}

impl Phase {
    pub(super) const ALL: [(Self, &'static str, &'static [&'static str]); 6] = [
        (Self::Rules, "rules", &["p"]),
        (Self::Visible, "visible", &["caller", "tool"]),
        (Self::Decide, "decide", &["caller", "tool", "args"]),
        (Self::AgentVisible, "agent_visible", &["caller", "agent"]),
        (Self::AgentOpen, "agent_open", &["caller", "agent"]),
        (Self::Redact, "redact", &["caller", "tool"]),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(p, ..)| *p == self).map_or("", |(_, name, _)| name)
    }
}

/// A function of a policy file.
#[derive(Debug, Clone)]
pub(super) struct PhaseFunction {
    pub(super) phase: Phase,
    pub(super) script: Script,
    pub(super) at: RuleRef,
    /// Fields that the file only asks about.
    pub(super) lazy: Lazy,
}

/// Finds the phases of a file and reports what would lie: a misspelt phase, wrong parameters, unknown fields.
pub(super) fn phases(script: &Script, diagnostics: &mut Diagnostics) -> Vec<PhaseFunction> {
    let file = script.file();
    let mut found = Vec::new();
    let called = script.touches();
    let lazy = Lazy::of(script);
    for function in script.functions() {
        let phase = Phase::ALL.iter().find(|(_, name, _)| *name == function.name);
        match phase {
            Some((phase, _, parameters)) if parameters.len() == function.parameters.len() => {
                let at = RuleRef { file: Arc::clone(&file.name), line: function.line };
                found.push(PhaseFunction { phase: *phase, script: script.clone(), at, lazy });
                check_fields(script, function, parameters, diagnostics);
            }
            Some((_, name, parameters)) => {
                let message = format!("`{name}` must have {} parameters", parameters.len());
                let help = format!("write `fn {name}({})`", parameters.join(", "));
                diagnostics.push(Diagnostic::error("phase-parameters", &*file.name, message).help(help).at(
                    &file.text,
                    function.line,
                    1,
                ));
            }
            None => {
                let own: Vec<&str> = function.parameters.iter().map(String::as_str).collect();
                check_fields(script, function, &own, diagnostics);
                let by_name = called.texts.contains(&function.name);
                if !called.calls.contains(&function.name) && !by_name {
                    let near = did_you_mean(&function.name, Phase::ALL.iter().map(|(_, n, _)| *n));
                    let phases: Vec<&str> = Phase::ALL.iter().map(|(_, n, _)| *n).collect();
                    let help = near.map_or_else(
                        || {
                            format!(
                                "docent calls {}; call it from one of them or remove it",
                                phases.join(", ")
                            )
                        },
                        |near| format!("did you mean `{near}`?"),
                    );
                    let message = format!("nothing calls the function `{}`", function.name);
                    diagnostics.push(
                        Diagnostic::error("unused-function", &*file.name, message).help(help).at(
                            &file.text,
                            function.line,
                            1,
                        ),
                    );
                }
            }
        }
    }
    found
}

/// A field that does not exist is a mistake now, not a silent no later. `meant` names what each parameter is.
fn check_fields(script: &Script, function: &Function, meant: &[&str], diagnostics: &mut Diagnostics) {
    for access in script.accesses(function) {
        let position = function.parameters.iter().position(|p| *p == access.root);
        let Some(kind) = position.and_then(|i| meant.get(i)) else { continue };
        let mut place = (*kind).to_owned();
        for step in &access.steps {
            let Some(known) = fields(&place) else { break };
            let name = match step {
                Step::Property(name) | Step::Index(Some(name)) => name,
                Step::Index(None) => "",
                Step::Method(_) => break,
            };
            if known.contains(&name) && matches!(step, Step::Property(_)) {
                place = format!("{place}.{name}");
                continue;
            }
            diagnostics.push(unknown_field(script, &access, &place, name, known));
            break;
        }
    }
}

fn unknown_field(
    script: &Script,
    access: &Access,
    place: &str,
    name: &str,
    known: &[&'static str],
) -> Diagnostic {
    let file = script.file();
    let (message, help) = if name.is_empty() || known.contains(&name) {
        (
            format!("`{place}` has fields, not an index"),
            format!("write `{place}.{}`", known.join(&format!("`, `{place}."))),
        )
    } else {
        let help = match did_you_mean(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{place}.{near}`?"),
            None => format!("`{place}` has {}", known.join(", ")),
        };
        (format!("`{place}` has no field `{name}`"), help)
    };
    Diagnostic::error("unknown-field", &*file.name, message).help(help).at(
        &file.text,
        access.line,
        access.column,
    )
}

/// What one function is asked about.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) who: Arc<Principal>,
    pub(super) tiers: Arc<Tiers>,
    pub(super) tool: Arc<ToolFacts>,
    pub(super) arguments: Option<Arc<Object>>,
    pub(super) ledger: Arc<Ledger>,
}

impl PhaseFunction {
    /// Runs it for one caller and one tool; never fails, a fault is a vote.
    pub(super) fn ask(&self, question: &Question) -> (Outcome, Arc<Log>) {
        let log = Log::new(self.lazy);
        let caller = CallerView {
            who: Arc::clone(&question.who),
            tiers: Arc::clone(&question.tiers),
            log: Arc::clone(&log),
        };
        let tool = ToolView { tool: Arc::clone(&question.tool), log: Arc::clone(&log) };
        let mut arguments = vec![Dynamic::from(caller), Dynamic::from(tool)];
        if self.phase == Phase::Decide {
            let object = question.arguments.clone();
            arguments.push(Dynamic::from(ArgumentsView { object, log: Arc::clone(&log) }));
        }
        let ownership = OwnershipView {
            who: Arc::clone(&question.who),
            // What changes from call to call is looked up when the call is there: lists keep their answers.
            ledger: question.arguments.is_some().then(|| Arc::clone(&question.ledger)),
            log: Arc::clone(&log),
        };
        let tag = Some(Dynamic::from(ownership));
        let answer = self.script.call_tagged(self.phase.name(), arguments, tag);
        let outcome = if question.arguments.is_none() && log.read_arguments() {
            // Whatever it answered (it may have caught the error), it looked for what is not known yet.
            Outcome { vote: Vote::Depends, at: self.at.clone() }
        } else {
            self.understand(answer, &question.who, &log)
        };
        (outcome, log)
    }

    fn understand(&self, answer: Result<Dynamic, Box<ScriptError>>, who: &Principal, log: &Log) -> Outcome {
        let value = match answer {
            Ok(value) => value,
            Err(error) => {
                if error.kind == ErrorKind::Deadline {
                    log.met_deadline();
                }
                let at = RuleRef { file: Arc::clone(&error.file), line: error.line };
                return Outcome { vote: Vote::Fault(Arc::from(error.to_string())), at };
            }
        };
        if matches!(self.phase, Phase::Visible | Phase::AgentVisible) {
            let vote = match value.as_bool() {
                Ok(true) => Vote::Abstain,
                Ok(false) => Vote::Hide,
                Err(kind) => self.wrong(kind, "true or false"),
            };
            return Outcome { vote, at: self.at.clone() };
        }
        let Some(answer) = value.read_lock::<Answer>() else {
            let vote =
                self.wrong(value.type_name(), "allow(), deny(…), challenge(…), confirm(…) or abstain()");
            return Outcome { vote, at: self.at.clone() };
        };
        let at = RuleRef { file: Arc::clone(&self.at.file), line: answer.line.max(1) };
        let vote = match &answer.vote {
            Vote::Challenge(scopes) => {
                for scope in scopes {
                    log.caller(CallerRead::HasScope(Arc::from(scope.as_str())));
                }
                if !scopes.iter().all(|s| who.scopes.contains(s)) {
                    answer.vote.clone()
                } else if self.phase == Phase::AgentOpen {
                    // Nothing else is there to allow it: these scopes are what it takes.
                    Vote::Allow
                } else {
                    Vote::Abstain
                }
            }
            Vote::Confirm { .. } if self.phase == Phase::AgentOpen => {
                self.wrong("confirm(…)", "allow(), deny(…) or challenge(…)")
            }
            vote => vote.clone(),
        };
        Outcome { vote, at }
    }

    fn wrong(&self, found: &str, expected: &str) -> Vote {
        let found = match found {
            "()" => "nothing",
            other => other.rsplit("::").next().unwrap_or(other),
        };
        Vote::Fault(Arc::from(format!(
            "{}:{}: `{}` must return {expected}, it returned {found}",
            self.at.file,
            self.at.line,
            self.phase.name()
        )))
    }

    /// Runs `agent_visible` or `agent_open`.
    pub(super) fn ask_agent(
        &self,
        who: &Arc<Principal>,
        tiers: &Arc<Tiers>,
        agent: &AgentFacts,
    ) -> (Outcome, Arc<Log>) {
        let log = Log::new(self.lazy);
        let caller = CallerView { who: Arc::clone(who), tiers: Arc::clone(tiers), log: Arc::clone(&log) };
        let answer =
            self.script.call(self.phase.name(), vec![Dynamic::from(caller), Dynamic::from(agent.clone())]);
        (self.understand(answer, who, &log), log)
    }

    /// Runs `redact`: names or JSON Pointers of fields to drop from the result.
    pub(super) fn ask_redact(&self, question: &Question) -> Result<Vec<Arc<str>>, Arc<str>> {
        let log = Log::new(self.lazy);
        let caller = CallerView {
            who: Arc::clone(&question.who),
            tiers: Arc::clone(&question.tiers),
            log: Arc::clone(&log),
        };
        let tool = ToolView { tool: Arc::clone(&question.tool), log };
        let value = self
            .script
            .call(self.phase.name(), vec![Dynamic::from(caller), Dynamic::from(tool)])
            .map_err(|e| Arc::from(e.to_string()))?;
        if value.is_unit() {
            return Ok(Vec::new());
        }
        let list: Option<Vec<Arc<str>>> = value.as_array_ref().ok().and_then(|items| {
            items.iter().map(|i| i.as_immutable_string_ref().ok().map(|t| Arc::from(t.as_str()))).collect()
        });
        list.ok_or_else(|| match self.wrong(value.type_name(), "a list of field names or JSON Pointers") {
            Vote::Fault(text) => text,
            _ => Arc::from(""),
        })
    }
}
