//! The log as a whole: written, changed, cut, rotated, shared, lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::log::files;
use super::*;
use crate::clock::Clock;
use crate::id::Generation;
use crate::policy::{Principal, RuleRef};

/// A call that went well.
pub(super) fn entry(tool: &str) -> CallEntry {
    CallEntry {
        request: Arc::from("r-1"),
        who: Arc::new(Principal { subject: Arc::from("alice"), ..Principal::default() }),
        tool: Arc::from(tool),
        upstream: Some(Arc::from("a")),
        via: Via::Direct,
        decision: "permit",
        rule: RuleRef { file: Arc::from("policies/a.rhai"), line: 3 },
        generation: Generation(1),
        arguments: ArgumentSummary::default(),
        outcome: Outcome::Ok,
        code: "",
        duration: Duration::from_millis(5),
        bytes_in: 10,
        bytes_out: 20,
        omitted: 0,
        dedup: None,
        job: None,
    }
}

struct World {
    data: tempfile::TempDir,
    clock: Clock,
}

impl World {
    fn new() -> Self {
        Self { data: tempfile::tempdir().unwrap(), clock: Clock::manual() }
    }

    fn open(&self, settings: AuditSettings) -> Audit {
        Audit::open(self.data.path(), settings, self.clock.clone()).unwrap()
    }

    fn dir(&self) -> PathBuf {
        self.data.path().join("audit")
    }

    fn write(&self, calls: usize) {
        let audit = self.open(AuditSettings::default());
        (0..calls).for_each(|_| audit.call(entry("a.b")));
        audit.flush();
        assert_eq!(audit.status().lost, 0);
    }

    fn verify(&self) -> Verified {
        verify(&self.dir(), &AuditKey::stored(&self.dir()).unwrap()).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.dir().join(&files(&self.dir()).unwrap().last().unwrap().name)
    }

    fn edit(&self, edit: impl FnOnce(String) -> String) {
        let path = self.file();
        let text = crate::json::read_text_capped(&path, 1 << 20).unwrap();
        std::fs::write(path, edit(text)).unwrap();
    }
}

fn seqs(dir: &Path) -> Vec<u64> {
    let mut out = Vec::new();
    read(dir, |r| out.push(r["seq"].as_u64().unwrap())).unwrap();
    out
}

#[test]
fn what_was_written_verifies_and_goes_on_over_restarts() {
    let world = World::new();
    world.write(3);
    world.write(2);
    // The file's own first record, five calls, and the signal of a tool first seen.
    let found = world.verify();
    assert_eq!((found.ok, found.records, found.first_bad), (true, 7, None), "{found:?}");
    assert_eq!(seqs(&world.dir()), [1, 2, 3, 4, 5, 6, 7]);
    let last = tail(&world.dir(), 1).unwrap().remove(0);
    assert_eq!((last["caller"].as_str(), last["rule"].as_str()), (Some("alice"), Some("policies/a.rhai:3")));
    assert_eq!(last["at"], json!("1970-01-02T00:00:00.000Z"));
}

#[test]
fn an_edit_is_named_by_its_record() {
    let world = World::new();
    world.write(5);
    world.edit(|text| text.replacen("\"caller\":\"alice\"", "\"caller\":\"mallory\"", 1));
    let found = world.verify();
    assert_eq!((found.ok, found.records, found.first_bad), (false, 1, Some(2)), "{found:?}");
    assert!(found.place.unwrap().ends_with(":2"));
}

#[test]
fn a_line_taken_out_shows_wherever_it_stood() {
    let world = World::new();
    world.write(5);
    let whole = crate::json::read_text_capped(&world.file(), 1 << 20).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    for gone in 0..lines.len() {
        let rest: Vec<&str> =
            lines.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, line)| *line).collect();
        let rest = rest.join("\n") + "\n";
        world.edit(|_| rest);
        let found = world.verify();
        assert_eq!(
            (found.ok, found.first_bad),
            (false, Some(u64::try_from(gone).unwrap() + 1)),
            "line {gone}: {found:?}"
        );
    }
    world.edit(|_| whole);
    assert!(world.verify().ok);
}

#[test]
fn a_cut_end_shows_and_nothing_is_written_over_it() {
    let world = World::new();
    world.write(5);
    world.edit(|text| text.lines().take(3).collect::<Vec<_>>().join("\n") + "\n");
    assert_eq!(world.verify().first_bad, Some(4));
    let audit = world.open(AuditSettings::default());
    audit.call(entry("a.b"));
    audit.flush();
    assert!(audit.status().failure.contains("docent audit verify"), "{:?}", audit.status());
    assert_eq!((audit.status().lost, seqs(&world.dir()).len()), (1, 3));
}

#[test]
fn a_lost_file_or_head_shows() {
    let world = World::new();
    world.write(1);
    world.clock.advance(Duration::from_hours(25));
    world.write(1);
    world.clock.advance(Duration::from_hours(25));
    world.write(1);
    let all = files(&world.dir()).unwrap();
    assert_eq!((all.len(), world.verify().ok), (3, true));
    let middle = crate::json::read_capped(&world.dir().join(&all[1].name), 1 << 20).unwrap();
    std::fs::remove_file(world.dir().join(&all[1].name)).unwrap();
    assert_eq!(world.verify().first_bad, Some(all[1].first));
    std::fs::write(world.dir().join(&all[1].name), middle).unwrap();
    assert!(world.verify().ok);
    std::fs::remove_file(world.dir().join("head.json")).unwrap();
    assert_eq!(world.verify().first_bad, Some(0));
}

#[test]
fn half_a_record_of_a_process_that_died_is_dropped() {
    let world = World::new();
    world.write(2);
    world.edit(|text| text + "{\"seq\":5,\"half");
    assert!(world.verify().ok, "it is behind the head");
    world.write(1);
    let found = world.verify();
    assert_eq!((found.ok, found.records), (true, 5), "{found:?}");
}

#[test]
fn old_files_go_and_the_chain_begins_later() {
    let world = World::new();
    let settings = AuditSettings { retention: Duration::from_hours(48), ..AuditSettings::default() };
    for _ in 0..5 {
        let audit = world.open(settings.clone());
        audit.call(entry("a.b"));
        audit.flush();
        world.clock.advance(Duration::from_hours(25));
    }
    let (found, kept) = (world.verify(), files(&world.dir()).unwrap());
    assert!(found.ok && found.first > 1, "{found:?}");
    assert_eq!((kept.len(), kept[0].first), (3, found.first));
}

#[test]
fn two_processes_share_one_chain() {
    let world = World::new();
    let (a, b) = (world.open(AuditSettings::default()), world.open(AuditSettings::default()));
    for _ in 0..20 {
        a.call(entry("a.b"));
        a.flush();
        b.call(entry("a.b"));
        b.flush();
    }
    assert!(world.verify().ok && world.verify().records >= 41, "{:?}", world.verify());
}

#[test]
fn the_console_finds_the_newest_first() {
    let world = World::new();
    let audit = world.open(AuditSettings::default());
    audit.call(entry("a.b"));
    audit.call(CallEntry { outcome: Outcome::Refused, decision: "deny", ..entry("a.c") });
    audit.note("admin", json!({ "act": "approved" }));
    audit.flush();
    let seq = |query: Query| audit.recent(&query).iter().map(|r| r.seq).collect::<Vec<_>>();
    assert_eq!(seq(Query::default()).len(), 5);
    assert_eq!(seq(Query { tool: "a.c".into(), ..Query::default() }), [4]);
    assert_eq!(seq(Query { kind: "call".into(), limit: 1, ..Query::default() }), [4]);
    assert_eq!(seq(Query { kind: "call".into(), after: 3, ..Query::default() }), [4]);
    assert_eq!(
        audit.recent(&Query { outcome: "refused".into(), ..Query::default() })[0].json().unwrap().get(),
        &*audit.recent(&Query { tool: "a.c".into(), ..Query::default() })[0].line
    );
}

#[test]
fn an_audit_that_is_off_makes_nothing() {
    let world = World::new();
    let audit = world.open(AuditSettings { enabled: false, ..AuditSettings::default() });
    audit.call(entry("a.b"));
    audit.flush();
    assert!(!audit.is_on() && !world.dir().exists());
}
