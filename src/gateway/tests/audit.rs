//! What the audit is told: one record for every call, whichever way it came in and ended.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Act, World, caller};
use crate::audit::{Audit, AuditSettings, read};
use crate::clock::Clock;
use crate::gateway::{Gateway, Services};

struct Audited {
    world: World,
    data: tempfile::TempDir,
}

impl Audited {
    fn new() -> Self {
        let mut world = World::small();
        let data = tempfile::tempdir().unwrap();
        let audit = Audit::open(data.path(), AuditSettings::default(), Clock::system()).unwrap();
        let publisher = Arc::clone(world.gateway.publisher());
        world.gateway = Gateway::with(publisher, Clock::system(), Services { audit, ..Services::default() });
        Self { world, data }
    }

    /// The records of calls so far: tool, via, decision, outcome, code.
    fn calls(&self) -> Vec<Value> {
        self.world.gateway.audit().flush();
        let mut out = Vec::new();
        read(&self.data.path().join("audit"), |record| {
            if record["kind"] == "call" {
                out.push(record);
            }
        })
        .unwrap();
        out
    }

    fn told(&self) -> Vec<[String; 5]> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        self.calls()
            .iter()
            .map(|r| ["tool", "via", "decision", "outcome", "code"].map(|name| text(&r[name])))
            .collect()
    }
}

#[tokio::test]
async fn every_way_a_call_can_end_is_one_record() {
    let audited = Audited::new();
    let world = &audited.world;
    world.call("fake.read", json!({"text": "x"})).await;
    world.call("fake.read", json!({"nope": 1})).await;
    world.call("fake.write", json!({"target": "prod"})).await;
    world.call("fake.deploy", json!({})).await;
    world.call("fake.confirm", json!({})).await;
    world.call("fake.hidden", json!({})).await;
    world.call("fake.none", json!({})).await;
    world.call("docent_run_tool", json!({"tool": "fake.read", "arguments": {}})).await;
    world.call("docent_run_readonly_tool", json!({"tool": "fake.write"})).await;
    world.call("docent_search_tools", json!({"query": "read"})).await;
    world.fake.will(Act::Hang);
    world.call("fake.read", json!({})).await;
    let expected = [
        ["fake.read", "direct", "permit", "ok", ""],
        ["fake.read", "direct", "permit", "refused", "INVALID_ARGUMENT"],
        ["fake.write", "direct", "deny", "refused", "FORBIDDEN"],
        ["fake.deploy", "direct", "challenge", "refused", "INSUFFICIENT_SCOPE"],
        ["fake.confirm", "direct", "confirm", "refused", "CONFIRMATION_REQUIRED"],
        ["fake.hidden", "direct", "unknown", "refused", "NOT_FOUND"],
        ["fake.none", "direct", "unknown", "refused", "NOT_FOUND"],
        ["fake.read", "run", "permit", "ok", ""],
        ["fake.write", "run_readonly", "unknown", "refused", "INVALID_ARGUMENT"],
        ["docent_search_tools", "direct", "permit", "ok", ""],
        ["fake.read", "direct", "permit", "error", "TIMEOUT"],
    ];
    assert_eq!(audited.told(), expected.map(|row| row.map(str::to_owned)));
    let first = &audited.calls()[0];
    assert_eq!(first["rule"], "policies/test.rhai:3");
    assert_eq!(
        (&first["caller"], &first["request"], &first["generation"]),
        (&json!("tester"), &json!("req-1"), &json!(1))
    );
    assert_eq!(first["arguments"]["names"], json!(["text"]));
    assert!(first["bytes_out"].as_u64().unwrap() > 10 && first["duration_us"].is_u64());
}

#[tokio::test]
async fn a_call_whose_caller_went_away_is_recorded_too() {
    let audited = Audited::new();
    audited.world.fake.will(Act::Hang);
    let ctx = caller(&[]);
    let call = audited.world.call_as(&ctx, "fake.read", json!({}));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(30), call).await.is_err());
    assert_eq!(audited.told(), [["fake.read", "direct", "permit", "error", "ABANDONED"].map(str::to_owned)]);
}
