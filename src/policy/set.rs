//! The policies of a home: loading them, and the one function that decides.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwapOption;

use super::answer::{Outcome, Vote};
use super::ballot::{Ballot, Standing, nowhere, vote_of};
use super::builder::Builder;
use super::decision::{Decision, Reason};
use super::function::{Phase, PhaseFunction, Question, phases};
use super::host::engine;
use super::owned::Ledger;
use super::principal::Principal;
use super::roster::{Compiled, Roster};
use super::rule::Rule;
use super::sums::{STEPS_MAX, with_scopes};
use super::tables::PolicyTables;
use super::tier::Tiers;
use super::views::{CallerRead, ToolFacts};
use crate::catalog::{Catalog, Tool};
use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile, did_you_mean};
use crate::id::ToolNo;
use crate::json::{Object, to_text};
use crate::script::{Dynamic, Script};

/// Catalogs that a policy set keeps its bitmaps for: that of the tools and that of the other offers, the current
/// ones and those whose last calls still run.
const CATALOGS_KEPT: usize = 4;

/// All policies of a home, compiled. Cheap to clone. The default set has no rule and allows nothing.
#[derive(Debug, Clone, Default)]
pub struct PolicySet(Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) rules: Vec<Rule>,
    pub(super) functions: Vec<PhaseFunction>,
    pub(super) tiers: Arc<Tiers>,
    pub(super) digest: [u8; 32],
    /// A file did not load: everything is denied.
    pub(super) broken: bool,
    /// What functions on agents have read of callers so far. It only grows.
    pub(super) agent_reads: RwLock<BTreeSet<CallerRead>>,
    /// Whether a function calls `owns`.
    asks_ownership: bool,
    ledger: Arc<Ledger>,
    compiled: Mutex<VecDeque<Arc<Compiled>>>,
    /// The newest of them, which nearly every call asks for: read without a lock.
    newest: ArcSwapOption<Compiled>,
}

impl Inner {
    /// The functions that vote on tools, in the order of their columns.
    pub(super) fn tool_functions(&self) -> impl Iterator<Item = &PhaseFunction> {
        self.functions.iter().filter(|f| matches!(f.phase, Phase::Visible | Phase::Decide))
    }

    fn phase(&self, phase: Phase) -> impl Iterator<Item = &PhaseFunction> {
        self.functions.iter().filter(move |f| f.phase == phase)
    }
}

impl PolicySet {
    /// Compiles the files of `policies/` and the tables of docent.toml. Every mistake lands in `diagnostics`;
    /// a set with a mistake denies everything, should it be used all the same.
    pub fn load(
        sources: &[SourceFile],
        tables: PolicyTables,
        tiers: &[String],
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut found = Diagnostics::default();
        let engine = engine();
        let mut rules = tables.0;
        let mut functions = Vec::new();
        let mut hash = blake3::Hasher::new();
        hash.update(format!("{tiers:?}{rules:?}").as_bytes());
        let mut files: Vec<&SourceFile> = sources.iter().collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        for file in files {
            let Some(script) = engine.compile(file, &mut found) else { continue };
            hash.update(&script.digest());
            let own = phases(&script, &mut found);
            if own.is_empty() {
                let names: Vec<&str> = Phase::ALL.iter().map(|(_, name, _)| *name).collect();
                let message = "this policy decides nothing";
                let help = format!("define one of {}", names.join(", "));
                found.push(Diagnostic::warning("empty-policy", &*file.name, message).help(help));
            }
            if own.iter().any(|f| f.phase == Phase::Rules) {
                rules.extend(build(&script, &mut found));
            }
            functions.extend(own.into_iter().filter(|f| f.phase != Phase::Rules));
        }
        let tiers = Arc::new(Tiers::new(tiers));
        unknown_tiers(&rules, &tiers, &mut found);
        let broken = found.has_errors();
        diagnostics.extend(found);
        let digest = *hash.finalize().as_bytes();
        let asks_ownership =
            functions.iter().any(|f: &PhaseFunction| f.script.touches().calls.contains("owns"));
        Self(Arc::new(Inner { rules, functions, tiers, digest, broken, asks_ownership, ..Inner::default() }))
    }

    /// The same policies over the ledger of those before them, so that nobody loses what it owns by an edit.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Arc<Ledger>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.ledger = ledger;
        }
        self
    }

    /// Who created what.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.0.ledger
    }

    /// Hash of everything that was loaded: for cache keys.
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest
    }

    /// Whether a policy asks what its callers own: then the ledger must be as of now.
    pub fn asks_ownership(&self) -> bool {
        self.0.asks_ownership
    }

    /// The ladder of tiers.
    pub fn tiers(&self) -> &Tiers {
        &self.0.tiers
    }

    /// How many native rules, and how many functions.
    pub fn size(&self) -> (usize, usize) {
        (self.0.rules.len(), self.0.functions.len())
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Whether the decision on a tool depends on arguments for this caller: a rule or function looks at them.
    pub(super) fn asks_for_arguments(&self, catalog: &Catalog, who: &Principal, no: ToolNo) -> bool {
        let compiled = self.compiled(catalog);
        let rules = self.0.rules.iter().enumerate().filter(|(_, r)| !r.arguments.is_empty());
        if rules.into_iter().any(|(i, r)| compiled.covers(i, no) && r.concerns(who, &self.0.tiers)) {
            return true;
        }
        let columns = compiled.columns_of(&self.0, catalog, who).0;
        columns.iter().any(|c| c.outcome(no.index()).is_none_or(|o| o.vote == Vote::Depends))
    }

    pub(super) fn compiled(&self, catalog: &Catalog) -> Arc<Compiled> {
        if let Some(newest) = self.0.newest.load().as_ref().filter(|c| c.serial == catalog.serial()) {
            return Arc::clone(newest);
        }
        let mut kept = self.0.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kept.iter().find(|c| c.serial == catalog.serial()) {
            return Arc::clone(found);
        }
        let made = Arc::new(Compiled::of(&self.0, catalog));
        kept.push_front(Arc::clone(&made));
        self.0.newest.store(Some(Arc::clone(&made)));
        kept.truncate(CATALOGS_KEPT);
        made
    }

    /// How all tools stand for a caller: microseconds where a caller of the same class was seen before.
    pub fn roster(&self, catalog: &Catalog, who: &Principal) -> Arc<Roster> {
        self.compiled(catalog).roster(&self.0, catalog, who)
    }

    /// The decision on one call. `None` asks what is certain without arguments: what they could still allow
    /// is not permitted (the roster shows it as `conditional`).
    pub fn decide(
        &self,
        catalog: &Catalog,
        who: &Principal,
        tool: ToolNo,
        arguments: Option<&Object>,
    ) -> Decision {
        match catalog.get(tool) {
            Some(found) => self.ballot(catalog, who, tool, found, arguments, &mut |_, _| {}).decision(
                who,
                &self.0.tiers,
                found,
            ),
            None => Decision::Deny { reason: Reason::Hidden, rule: nowhere() },
        }
    }

    /// The decision on a call that a person has confirmed: the same, and a confirmation asked for is given.
    /// Everything else is decided anew, so a right that was withdrawn meanwhile stays withdrawn.
    pub fn decide_confirmed(
        &self,
        catalog: &Catalog,
        who: &Principal,
        tool: ToolNo,
        arguments: &Object,
    ) -> Decision {
        match (self.decide(catalog, who, tool, Some(arguments)), catalog.get(tool)) {
            (Decision::Confirm(asked), Some(found)) => {
                Decision::Permit(super::decision::Permit::new(found.id.clone(), asked.rule))
            }
            (other, _) => other,
        }
    }

    /// Collects every vote; `seen` is told of each, with the phase it came from.
    pub(super) fn ballot(
        &self,
        catalog: &Catalog,
        who: &Principal,
        no: ToolNo,
        tool: &Tool,
        arguments: Option<&Object>,
        seen: &mut dyn FnMut(&'static str, &Outcome),
    ) -> Ballot {
        let ballot = self.votes(catalog, who, (no, tool), arguments, seen);
        match ballot.only_challenged() {
            Some(scopes) if !self.opens(catalog, &with_scopes(who, scopes), (no, tool), arguments, 1) => {
                ballot.without_challenge()
            }
            _ => ballot,
        }
    }

    /// Whether something speaks for a tool once a caller has come back with the scopes that it was asked for: the
    /// same question as `Compiled::shown`, of one tool and with arguments.
    fn opens(
        &self,
        catalog: &Catalog,
        who: &Principal,
        (no, tool): (ToolNo, &Tool),
        arguments: Option<&Object>,
        step: usize,
    ) -> bool {
        let ballot = self.votes(catalog, who, (no, tool), arguments, &mut |_, _| {});
        match ballot.only_challenged() {
            Some(_) if step >= STEPS_MAX => false,
            Some(scopes) => self.opens(catalog, &with_scopes(who, scopes), (no, tool), arguments, step + 1),
            None => ballot.is_open(),
        }
    }

    fn votes(
        &self,
        catalog: &Catalog,
        who: &Principal,
        (no, tool): (ToolNo, &Tool),
        arguments: Option<&Object>,
        seen: &mut dyn FnMut(&'static str, &Outcome),
    ) -> Ballot {
        let inner = &*self.0;
        let compiled = self.compiled(catalog);
        let mut ballot = Ballot::default();
        let mut cast = |phase: &'static str, outcome: &Outcome| {
            seen(phase, outcome);
            ballot.cast(outcome);
        };
        if inner.broken {
            let vote = Vote::Fault(Arc::from("a policy did not load; run `docent check`"));
            cast("load", &Outcome { vote, at: nowhere() });
        }
        for (index, rule) in inner.rules.iter().enumerate() {
            if compiled.covers(index, no) && rule.concerns(who, &inner.tiers) {
                cast("rule", &Outcome { vote: vote_of(rule, arguments), at: rule.at.clone() });
            }
        }
        if inner.tool_functions().next().is_some() {
            let columns = compiled.columns_of(&self.0, catalog, who).0;
            let mut question: Option<Question> = None;
            for (index, function) in inner.tool_functions().enumerate() {
                let kept = columns.get(index).and_then(|c| c.outcome(no.index()));
                match kept {
                    Some(outcome) if outcome.vote != Vote::Depends || arguments.is_none() => {
                        cast(function.phase.name(), outcome);
                    }
                    Some(_) => {
                        let question = question.get_or_insert_with(|| {
                            let kept = compiled.table(catalog).tools.get(no.index()).map(Arc::clone);
                            self.question(
                                who,
                                kept.unwrap_or_else(|| Arc::new(ToolFacts::of(tool))),
                                arguments,
                            )
                        });
                        cast(function.phase.name(), &function.ask(question).0);
                    }
                    None => {
                        let vote = Vote::Fault(Arc::from("the policies could not be asked"));
                        cast(function.phase.name(), &Outcome { vote, at: function.at.clone() });
                    }
                }
            }
        }
        ballot
    }

    pub(super) fn question(
        &self,
        who: &Principal,
        tool: Arc<ToolFacts>,
        arguments: Option<&Object>,
    ) -> Question {
        Question {
            who: Arc::new(who.clone()),
            tiers: Arc::clone(&self.0.tiers),
            tool,
            arguments: arguments.map(|a| Arc::new(a.clone())),
            ledger: Arc::clone(&self.0.ledger),
        }
    }

    /// How one tool stands, decided row by row: what the roster answers from its bitmaps.
    pub fn standing(&self, catalog: &Catalog, who: &Principal, no: ToolNo) -> Standing {
        catalog.get(no).map_or(Standing::Hidden, |tool| {
            self.ballot(catalog, who, no, tool, None, &mut |_, _| {}).standing(who, &self.0.tiers, tool)
        })
    }

    /// Fields that the `redact` functions drop from a result of this tool for this caller: names or JSON
    /// Pointers. An error means that one failed: the result must not be shown.
    pub fn redactions(&self, who: &Principal, tool: &Tool) -> Result<Vec<Arc<str>>, Reason> {
        self.redactions_by(who, tool, &mut |_| {})
    }

    /// The same; `said` is told of each function that names a field.
    pub(super) fn redactions_by(
        &self,
        who: &Principal,
        tool: &Tool,
        said: &mut dyn FnMut(&PhaseFunction),
    ) -> Result<Vec<Arc<str>>, Reason> {
        if self.0.phase(Phase::Redact).next().is_none() {
            return Ok(Vec::new());
        }
        let question = self.question(who, Arc::new(ToolFacts::of(tool)), None);
        let mut all = Vec::new();
        for function in self.0.phase(Phase::Redact) {
            let fields = function.ask_redact(&question).map_err(Reason::PolicyFault)?;
            if !fields.is_empty() {
                said(function);
            }
            all.extend(fields);
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// A tier that is not on the ladder is a flat peer, or a slip of the pen; the latter is likely where a rung
/// is spelled almost the same.
fn unknown_tiers(rules: &[Rule], tiers: &Tiers, diagnostics: &mut Diagnostics) {
    for rule in rules {
        for tier in rule.tiers().filter(|t| !tiers.order().contains(t)) {
            let Some(near) = did_you_mean(tier, tiers.order().iter().map(|t| &**t)) else { continue };
            let message = format!("`{tier}` is not in `tiers.order`");
            let mut d = Diagnostic::warning("unknown-tier", &*rule.at.file, message)
                .help(format!("did you mean `{near}`? A tier beside the ladder reaches only itself"));
            d.line = rule.at.line;
            diagnostics.push(d);
        }
    }
}

/// Runs `rules(p)` once.
fn build(script: &Script, diagnostics: &mut Diagnostics) -> Vec<Rule> {
    let builder = Builder::new(&script.file().name);
    match script.call(Phase::Rules.name(), vec![Dynamic::from(builder.clone())]) {
        Ok(_) => builder.finish(),
        Err(error) => {
            let mut diagnostic = error.diagnostic("policy-rules");
            if let Some(thrown) = &error.thrown {
                diagnostic.message = format!("`rules` threw {}", to_text(thrown));
            }
            diagnostics.push(diagnostic);
            Vec::new()
        }
    }
}
