//! Scripts in the whole path: requests, projections, runs, their faults and their limits.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::tests::{compile, done, facts, refused, reply, try_compile};
use super::{PackSources, Projection, ResultBudget, ScriptCalls, Shaped};
use crate::call::{ErrorCode, HttpBody, HttpRequest, ToolError, UpstreamReply, UpstreamRequest};
use crate::diagnostic::SourceFile;
use crate::json::Object;

fn pack(script: &str) -> PackSources {
    PackSources {
        scripts: [("t.rhai".to_owned(), SourceFile::new("scripts/t/t.rhai", script))].into(),
        library: vec![SourceFile::new("scripts/lib/names.rhai", "fn upper(s) { s.to_upper() }")],
        ..PackSources::default()
    }
}

fn scripted(script: &str, more: &str) -> Projection {
    compile(
        &format!("script = \"t.rhai\"\n{more}"),
        &json!({"properties": {"n": {"default": 7}}}),
        pack(script),
    )
}

fn object(value: Value) -> Object {
    match value {
        Value::Object(map) => map,
        other => panic!("{other}"),
    }
}

fn project(projection: &Projection, body: &str) -> Shaped {
    projection.shape(
        &reply("application/json", body.to_owned()),
        &object(json!({})),
        &facts(),
        &ResultBudget::default(),
    )
}

#[test]
fn a_script_shapes_what_it_touches_and_digits_stay() {
    let projection = scripted(
        r#"fn project(reply, args, ctx) {
            let out = page("json_page");
            for r in reply.body.items {
                if r.skip == true { continue; }
                out.push(#{ id: r.id, who: names::upper(r.user.login ?? "nobody"), all: r.labels, n: args.n });
            }
            ctx.warn("seen " + reply.body.items.len());
            out.paging(#{ total: reply.body.total, mode: "upstream", unit: "rows" });
            out
        }"#,
        "output_schema = { type = \"object\" }\n",
    );
    let body = r#"{"total":3,"junk":[[1]],"items":[
        {"id":123456789012345678901,"user":{"login":"ann"},"labels":[ {"p":0.10} ]},
        {"skip":true},{"id":2,"user":{},"labels":null}]}"#;
    let shaped = project(&projection, body);
    let text = done(&shaped).0.structured.as_ref().unwrap().as_str().to_owned();
    assert_eq!(
        text,
        r#"{"kind":"json_page","items":[{"all":[{"p":0.10}],"id":123456789012345678901,"n":7,"who":"ANN"},{"all":null,"id":2,"n":7,"who":"NOBODY"}],"page":{"offset":0,"limit":2,"returned":2,"total":3,"has_more":null,"next_offset":null,"mode":"upstream","unit":"rows"}}"#
    );
    assert_eq!(done(&shaped).0.blocks[0].get(), r#"{"type":"text","text":"[seen 3]"}"#);
}

#[test]
fn families_errors_and_failures_of_a_script() {
    let projection = scripted(
        r#"fn project(reply, args, ctx) {
            let b = reply.body;
            if b.is_error == true { return error("CONFLICT", "no: " + b.why, #{ http_status: reply.status, data: mutation(#{outcome: "rejected"}) }); }
            if b.values != () { return metrics(b.values); }
            mutation(#{ outcome: "completed", target: #{ kind: "x", id: b.id } })
        }
        fn failed(reply, args, ctx) {
            if reply.status == 418 { error("UPSTREAM_REJECTED", "a teapot") }
        }"#,
        "families = [\"mutation\", \"metrics\"]\n",
    );
    let good = done(&project(&projection, r#"{"id":4}"#)).1;
    assert_eq!(
        good["data"],
        json!({"kind": "mutation", "outcome": "completed", "target": {"kind": "x", "id": 4}})
    );
    let metrics = done(&project(&projection, r#"{"values":[{"name":"a","value":1.5}]}"#)).1;
    assert_eq!(metrics["data"]["values"][0]["value"], 1.5);
    let shaped = project(&projection, r#"{"is_error":true,"why":"taken"}"#);
    let error = refused(&shaped);
    assert_eq!((error.code, error.message.as_str()), (ErrorCode::Conflict, "no: taken"));
    let envelope = projection.failure(error, "c").unwrap();
    assert_eq!(envelope["data"], json!({"kind": "mutation", "outcome": "rejected"}));
    assert_eq!(envelope["error"]["http_status"], 200);
    let bad = project(&projection, r#"{"id":null}"#);
    assert!(refused(&bad).message.contains("/data/target/id"), "{:?}", bad.outcome);
    let mut teapot = reply("text/plain", "x");
    teapot.status = 418;
    let shaped = projection.shape(&teapot, &object(json!({})), &facts(), &ResultBudget::default());
    assert_eq!(refused(&shaped).message, "a teapot");
}

#[test]
fn a_faulting_script_fails_the_call_and_only_the_log_knows_why() {
    for (script, detail) in [
        ("fn project(reply, args, ctx) { reply.body.n + reply.body }", "t.rhai:1:"),
        ("fn project(reply, args, ctx) { loop { } }", "in `project`"),
        ("fn project(reply, args, ctx) { |x| x }", "cannot stand in a result"),
        ("fn project(reply, args, ctx) { error(\"NOPE\", \"x\") }", "no error code"),
        ("fn project(reply, args, ctx) { ctx.call(\"a.b\", #{}) }", "in `run` only"),
        ("fn project(reply, args, ctx) { throw reply.body.secret }", "hunter2"),
    ] {
        let shaped = project(&scripted(script, ""), r#"{"n":1,"secret":"hunter2"}"#);
        let error = refused(&shaped);
        assert_eq!(error.code, ErrorCode::InternalError, "{script}");
        assert!(error.message.contains("c-1") && !error.message.contains("hunter2"), "{error}");
        assert!(
            shaped.detail.as_deref().unwrap_or_default().contains(detail),
            "{script}: {:?}",
            shaped.detail
        );
    }
}

#[test]
fn mapping_and_script_together() {
    let projection = scripted(
        "fn project(reply, args, ctx) { let p = page(\"page\"); for r in reply.body { p.push(#{ a: r.a, twice: r.a * 2 }); } p }",
        "collection = \"/rows\"\nfields = { a = \"/x/a\" }\nlimit = 2\n",
    );
    let shaped = project(&projection, r#"{"rows":[{"x":{"a":1}},{"x":{"a":2}},{"x":{"a":3}}]}"#);
    assert_eq!(done(&shaped).1["items"], json!([{"a": 1, "twice": 2}, {"a": 2, "twice": 4}]));
    assert_eq!(shaped.omitted[0].count, Some(1));
}

#[test]
fn requests_are_built_and_bounded() {
    let projection = scripted(
        r#"fn request(args, ctx) {
            if args.n == 0 { return error("INVALID_ARGUMENT", "n", #{ field: "/n" }); }
            request("post", "/a/" + segment(args.name ?? "x/y") + "/b").query(#{ q: [1, "z"], none: (), who: ctx.subject }).header("X-K", "v").body(#{ n: args.n })
        }"#,
        "",
    );
    let mut who = facts();
    who.subject = Arc::from("ann");
    let UpstreamRequest::Http(request) = projection.request(&object(json!({"name": "a b/c"})), &who).unwrap()
    else {
        panic!()
    };
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/a/a%20b%2Fc/b"));
    assert_eq!(
        request.query,
        [("q", "1"), ("q", "z"), ("who", "ann")].map(|(k, v)| (k.to_owned(), v.to_owned()))
    );
    assert_eq!(request.body, Some(HttpBody::Json(json!({"n": 7}))));
    let error = projection.request(&object(json!({"n": 0})), &who).unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::InvalidArgument, Some("/n")));
    for bad in [
        "request(\"GET\", \"//x/../y\")",
        "request(\"GET\", \"/a?b=c\")",
        "request(\"GET\", \"/\").header(\"Host\", \"x\")",
        "request(\"GET\", \"/\" + segment(\"..\"))",
    ] {
        let p = scripted(&format!("fn request(args, ctx) {{ {bad} }}"), "");
        assert_eq!(p.request(&object(json!({})), &who).unwrap_err().code, ErrorCode::InternalError, "{bad}");
    }
}

#[derive(Default)]
struct Fake {
    log: Mutex<Vec<String>>,
}

impl ScriptCalls for Fake {
    fn fetch(&self, request: HttpRequest) -> Result<UpstreamReply, ToolError> {
        self.log.lock().unwrap().push(request.path.clone());
        std::thread::sleep(std::time::Duration::from_millis(60));
        match request.path.as_str() {
            "/down" => Err(ToolError::new(ErrorCode::UpstreamUnavailable, "down").retryable()),
            "/gone" => Ok(UpstreamReply { status: 404, ..reply("application/json", "{}") }),
            path => Ok(reply("application/json", format!("{{\"path\":\"{path}\"}}"))),
        }
    }

    fn call(&self, tool: &str, arguments: Object) -> Result<Value, ToolError> {
        self.log.lock().unwrap().push(tool.to_owned());
        if tool == "no.such" {
            return Err(ToolError::new(ErrorCode::NotFound, "no such tool"));
        }
        Ok(json!({"tool": tool, "args": arguments}))
    }

    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.log.lock().unwrap().push(format!("{progress}/{total:?} {message:?}"));
    }
}

fn run(script: &str, more: &str) -> (Shaped, Vec<String>) {
    let projection = scripted(script, more);
    assert!(projection.is_script());
    let fake = Arc::new(Fake::default());
    let calls: Arc<dyn ScriptCalls> = Arc::<Fake>::clone(&fake);
    let shaped = projection.run(&object(json!({})), &facts(), &calls, &ResultBudget::default());
    let log = fake.log.lock().unwrap().clone();
    (shaped, log)
}

#[test]
fn a_run_makes_calls_and_tells_progress_and_waiting_costs_no_script_time() {
    let (shaped, log) = run(
        r#"fn run(args, ctx) {
            let out = [];
            for i in 0..6 { out.push(ctx.fetch(request("GET", "/p" + i)).body.path); ctx.progress(i, 6); }
            let inner = ctx.call("a.b", #{ x: args.n });
            let lost = ctx.try_call("no.such", #{});
            let gone = ctx.try_fetch(request("GET", "/gone"));
            json(#{ out: out, inner: inner, lost: is_error(lost), code: lost.code, gone: gone.status })
        }"#,
        "",
    );
    assert_eq!(
        done(&shaped).1["data"],
        json!({"code": "NOT_FOUND", "gone": 404, "inner": {"tool": "a.b", "args": {"x": 7}}, "lost": true, "out": ["/p0", "/p1", "/p2", "/p3", "/p4", "/p5"]})
    );
    assert!(log.contains(&"5/Some(6.0) None".to_owned()), "{log:?}");
    assert!(shaped.bytes_in > 60);
}

#[test]
fn an_inner_failure_is_the_failure_of_the_run() {
    let (shaped, _) = run("fn run(args, ctx) { ctx.fetch(request(\"GET\", \"/down\")) }", "");
    assert_eq!((refused(&shaped).code, refused(&shaped).retryable), (ErrorCode::UpstreamUnavailable, true));
    let (shaped, _) = run("fn run(args, ctx) { ctx.fetch(request(\"GET\", \"/gone\")) }", "");
    assert_eq!(refused(&shaped).code, ErrorCode::NotFound);
    let (shaped, log) = run("fn run(args, ctx) { for i in 0..100 { ctx.call(\"a.b\", #{}); } }", "");
    assert_eq!((refused(&shaped).code, log.len()), (ErrorCode::InternalError, 32));
    let (shaped, _) = run("fn run(args, ctx) { try { ctx.call(\"no.such\", #{}); } catch { } \"fine\" }", "");
    assert_eq!(done(&shaped).1["text"], "fine", "{shaped:?}");
}

#[test]
fn blocks_texts_and_nothing() {
    let (shaped, _) = run(
        r#"fn run(args, ctx) { content(["hi", image("AAAA", "image/png"), resource("x://y", "text/plain", "t"), link("x://z", "z", #{size: 3}), text("end")]) }"#,
        "",
    );
    let kinds: Vec<String> = done(&shaped)
        .0
        .blocks
        .iter()
        .map(|b| serde_json::from_str::<Value>(b.get()).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["text", "image", "resource", "resource_link", "text"]);
    let nothing = done(&run("fn run(args, ctx) { ctx.warn(\"why\"); }", "").0).1;
    assert_eq!(
        nothing,
        json!({"text": null, "text_mime": null, "data": null, "artifacts": [], "warnings": ["why"], "duration_ms": 0})
    );
    for (value, data) in [("json([1])", json!([1])), ("#{ a: 1 }", json!({"a": 1})), ("7", json!(7))] {
        assert_eq!(done(&run(&format!("fn run(args, ctx) {{ {value} }}"), "").0).1["data"], data);
    }
    assert_eq!(
        done(&run("fn run(args, ctx) { text(\"x\") }", "families = [\"text\"]").0).1["data"],
        json!({"kind": "text", "text": "x"})
    );
    let enveloped = run("fn run(args, ctx) { json([1]) }", "families = [\"json\"]").0;
    assert_eq!(done(&enveloped).1["data"], json!({"kind": "json", "value": [1]}));
}

#[test]
fn mistakes_in_scripts_are_found_when_the_home_loads() {
    let told = |toml: &str, script: &str| try_compile(toml, &json!({}), pack(script)).1;
    assert_eq!(
        told("script = \"t.rhai\"\n", "fn other() { 1 }"),
        ["1:10 `scripts/t/t.rhai` has none of the functions request, project, run, failed"]
    );
    assert_eq!(
        told("script = \"t.rhai\"\n", "fn project(reply) { 1 }"),
        ["1:10 `project` takes 1 parameters, the role `project` needs 3"]
    );
    assert_eq!(
        told("script = { file = \"t.rhai\", run = \"go\" }\n", "fn gone(args, ctx) { 1 }"),
        ["1:10 `scripts/t/t.rhai` has no function `go`"]
    );
    let broken = told("script = \"t.rhai\"\n", "fn run(args, ctx) { frobnicate(1) }");
    assert!(
        broken[0].contains("unknown function `frobnicate`") && broken[1].contains("does not compile"),
        "{broken:?}"
    );
    let both = told("script = \"t.rhai\"\nrequest = { path = \"/\" }\n", "fn request(args, ctx) { 1 }");
    assert_eq!(both, ["1:1 `request` is both a table and a function of the script"]);
}

#[test]
fn a_piece_of_a_secret_does_not_come_out_either() {
    let token = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4";
    let body =
        json!({"note": format!("use {token} for it"), "password": "hunter22", "n": "a1b2"}).to_string();
    for given in [
        "json(#{ half: reply.body.note.sub_string(4, 16), n: reply.body.n })",
        "json(#{ parts: reply.body.note.split(\"e5\"), n: reply.body.n })",
        "json(#{ other: reply.body.password, n: reply.body.n })",
        "json(#{ all: reply.body.to_string().sub_string(10, 24), n: reply.body.n })",
        "let p = page(\"json_page\"); p.push(#{ v: reply.body.note.sub_string(8, 20), n: reply.body.n }); p",
        "text(reply.text.sub_string(10, 30) + \" a1b2\")",
        "ctx.warn(reply.body.note.sub_string(8, 20)); json(#{ n: reply.body.n })",
        "error(\"CONFLICT\", \"a1b2: \" + reply.body.note.sub_string(8, 20), #{ why: reply.body.password })",
        "content([reply.body.note.sub_string(8, 20), \"a1b2\"])",
    ] {
        let projection = scripted(&format!("fn project(reply, args, ctx) {{ {given} }}"), "");
        let shaped = project(&projection, &body);
        let said = format!("{:?}", shaped.outcome);
        for piece in ["b2c3d4e5", "e5f6g7h8", "f6g7h8i9", "hunter22"] {
            assert!(!said.contains(piece), "{given}: {said}");
        }
        assert!(said.contains("a1b2"), "{given}: {said}");
    }
}

#[test]
fn what_is_no_object_has_no_members_and_an_answer_that_is_no_json_is_the_upstreams_mistake() {
    let script = "fn project(reply, args, ctx) {
        let out = [];
        for x in reply.body { out.push(x?.name?.deep ?? \"none\"); }
        json(out)
    }";
    let projection = scripted(script, "");
    let shaped =
        project(&projection, r#"["text", 7, 0.5, true, null, [1], {"name": "n"}, {"name": {"deep": 3}}]"#);
    let text = done(&shaped).0.text.clone().unwrap();
    assert_eq!(text, r#"["none","none","none","none","none","none","none",3]"#);
    let shaped = project(&projection, "<html>down</html>");
    assert_eq!(refused(&shaped).code, ErrorCode::UpstreamSchemaMismatch);
    assert!(refused(&shaped).message.contains("not JSON"), "{}", refused(&shaped).message);
}
