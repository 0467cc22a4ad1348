//! Resources that change while they are watched, and prompts that come and go: by an edit of the home, and over
//! an MCP upstream that is docent itself, on both wires.

use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, rpc};
use crate::wire_double::{Streaming, header, request, with_meta};

const NOTE: &str = "kind = \"script\"\n\
    [[resource]]\nuri = \"shop://note\"\nname = \"note\"\ndescription = \"A note.\"\ntext = \"one\"\n\
    [[resource]]\nuri = \"shop://other\"\nname = \"other\"\ntext = \"still\"\n\
    [[resource]]\nuri = \"shop://hidden\"\nname = \"hidden\"\ntags = [\"nobody\"]\ntext = \"x\"\n\
    [[resource]]\nuri = \"shop://page/{n}\"\nname = \"page\"\ntext = \"Page {n}.\"\n\
    [resource.variables.n]\nvalues = [\"one\", \"two\"]\n\
    [[prompt]]\nid = \"greet\"\ndescription = \"Greets.\"\ntext = \"Greet {who}.\"\n\
    [[prompt.argument]]\nname = \"who\"\nrequired = true\nvalues = [\"Ann\", \"Bob\"]\n";

fn shop() -> TestHome {
    TestHome::with(&[
        ("docent.toml", "[upstreams]\nenabled = [\"shop\"]\n"),
        ("policies/p.rhai", "fn rules(p) { p.allow().unless_tags([\"nobody\"]); }"),
        ("scripts/shop/upstream.toml", NOTE),
    ])
}

fn stateless(server: &TestServer, method: &str, params: Value) -> Value {
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    if matches!(method, "resources/read" | "prompts/get") {
        headers.push(("mcp-name", &name));
    }
    rpc(&server.url, &headers, &request(3, method, with_meta(params))).2
}

#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
fn listen(server: &TestServer, filter: Value) -> Streaming {
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "subscriptions/listen")];
    let body = request(9, "subscriptions/listen", with_meta(json!({"notifications": filter})));
    Streaming::open(&server.url, "POST", &headers, &body.to_string())
}

#[test]
fn a_listener_hears_of_what_it_watches_and_may_know() {
    let home = shop();
    let server = TestServer::start(home.path(), &[]);
    let watched = json!(["shop://note", "shop://hidden", "shop://nowhere"]);
    let mut stream = listen(&server, json!({"resourceSubscriptions": watched, "promptsListChanged": true}));
    let first = stream.event().unwrap();
    let honoured = json!({"promptsListChanged": true, "resourceSubscriptions": ["shop://note"]});
    assert_eq!(first["params"]["notifications"], honoured);
    home.write("scripts/shop/upstream.toml", &NOTE.replace("\"one\"\n[[resource]]", "\"two\"\n[[resource]]"));
    let update = stream.event().unwrap();
    assert_eq!(update["method"], "notifications/resources/updated");
    assert_eq!(update["params"]["uri"], "shop://note");
    assert_eq!(update["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 9);
    assert!(update["params"].get("text").is_none(), "news has no payload");
    let text = stateless(&server, "resources/read", json!({"uri": "shop://note"}));
    assert_eq!(text["result"]["contents"][0]["text"], "two");
    home.write("scripts/shop/upstream.toml", &format!("{NOTE}[[prompt]]\nid = \"more\"\ntext = \"m\"\n"));
    let methods: Vec<Value> = (0..2).map(|_| stream.event().unwrap()["method"].clone()).collect();
    assert!(methods.contains(&json!("notifications/prompts/list_changed")), "{methods:?}");
}

#[test]
fn a_session_hears_of_what_it_subscribed_to_and_no_longer() {
    let home = shop();
    let server = TestServer::start(home.path(), &[]);
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}});
    let (_, head, answer) = rpc(&server.url, &[], &request(1, "initialize", hello));
    let capabilities = &answer["result"]["capabilities"];
    assert_eq!(capabilities["resources"], json!({"subscribe": true, "listChanged": true}));
    let session = header(&head, "mcp-session-id").unwrap();
    let headers = [("mcp-session-id", session.as_str())];
    let ask =
        |method: &str, uri: &str| rpc(&server.url, &headers, &request(2, method, json!({"uri": uri}))).2;
    assert_eq!(ask("resources/subscribe", "shop://note")["result"], json!({}));
    let hidden = ask("resources/subscribe", "shop://hidden").to_string();
    let absent = ask("resources/subscribe", "shop://nowhere").to_string();
    assert_eq!(hidden.replace("shop://hidden", "X"), absent.replace("shop://nowhere", "X"));
    let mut stream = Streaming::open(&server.url, "GET", &headers, "");
    home.write("scripts/shop/upstream.toml", &NOTE.replace("text = \"one\"", "text = \"two\""));
    let update = stream.event().unwrap();
    assert_eq!(
        (&update["method"], &update["params"]),
        (&json!("notifications/resources/updated"), &json!({"uri": "shop://note"}))
    );
    ask("resources/unsubscribe", "shop://note");
    home.write(
        "scripts/shop/upstream.toml",
        &NOTE.replace("description = \"A note.\"", "description = \"The note.\""),
    );
    // What changed in the list is told to everybody; nobody watches the resource any more.
    assert_eq!(stream.event().unwrap()["method"], "notifications/resources/list_changed");
    assert!(stream.is_silent());
}

/// A docent in front of a docent.
fn outer(inner: &TestServer, era: &str) -> TestHome {
    TestHome::with(&[
        ("docent.toml", "[upstreams]\nenabled = [\"inner\"]\n"),
        ("policies/p.rhai", "fn rules(p) { p.allow(); }"),
        (
            "scripts/inner/upstream.toml",
            &format!("kind = \"mcp\"\nurl = \"{}/mcp\"\nera = \"{era}\"\n", inner.url),
        ),
    ])
}

#[test]
fn an_upstreams_resources_and_prompts_are_passed_through_under_docents_addresses() {
    let home = shop();
    let inner = TestServer::start(home.path(), &[]);
    for era in ["session", "stateless"] {
        let outer_home = outer(&inner, era);
        let mut server = TestServer::start(outer_home.path(), &[]);
        server.wait_for("/readyz", |status, _| status == 200);
        let list = stateless(&server, "resources/list", json!({}));
        let uris: Vec<&str> = list["result"]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["uri"].as_str().unwrap())
            .collect();
        assert_eq!(uris, ["docent://upstream/inner/shop://note", "docent://upstream/inner/shop://other"]);
        let note = stateless(&server, "resources/read", json!({"uri": uris[0]}));
        assert_eq!(
            note["result"]["contents"],
            json!([{"uri": uris[0], "mimeType": "text/plain", "text": "one"}])
        );
        let page = "docent://upstream/inner/shop://page/3";
        let read = stateless(&server, "resources/read", json!({"uri": page}));
        assert_eq!(read["result"]["contents"][0]["text"], "Page 3.");
        let gone = "docent://upstream/inner/shop://gone";
        let absent = stateless(&server, "resources/read", json!({"uri": gone}));
        assert_eq!(
            (&absent["error"]["code"], &absent["error"]["data"]["uri"]),
            (&json!(-32602), &json!(gone))
        );
        let prompts = stateless(&server, "prompts/list", json!({}));
        assert_eq!(prompts["result"]["prompts"][0]["name"], "inner_shop_greet");
        let asked = json!({"name": "inner_shop_greet", "arguments": {"who": "Ann"}});
        let got = stateless(&server, "prompts/get", asked);
        assert_eq!(got["result"]["messages"][0]["content"]["text"], "Greet Ann.", "{got}");
        for (reference, argument, typed, value) in [
            (json!({"type": "ref/prompt", "name": "inner_shop_greet"}), "who", "B", "Bob"),
            (
                json!({"type": "ref/resource", "uri": "docent://upstream/inner/shop://page/{n}"}),
                "n",
                "t",
                "two",
            ),
        ] {
            let asked = json!({"ref": reference, "argument": {"name": argument, "value": typed}});
            let found = stateless(&server, "completion/complete", asked);
            assert_eq!(found["result"]["completion"]["values"], json!([value]), "{found}");
        }
    }
}

#[test]
fn news_of_an_upstreams_resources_reaches_those_who_watch_them() {
    for era in ["session", "stateless"] {
        let home = shop();
        let inner = TestServer::start(home.path(), &[]);
        let outer_home = outer(&inner, era);
        let mut server = TestServer::start(outer_home.path(), &[]);
        server.wait_for("/readyz", |status, _| status == 200);
        let uri = "docent://upstream/inner/shop://note";
        let mut stream = listen(&server, json!({"resourceSubscriptions": [uri]}));
        assert_eq!(stream.event().unwrap()["params"]["notifications"]["resourceSubscriptions"], json!([uri]));
        // Watching reaches the upstream beside the answer: edits go on until one was heard of.
        let path = home.path().to_owned();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = std::sync::Arc::clone(&stop);
        let editor = std::thread::spawn(move || {
            for n in 0.. {
                if stopped.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let text = NOTE.replace("text = \"one\"", &format!("text = \"edit {n}\""));
                std::fs::write(path.join("scripts/shop/upstream.toml"), text).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(700));
            }
        });
        let update = stream.event().unwrap();
        assert_eq!(
            (&update["method"], &update["params"]["uri"]),
            (&json!("notifications/resources/updated"), &json!(uri)),
            "{era}"
        );
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        editor.join().unwrap();
    }
}
