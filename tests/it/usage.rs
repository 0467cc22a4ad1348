//! Usage memory over the wire: a search, the run that it led to, and what the next search makes of it. Nothing
//! of it reaches callers with other rights.

use serde_json::{Value, json};

use crate::agents::Client;
use crate::auth::token;
use crate::support::{TestHome, TestServer, docent};

const PACK: &str = "kind = \"command\"\n\
    [[tool]]\nid = \"alpha\"\ndescription = \"Sends a parcel to a customer.\"\nrun = [\"echo\", \"a\"]\n\
    [[tool]]\nid = \"beta\"\ndescription = \"Sends a parcel to a customer.\"\nrun = [\"echo\", \"b\"]\n";

/// The tools found, in order, each with the value of its usage signal.
fn found(client: &Client) -> Vec<(String, f64)> {
    let arguments = json!({"query": "dispatch the parcel of a customer", "detail": "explain"});
    let answer = client.result("tools/call", json!({"name": "docent_search_tools", "arguments": arguments}));
    let row = |tool: &Value| {
        let signals = tool["signals"].as_array().unwrap();
        let usage = signals.iter().find(|s| s["name"] == "usage").unwrap();
        (tool["id"].as_str().unwrap().to_owned(), usage["value"].as_f64().unwrap())
    };
    answer["structuredContent"]["tools"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_run_after_a_search_votes_for_its_tool_among_callers_of_the_same_rights() {
    let policy = "fn rules(p) { p.allow().scopes([\"u:use\"]); }\n";
    let home = TestHome::with(&[("scripts/u/upstream.toml", PACK), ("policies/p.rhai", policy)]);
    let (alice, a) = token(&home, "alice", &["--scopes", "u:use"]);
    let (bob, b) = token(&home, "bob", &["--scopes", "u:use,u:more"]);
    home.write("docent.toml", &format!("[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"u\"]\n{a}{b}"));
    let server = TestServer::start(home.path(), &[]);
    let (alice, bob) = (Client::session(&server.url, &alice), Client::session(&server.url, &bob));
    let before = found(&alice);
    assert_eq!(before.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["u.alpha", "u.beta"]);
    assert!(before.iter().all(|(_, usage)| *usage == 0.0), "{before:?}");
    let of_bob = found(&bob);
    let ran = alice.result(
        "tools/call",
        json!({"name": "docent_run_tool", "arguments": {"tool": "u.beta", "arguments": {}}}),
    );
    assert_eq!(ran["isError"], false, "{ran}");
    let after = found(&alice);
    assert_eq!(after[0].0, "u.beta", "{after:?}");
    assert!(after[0].1 > 0.5 && after[1].1 == 0.0, "{after:?}");
    assert_eq!(found(&bob), of_bob, "another scope learns nothing of it");
    let usage = |flag: &str| {
        let mut command = docent();
        command.args(["usage", flag, "--home"]).arg(home.path()).arg("--data").arg(server.data());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let told: Value = serde_json::from_str(&usage("--json")).unwrap();
    assert_eq!(told["usage"][0]["tool"], "u.beta", "{told}");
    assert_eq!(usage("--forget"), "1 forgotten\n");
}
