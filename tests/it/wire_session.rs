//! The session wire over HTTP: the life of a session, what each old revision sees, batches, streams.

use std::sync::atomic::Ordering;
use std::time::Duration;

use docent::limits::SESSION_IDLE;
use serde_json::{Value, json};

use crate::support::{http, rpc};
use crate::wire_double::{Streaming, WireServer, header, request, with_meta};

fn code(body: &Value) -> i64 {
    body["error"]["code"].as_i64().unwrap_or(0)
}

fn in_session(server: &WireServer, session: &str, message: &Value) -> (u16, Value) {
    let (status, _, body) = rpc(&server.url, &[("mcp-session-id", session)], message);
    (status, body)
}

#[test]
fn initialize_settles_the_version_and_opens_a_session() {
    let server = WireServer::open();
    for (wanted, settled) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
    ] {
        let hello = json!({"protocolVersion": wanted, "capabilities": {}, "clientInfo": {"name": "probe", "version": "1"}});
        let (status, head, body) = rpc(&server.url, &[], &request(1, "initialize", hello));
        let result = &body["result"];
        assert_eq!((status, &result["protocolVersion"]), (200, &json!(settled)), "{wanted}");
        assert_eq!(
            (&result["serverInfo"]["name"], &result["instructions"]),
            (&json!("double"), &json!("for anonymous with probe"))
        );
        assert_eq!(result["capabilities"]["tools"], json!({"listChanged": true}));
        assert_eq!(result["capabilities"].get("extensions").is_some(), settled != "2025-03-26");
        assert!(result.get("resultType").is_none() && result.get("_meta").is_none());
        let id = header(&head, "mcp-session-id").unwrap();
        assert!(id.len() >= 32 && id.bytes().all(|b| b.is_ascii_graphic()));
    }
    assert_eq!(server.mcp.session_count(), 5);
    let (status, _, body) = server.stateless(&[], "initialize", json!({}));
    assert_eq!((status, code(&body)), (404, -32601), "an `initialize` of the stateless wire is no method");
    let (status, _, body) = rpc(&server.url, &[], &request(1, "initialize", json!({})));
    assert_eq!((status, code(&body)), (400, -32600));
}

#[test]
fn a_session_lives_until_it_is_ended() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-11-25");
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(in_session(&server, &session, &ready), (202, json!("")));
    let (status, pong) = in_session(&server, &session, &request(2, "ping", json!({})));
    assert_eq!((status, pong), (200, json!({"jsonrpc": "2.0", "id": 2, "result": {}})));
    let with_version = |version: &str| {
        rpc(
            &server.url,
            &[("mcp-session-id", &session), ("mcp-protocol-version", version)],
            &request(3, "ping", json!({})),
        )
        .0
    };
    assert_eq!((with_version("2025-11-25"), with_version("1999-01-01")), (200, 400));
    let delete = |id: &str| http(&server.url, "DELETE", "/mcp", &[("mcp-session-id", id)], "").unwrap();
    let (status, _, body) = delete(&session);
    assert_eq!((status, body.as_str()), (204, ""));
    assert_eq!(delete(&session).0, 404);
    let (status, body) = in_session(&server, &session, &request(4, "ping", json!({})));
    assert_eq!((status, code(&body), &body["id"]), (404, -32600, &json!(4)));
    assert_eq!(in_session(&server, &session, &ready).0, 404);
    assert_eq!(http(&server.url, "GET", "/mcp", &[("mcp-session-id", &session)], "").unwrap().0, 404);
    assert_eq!(http(&server.url, "GET", "/mcp", &[], "").unwrap().0, 405);
    assert_eq!(http(&server.url, "DELETE", "/mcp", &[], "").unwrap().0, 405);
    assert_eq!(http(&server.url, "PUT", "/mcp", &[], "").unwrap().0, 405);
    assert_eq!(rpc(&server.url, &[], &request(5, "tools/list", json!({}))).0, 400, "neither wire");
    assert_eq!(rpc(&server.url, &[], &ready).0, 400, "neither wire");
}

#[test]
fn an_idle_session_is_forgotten() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-11-25");
    server.clock.advance(SESSION_IDLE);
    assert_eq!(in_session(&server, &session, &request(1, "ping", json!({}))).0, 200);
    server.clock.advance(SESSION_IDLE + Duration::from_secs(1));
    assert_eq!(in_session(&server, &session, &request(1, "ping", json!({}))).0, 404);
}

#[test]
fn a_session_of_another_caller_does_not_exist() {
    let server = WireServer::with_tokens();
    let alice = ("authorization", "Bearer t-alice");
    let bob = ("authorization", "Bearer t-bob");
    let session = server.session(&[alice], "2025-11-25");
    let ping = request(1, "ping", json!({}));
    let as_caller = |who: (&str, &str), id: &str| {
        let (status, _, body) = rpc(&server.url, &[who, ("mcp-session-id", id)], &ping);
        (status, body.to_string())
    };
    assert_eq!(as_caller(alice, &session).0, 200);
    assert_eq!(as_caller(bob, &session), as_caller(bob, "never-was"), "foreign and unknown are one answer");
    assert_eq!(as_caller(bob, &session).0, 404);
    assert_eq!(http(&server.url, "DELETE", "/mcp", &[bob, ("mcp-session-id", &session)], "").unwrap().0, 404);
    let (status, head, _) = rpc(&server.url, &[("mcp-session-id", &session)], &ping);
    assert_eq!(status, 401, "a session is no credential");
    assert!(header(&head, "www-authenticate").unwrap().starts_with("bearer resource_metadata="));
    assert_eq!(as_caller(alice, &session).0, 200);
}

#[test]
fn each_revision_sees_the_fields_that_it_knows() {
    let server = WireServer::open();
    for (version, structured) in [("2025-03-26", false), ("2025-06-18", true), ("2025-11-25", true)] {
        let session = server.session(&[], version);
        let (_, list) = in_session(&server, &session, &request(2, "tools/list", json!({})));
        let echo = &list["result"]["tools"][0];
        assert_eq!(echo.get("title").is_some(), structured, "{version}");
        assert_eq!(echo.get("outputSchema").is_some(), structured, "{version}");
        assert_eq!(echo["annotations"]["readOnlyHint"], true);
        assert_eq!(list["result"].as_object().unwrap().keys().collect::<Vec<_>>(), ["tools", "nextCursor"]);
        let call = request(3, "tools/call", json!({"name": "echo", "arguments": {"a": 1}}));
        let (status, body) = in_session(&server, &session, &call);
        assert_eq!(
            (status, body["result"].get("structuredContent").is_some()),
            (200, structured),
            "{version}"
        );
        assert!(body["result"].get("resultType").is_none() && body["result"].get("_meta").is_none());
        let (status, body) = in_session(&server, &session, &request(4, "server/nothing", json!({})));
        assert_eq!((status, code(&body)), (200, -32601));
        let (status, body) =
            in_session(&server, &session, &request(5, "tools/call", json!({"name": "nothing"})));
        assert_eq!((status, code(&body)), (200, -32602));
    }
}

#[test]
fn only_the_oldest_revision_takes_batches() {
    let server = WireServer::open();
    let batch = json!([
        request(1, "ping", json!({})),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(2, "tools/call", json!({"name": "echo"})),
        {"jsonrpc": "2.0", "id": null, "method": "ping"},
        request(3, "nothing", json!({})),
        request(4, "initialize", json!({"protocolVersion": "2025-03-26"})),
        request(5, "tools/call", json!({"name": "guarded"})),
    ]);
    let oldest = server.session(&[], "2025-03-26");
    let (status, body) = in_session(&server, &oldest, &batch);
    let codes: Vec<(Value, i64)> =
        body.as_array().unwrap().iter().map(|m| (m["id"].clone(), code(m))).collect();
    assert_eq!(status, 200);
    assert_eq!(
        codes,
        [
            (json!(1), 0),
            (json!(2), 0),
            (Value::Null, -32600),
            (json!(3), -32601),
            (json!(4), -32600),
            (json!(5), 403)
        ]
    );
    let notes = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    assert_eq!(in_session(&server, &oldest, &notes), (202, json!("")));
    for version in ["2025-06-18", "2025-11-25"] {
        let session = server.session(&[], version);
        let (status, body) = in_session(&server, &session, &batch);
        assert_eq!((status, code(&body)), (400, -32600), "{version}");
    }
    assert_eq!(rpc(&server.url, &[], &batch).0, 400);
    let stateless = json!([request(1, "tools/list", with_meta(json!({})))]);
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    assert_eq!(rpc(&server.url, &headers, &stateless).0, 400);
    assert_eq!(in_session(&server, &oldest, &json!([])).0, 400);
}

#[test]
fn a_call_is_cancelled_by_notification_and_not_by_leaving() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-11-25");
    let call = json!({"jsonrpc": "2.0", "id": "c-1", "method": "tools/call", "params": {"name": "slow"}})
        .to_string();
    let (url, id) = (server.url.clone(), session.clone());
    let waiting = std::thread::spawn(move || {
        let headers = [("mcp-session-id", id.as_str()), ("content-type", "application/json")];
        http(&url, "POST", "/mcp", &headers, &call).unwrap()
    });
    server.until("the call begins", |d| d.began.load(Ordering::SeqCst) == 1);
    let cancel = |id: Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    assert_eq!(in_session(&server, &session, &cancel(json!("other"))).0, 202);
    assert_eq!(in_session(&server, &session, &cancel(json!("c-1"))).0, 202);
    server.until("the call is cancelled", |d| d.cancelled.load(Ordering::SeqCst) == 1);
    let (status, _, body) = waiting.join().unwrap();
    assert_eq!((status, body.as_str()), (202, ""), "nothing is answered to a cancelled request");

    let body = request(9, "tools/call", json!({"name": "slow"})).to_string();
    let host = server.url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    let text = format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\nmcp-session-id: {session}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream, text.as_bytes()).unwrap();
    server.until("the second call begins", |d| d.began.load(Ordering::SeqCst) == 2);
    drop(stream);
    server.until("the second call ends by itself", |d| d.ended.load(Ordering::SeqCst) == 1);
    assert_eq!(server.double.cancelled.load(Ordering::SeqCst), 1);
}

#[test]
fn progress_streams_in_a_session_too() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-06-18");
    let body =
        request(5, "tools/call", json!({"name": "progress", "_meta": {"progressToken": 11}})).to_string();
    let mut stream = Streaming::open(&server.url, "POST", &[("mcp-session-id", &session)], &body);
    let events: Vec<Value> = std::iter::from_fn(|| stream.event()).collect();
    let steps: Vec<Value> = events.iter().filter_map(|e| e["params"].get("progress").cloned()).collect();
    assert_eq!(steps, [json!(0), json!(50), json!(100)]);
    assert_eq!(events.last().unwrap()["result"]["content"][0]["text"], "progress is done");
}

#[test]
fn a_change_goes_to_the_newest_stream_and_is_not_missed_between_two() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-11-25");
    let open = || Streaming::open(&server.url, "GET", &[("mcp-session-id", &session)], "");
    let (mut old, mut new) = (open(), open());
    assert_eq!((old.status, new.status), (200, 200));
    // Both are polled before the change, so that the second is known to be the newest.
    assert!(old.is_silent() && new.is_silent());
    server.double.add("one");
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": {}});
    assert_eq!(new.event().unwrap(), changed);
    assert!(old.is_silent());
    drop((old, new));
    server.double.add("two");
    assert_eq!(open().event().unwrap(), changed, "it is told when the client comes back");
    let ended = http(&server.url, "DELETE", "/mcp", &[("mcp-session-id", &session)], "").unwrap();
    assert_eq!(ended.0, 204);
}

#[test]
fn the_end_of_a_session_ends_its_stream() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-11-25");
    let mut stream = Streaming::open(&server.url, "GET", &[("mcp-session-id", &session)], "");
    http(&server.url, "DELETE", "/mcp", &[("mcp-session-id", &session)], "").unwrap();
    assert!(stream.event().is_none());
}
