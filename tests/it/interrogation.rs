//! Questions to the policies: what an edit changes, recorded calls decided anew, a candidate in the shadow, what
//! no case reached, and every mistake of policies that others' users reported.

use serde_json::{Value, json};

use crate::check::run;
use crate::support::{TestHome, TestServer, docent, http, rpc};

const PACK: &str = "kind = \"command\"\n[[tool]]\nid = \"read\"\ndescription = \"Reads.\"\nrun = [\"echo\", \"hi\"]\ntags = [\"ci\"]\n\
    [[tool]]\nid = \"write\"\ndescription = \"Writes.\"\nrun = [\"echo\", \"{text}\"]\ntags = [\"ci\"]\n\
    input_schema = { type = \"object\", properties = { text = { type = \"string\" } } }\n";
const MAIN: &str =
    "[upstreams]\nenabled = [\"u\"]\n[callers.anonymous]\nscopes = [\"docent:admin\"]\n[callers.bob]\n";
const POLICY: &str = "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n}\n";
const STRICTER: &str = "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n  p.deny(\"frozen\").tool(\"u.write\").when_arg(\"/text\", \"prod\");\n  p.hide().tool(\"u.read\").subject(\"bob\");\n}\n";

fn home(policy: &str) -> TestHome {
    TestHome::with(&[("docent.toml", MAIN), ("scripts/u/upstream.toml", PACK), ("policies/p.rhai", policy)])
}

fn json_of(home: &TestHome, args: &[&str]) -> Value {
    let (code, out, err) = run(home.path(), args);
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_diff_names_callers_tools_and_the_rule() {
    let (before, after) = (home(POLICY), home(STRICTER));
    let other = after.path().to_str().unwrap();
    let found = json_of(&before, &["policy", "diff", other, "--json"]);
    assert_eq!(
        found["changed"],
        json!([{"caller": "bob", "tool": "u.read", "before": "permit", "after": "deny",
            "rule": {"file": "policies/p.rhai", "line": 4}}])
    );
    assert_eq!(found["unchanged"], 3);
    let (_, out, _) = run(before.path(), &["policy", "diff", other]);
    assert!(out.contains("bob → u.read: permit → deny, by policies/p.rhai:4"), "{out}");
}

fn call(url: &str, tool: &str, arguments: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", tool)];
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    rpc(url, &headers, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})).2
}

fn get(url: &str, path: &str) -> (u16, Value) {
    let (status, _, body) = http(url, "GET", path, &[], "").unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[test]
fn recorded_calls_are_decided_anew_and_what_is_not_known_is_not_allowed() {
    let home = home(POLICY);
    let data = tempfile::tempdir().unwrap();
    let ask = |args: &[&str]| {
        let output =
            docent().args(args).arg("--home").arg(home.path()).arg("--data").arg(data.path()).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    for (tool, arguments, caller) in
        [("u.read", "{}", "bob"), ("u.write", "{\"text\":\"prod\"}", "bob"), ("u.read", "{}", "anonymous")]
    {
        let (code, out, err) = ask(&["call", tool, arguments, "--as", caller]);
        assert_eq!(code, 0, "{out}{err}");
    }
    let audit = data.path().join("audit");
    let audit = audit.to_str().unwrap();
    let verified: Value = serde_json::from_str(&ask(&["audit", "verify", "--json"]).1).unwrap();
    assert!(verified["ok"] == true && verified["records"].as_u64().unwrap() >= 4, "{verified}");
    let same = json_of(&home, &["policy", "replay", audit, "--json"]);
    assert_eq!((&same["records"], &same["unchanged"], &same["changed"]), (&json!(3), &json!(3), &json!([])));
    home.write("policies/p.rhai", STRICTER);
    let found = json_of(&home, &["policy", "replay", audit, "--json"]);
    assert_eq!(
        (&found["records"], &found["replayed"], &found["unchanged"]),
        (&json!(3), &json!(2), &json!(1))
    );
    let change = &found["changed"][0];
    assert_eq!(
        (&change["caller"], &change["tool"], &change["after"], &change["records"]),
        (&json!("bob"), &json!("u.read"), &json!("deny"), &json!(1))
    );
    let unknown = &found["unknown"][0];
    assert!(
        unknown["tool"] == "u.write" && unknown["reason"].as_str().unwrap().contains("audit_arguments"),
        "{unknown}"
    );
    // With values in the record nothing is left unknown.
    home.write("docent.toml", &format!("{MAIN}[telemetry]\naudit_arguments = \"values\"\n"));
    home.write("policies/p.rhai", POLICY);
    assert_eq!(ask(&["call", "u.write", "{\"text\":\"prod\"}", "--as", "bob"]).0, 0);
    home.write("policies/p.rhai", STRICTER);
    let found = json_of(&home, &["policy", "replay", audit, "--json"]);
    let denied = found["changed"].as_array().unwrap().iter().find(|c| c["tool"] == "u.write").unwrap();
    assert_eq!((&denied["after"], &denied["rule"]["line"]), (&json!("deny"), &json!(3)));
}

#[test]
fn a_candidate_is_watched_beside_the_policies_and_an_edit_is_undone_by_nobody() {
    let home = home(POLICY);
    home.write("docent.toml", &format!("{MAIN}[policies]\nshadow = \"policies/next\"\n"));
    home.write("policies/next/p.rhai", STRICTER);
    let mut server = TestServer::start(home.path(), &[]);
    for (text, times) in [("dev", 1), ("prod", 2)] {
        for _ in 0..times {
            assert_eq!(call(&server.url, "u_write", &json!({ "text": text }))["result"]["isError"], false);
        }
    }
    let (status, shadow) = get(&server.url, "/api/v1/policy/shadow");
    assert_eq!((status, &shadow["same"], &shadow["different"]), (200, &json!(1), &json!(2)), "{shadow}");
    let found = &shadow["differences"][0];
    assert_eq!(
        (&found["before"], &found["after"], &found["calls"]),
        (&json!("permit"), &json!("deny"), &json!(2))
    );
    assert_eq!(found["rule"], json!({"file": "policies/next/p.rhai", "line": 3}));
    let (_, _, metrics) = http(&server.url, "GET", "/metrics", &[], "").unwrap();
    assert!(metrics.contains("docent_shadow_decisions_total{result=\"different\"} 2"), "{metrics}");
    // Records are written a moment later, several at once.
    server.wait_for("/api/v1/audit?kind=call&tool=u.write", |status, body| {
        let answer: Value = serde_json::from_str(body).unwrap();
        status == 200 && answer["records"].as_array().unwrap().len() == 3
    });
    // A candidate that does not load is told of and stops nothing.
    home.write("policies/next/p.rhai", "fn rules(p) { p.allwo(); }");
    let (code, out, err) = run(home.path(), &["check"]);
    assert!(
        code == 0
            && format!("{out}{err}").contains("warning[")
            && format!("{out}{err}").contains("policies/next/p.rhai"),
        "{out}{err}"
    );
}

#[test]
fn the_decision_is_explained_over_http_to_admins_only() {
    let home = home(STRICTER);
    let server = TestServer::start(home.path(), &[]);
    let (status, told) =
        get(&server.url, "/api/v1/policy/explain?tool=u.write&as=bob&args=%7B%22text%22%3A%22prod%22%7D");
    assert_eq!((status, &told["decision"], &told["reason"]), (200, &json!("deny"), &json!("frozen")));
    assert_eq!(told["rule"], json!({"file": "policies/p.rhai", "line": 3}));
    assert_eq!(get(&server.url, "/api/v1/policy/explain?tool=u.read&as=bob").1["visible"], false);
    for (path, status) in [
        ("?tool=u.none", 404),
        ("?tool=u.read&as=nobody", 404),
        ("", 400),
        ("?tool=u.read&args=1", 400),
        ("?tol=u.read", 400),
    ] {
        assert_eq!(get(&server.url, &format!("/api/v1/policy/explain{path}")).0, status, "{path}");
    }
    home.write("docent.toml", &MAIN.replace("docent:admin", "other"));
    drop(server);
    let server = TestServer::start(home.path(), &[]);
    for path in ["/api/v1/policy/explain?tool=u.read", "/api/v1/policy/shadow", "/api/v1/audit"] {
        let (status, head, _) = http(&server.url, "GET", path, &[], "").unwrap();
        assert!(status == 403 && head.contains("scope=\"docent:admin\""), "{path}: {head}");
    }
}

#[test]
fn coverage_names_the_rules_and_functions_that_no_case_reached() {
    let home = home(
        "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n  p.deny(\"no\").tool(\"u.write\");\n  p.hide().tool(\"u.nothing\");\n}\n\
         fn decide(caller, tool, args) { if tool.matches(\"u.rare\") { deny(\"rare\") } else { abstain() } }\n",
    );
    home.write(
        "policies/cases/a.yaml",
        "callers: { v: {} }\ncases:\n  - { name: roster, caller: v, visible: [u.read] }\n  - { name: one, caller: v, tool: u.write, expect: deny }\n",
    );
    let told = json_of(&home, &["test", "--coverage", "--json"]);
    assert_eq!((&told["passed"], &told["failed"]), (&json!(2), &json!(0)), "{told}");
    let rules = &told["coverage"]["policy"]["rules"];
    assert_eq!((&rules["total"], &rules["reached"]), (&json!(3), &json!(2)));
    assert_eq!(rules["missing"], json!([{"file": "policies/p.rhai", "line": 4, "name": "hide"}]));
    let missing = told["coverage"]["policy"]["functions"]["missing"].as_array().unwrap();
    assert!(missing.iter().any(|f| f["name"] == "decide" && f["line"] == 6), "{missing:?}");
    let (_, out, _) = run(home.path(), &["test", "--coverage"]);
    assert!(
        out.contains("not reached: policies/p.rhai:4 hide")
            && out.contains("2 of 3 rules, 0 of 1 functions of policies reached"),
        "{out}"
    );
    assert!(json_of(&home, &["test", "--json"]).get("coverage").is_none());
}

#[test]
fn cases_reach_what_is_withheld_and_who_opens_agents() {
    let home = home(
        "fn rules(p) { p.allow(); }\n\
         fn redact(caller, tool) { if tool.id == \"u.read\" && !(\"see:mail\" in caller.scopes) { [\"mail\", \"/owner/phone\"] } else { [] } }\n\
         fn agent_visible(caller, agent) { agent.id != \"secret\" }\n\
         fn agent_open(caller, agent) { if agent.id == \"deploy\" { challenge([\"ops:deploy\"]) } else if agent.id == \"old\" { deny(\"retired\") } else { allow() } }\n",
    );
    let cases = |more: &str| {
        home.write(
            "policies/cases/a.yaml",
            &format!(
                "agents: [{{ id: open }}, {{ id: deploy }}, {{ id: old }}, {{ id: secret }}]\n\
                 callers: {{ v: {{}}, w: {{ scopes: [\"see:mail\"] }} }}\ncases:\n{more}"
            ),
        );
    };
    cases(
        "- { name: a, caller: v, tool: u.read, redact: [mail, /owner/phone] }\n\
           - { name: b, caller: w, tool: u.read, expect: permit, redact: [] }\n\
           - { name: c, caller: v, agents: [open, deploy, old] }\n\
           - { name: d, caller: v, agent: deploy, expect: challenge, scopes: [\"ops:deploy\"], seen: true }\n\
           - { name: e, caller: v, agent: old, expect: deny, reason: retired }\n\
           - { name: f, caller: v, agent: secret, expect: deny, seen: false }\n\
           - { name: g, caller: v, agent: open, expect: permit }\n",
    );
    let told = json_of(&home, &["test", "--coverage", "--json"]);
    assert_eq!((&told["passed"], &told["failed"]), (&json!(7), &json!(0)), "{told}");
    assert_eq!(told["coverage"]["policy"]["functions"]["missing"], json!([]), "{told}");
    cases(
        "- { name: a, caller: v, tool: u.read, redact: [name] }\n\
               - { name: b, caller: v, agents: [secret] }\n\
               - { name: c, caller: v, agent: old, expect: permit }\n\
               - { name: d, caller: v, agent: none, expect: permit }\n",
    );
    let (_, out, _) = run(home.path(), &["test"]);
    for line in [
        "- redact: name is not",
        "+ redact: mail is, and is not expected",
        "- agents: secret is not",
        "+ agents: deploy is, and is not expected",
        "+ expect: deny (at policies/p.rhai:4: retired)",
        "there is no agent `none`",
    ] {
        assert!(out.contains(line), "{line} is not in\n{out}");
    }
}

#[test]
fn the_opening_of_an_agent_is_explained() {
    let home = home(
        "fn rules(p) { p.allow(); }\n\
         fn agent_open(caller, agent) { if agent.id == \"deploy\" { challenge([\"ops:deploy\"]) } else { allow() } }\n",
    );
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write(
        "docent.toml",
        &format!("{main}\n[agents.deploy]\ntools = [\"u.read\"]\n[agents.reader]\ntools = [\"u.read\"]\n"),
    );
    let explain = |name: &str| json_of(&home, &["policy", "explain", name, "--json"]);
    let asked = explain("deploy");
    assert_eq!(
        (&asked["decision"], &asked["scopes"]),
        (&json!("challenge"), &json!(["ops:deploy"])),
        "{asked}"
    );
    assert_eq!(asked["rule"], json!({"file": "policies/p.rhai", "line": 2}), "{asked}");
    assert_eq!(explain("agent.deploy"), asked, "by its full name");
    assert_eq!(explain("reader")["decision"], "permit");
    let (code, _, told) = run(home.path(), &["policy", "explain", "nobody"]);
    assert!(code == 1 && told.contains("there is no tool, resource, prompt or agent `nobody`"), "{told}");
    // Where no policy speaks of agents, one is hidden with its tools.
    home.write("policies/p.rhai", "fn rules(p) { p.allow(); p.hide().tool(\"u.read\"); }\n");
    let hidden = explain("reader");
    assert_eq!((&hidden["decision"], hidden["visible"].as_bool()), (&json!("deny"), Some(false)), "{hidden}");
}

#[test]
fn resources_and_prompts_are_explained_by_the_names_people_know() {
    let home = home(STRICTER);
    let pack = std::fs::read_to_string(home.path().join("scripts/u/upstream.toml")).unwrap();
    let offers = "[[resource]]\nuri = \"u://note/{id}\"\nname = \"note\"\ntags = [\"ci\"]\ntext = \"{id}\"\n\
                  [[prompt]]\nid = \"ask\"\ntags = [\"hidden\"]\ntext = \"Ask.\"\n";
    home.write("scripts/u/upstream.toml", &format!("{pack}\n{offers}"));
    home.write(
        "policies/q.rhai",
        "fn rules(p) {\n  p.allow().tags([\"ci\"]);\n  p.hide().tags([\"hidden\"]);\n  p.deny(\"not this one\").tags([\"ci\"]).when_arg(\"/id\", \"7\");\n}\n",
    );
    let explain = |name: &str| json_of(&home, &["policy", "explain", name, "--json"]);
    assert_eq!(explain("u://note/1")["decision"], "permit");
    let denied = explain("u://note/7");
    assert_eq!(
        (&denied["decision"], &denied["rule"]),
        (&json!("deny"), &json!({"file": "policies/q.rhai", "line": 4}))
    );
    let hidden = explain("u_ask");
    assert_eq!((&hidden["decision"], &hidden["visible"]), (&json!("deny"), &json!(false)));
    let (code, _, err) = run(home.path(), &["policy", "explain", "u://none"]);
    assert!(code == 1 && err.contains("there is no tool, resource, prompt or agent `u://none`"), "{err}");
    let rows = json_of(&home, &["policy", "matrix", "--json"]);
    assert_eq!(rows[0]["resources"], json!({"u://note/{id}": "callable"}), "{rows}");
    assert_eq!(rows[0]["prompts"], json!({}));
    let (_, out, _) = run(home.path(), &["policy", "matrix"]);
    let line =
        |name: &str| out.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{out}")).to_owned();
    assert!(line("u://note/{id}").contains("callable") && line("u_ask").contains("hidden"), "{out}");
}

/// facts on peers, part E: what users of other gateways ran into.
#[test]
fn policies_that_lie_elsewhere_do_not_load_or_say_why_they_deny() {
    let check = |policy: &str| {
        let (code, out, err) = run(home(policy).path(), &["check"]);
        (code, format!("{out}{err}"))
    };
    // A rule on a field that does not exist denied everything, silently.
    for (policy, expected) in [
        (
            "fn decide(caller, tool, args) { if tool.arguments.x == 1 { allow() } else { abstain() } }",
            "unknown-field",
        ),
        ("fn visible(caller, tool) { caller.group == \"x\" }", "unknown-field"),
        ("fn visible(caller, tool) { tool[\"tags\"] == [] }", "unknown-field"),
        // A phase that does not know arguments cannot ask for them.
        ("fn visible(caller, tool, args) { args.x == 1 }", "phase-parameters"),
        ("fn visable(caller, tool) { true }", "unused-function"),
        ("fn rules(p) { p.allow().tag([\"ci\"]); }", "error["),
        ("fn rules(p) { p.allow().scopes([]); }", "error["),
    ] {
        let (code, told) = check(policy);
        assert!(
            code == 2 && told.contains(expected) && told.contains("policies/p.rhai:1:"),
            "{policy}\n{told}"
        );
    }
    // Policies that only deny deny everything: it is said at load, and by every answer.
    let deny_only = "fn rules(p) {\n  p.deny(\"no\").tool(\"u.write\");\n}\n";
    let (code, told) = check(deny_only);
    assert!(code == 0 && told.contains("warning[nothing-allowed]"), "{told}");
    let why = json_of(&home(deny_only), &["policy", "explain", "u.read", "--json"]);
    assert_eq!((&why["decision"], &why["reason"]), (&json!("deny"), &json!("no rule allows it")));
    // A script that fails denies, and names its line.
    let faulty =
        "fn rules(p) { p.allow(); }\nfn decide(caller, tool, args) {\n  let n = 1 / 0;\n  allow()\n}\n";
    let why = json_of(&home(faulty), &["policy", "explain", "u.read", "--json"]);
    assert!(
        why["decision"] == "deny" && why["reason"].as_str().unwrap().contains("policies/p.rhai:3"),
        "{why}"
    );
    // No rule is without its line: the answer is never a bare no.
    let why = json_of(&home(STRICTER), &["policy", "explain", "u.read", "--as", "bob", "--json"]);
    assert_eq!((&why["decision"], &why["rule"]["line"]), (&json!("deny"), &json!(4)));
}
