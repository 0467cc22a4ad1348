//! What holds before a message is read: Host and Origin on every path and method, sizes, credentials, JSON.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use docent::auth::Authenticator;
use docent::limits::REQUEST_BODY_BYTES_MAX;
use docent::transport::Boundary;
use serde_json::{Value, json};

use crate::support::{TestServer, http, root, rpc};
use crate::wire_double::{Streaming, WireServer, header, request};

const PATHS: [&str; 7] = [
    "/mcp",
    "/healthz",
    "/readyz",
    "/metrics",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/nothing/here",
];

#[test]
fn host_and_origin_hold_on_every_path_and_method() {
    let server = WireServer::open();
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    for path in PATHS {
        for method in ["GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT", "PATCH"] {
            let status = |headers: &[(&str, &str)]| http(&server.url, method, path, headers, "").unwrap().0;
            for host in [format!("localhost:{port}"), "LOCALHOST.".to_owned(), format!("[::1]:{port}")] {
                assert_ne!(status(&[("host", &host)]), 403, "{method} {path} {host}");
            }
            for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
                assert_eq!(status(&[("host", host)]), 403, "{method} {path} {host}");
            }
            for origin in ["null", "https://evil.example", "http://localhost.evil.example"] {
                assert_eq!(status(&[("origin", origin)]), 403, "{method} {path} {origin}");
            }
            for origin in ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:80"] {
                assert_ne!(status(&[("origin", origin)]), 403, "{method} {path} {origin}");
            }
        }
    }
    let (boundary, bad) =
        Boundary::new(&["docent.example".to_owned()], &["https://app.example".to_owned()], None);
    assert!(bad.is_empty());
    let server = WireServer::start(Authenticator::open(Vec::new()), boundary);
    let health = |headers: &[(&str, &str)]| http(&server.url, "GET", "/healthz", headers, "").unwrap().0;
    assert_eq!(health(&[("host", "docent.example"), ("origin", "https://app.example")]), 200);
    assert_eq!(health(&[("host", "docent.example.")]), 200);
    assert_eq!(health(&[("host", "app.example")]), 403);
}

#[test]
fn a_probe_without_an_operators_token_learns_no_names() {
    let server = WireServer::with_tokens();
    for headers in [&[][..], &[("authorization", "Bearer t-bob")], &[("authorization", "Bearer wrong")]] {
        let (status, _, body) = http(&server.url, "GET", "/readyz", headers, "").unwrap();
        let ready: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &ready["ready"]), (200, &json!(true)), "{body}");
        assert!(ready.get("upstreams").is_none() && ready.get("diagnostics").is_none(), "{body}");
    }
    let open = WireServer::open();
    let (_, _, body) = http(&open.url, "GET", "/readyz", &[], "").unwrap();
    assert!(body.contains("\"upstreams\""), "{body}");
}

#[test]
fn the_small_paths_answer() {
    let server = WireServer::open();
    let get = |path: &str| http(&server.url, "GET", path, &[], "").unwrap();
    assert_eq!(get("/healthz").0, 200);
    let (status, _, body) = get("/readyz");
    let ready: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &ready["ready"]), (200, &json!(true)));
    let host = server.url.trim_start_matches("http://");
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let metadata: Value = serde_json::from_str(&get(path).2).unwrap();
        assert_eq!(
            metadata,
            json!({
                "resource": format!("http://{host}/mcp"),
                "authorization_servers": ["https://login.example"],
                "scopes_supported": ["ops:read"],
                "bearer_methods_supported": ["header"],
            })
        );
    }
    server.stateless(&[], "tools/call", json!({"name": "echo"}));
    server.stateless(&[], "tools/call", json!({"name": "fail"}));
    server.session(&[], "2025-11-25");
    let (_, _, metrics) = get("/metrics");
    for line in [
        "docent_tool_calls_total{outcome=\"completed\"} 1",
        "docent_tool_calls_total{outcome=\"failed\"} 1",
        "docent_http_requests_total{path=\"/mcp\",status=\"2xx\"} 3",
        "docent_sessions 1",
        "docent_generation 1",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    assert_eq!(get("/nothing").0, 404);
}

#[test]
fn a_page_of_tools_is_compressed_for_those_who_ask() {
    let server = TestServer::start(&root(), &[]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}}}});
    let ask = |more: &[(&str, &str)]| {
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
        headers.extend_from_slice(more);
        rpc(&server.url, &headers, &list)
    };
    let (status, head, plain) = ask(&[]);
    assert_eq!((status, header(&head, "content-encoding")), (200, None));
    assert!(plain["result"]["tools"].as_array().unwrap().len() > 30);
    let (status, head, _) = ask(&[("accept-encoding", "deflate, gzip")]);
    assert_eq!((status, header(&head, "content-encoding").as_deref()), (200, Some("gzip")));
    let length = |head: &str| header(head, "content-length").unwrap().parse::<usize>().unwrap();
    assert!(length(&head) * 3 < plain.to_string().len(), "{head}");
}

#[test]
fn a_missing_or_wrong_token_is_told_where_to_get_one() {
    let server = WireServer::with_tokens();
    let host = server.url.trim_start_matches("http://");
    let metadata = format!("resource_metadata=\"http://{host}/.well-known/oauth-protected-resource/mcp\"");
    let post = |headers: &[(&str, &str)]| {
        let (status, head, _) = http(&server.url, "POST", "/mcp", headers, "{}").unwrap();
        (status, header(&head, "www-authenticate"))
    };
    assert_eq!(post(&[]), (401, Some(format!("bearer {metadata}"))));
    assert_eq!(
        post(&[("authorization", "Bearer wrong")]),
        (401, Some(format!("bearer error=\"invalid_token\", {metadata}")))
    );
    assert_eq!(post(&[("authorization", "Basic dDph")]).0, 400);
    let twice = [("authorization", "Bearer t-alice"), ("authorization", "Bearer t-bob")];
    assert_eq!(post(&twice).0, 400, "two tokens are no token");
    assert_eq!(http(&server.url, "POST", "/mcp?access_token=t-alice", &[], "{}").unwrap().0, 400);
    for method in ["GET", "DELETE", "PUT"] {
        assert_eq!(http(&server.url, method, "/mcp", &[], "").unwrap().0, 401, "{method}");
    }
    let (status, _, body) =
        server.stateless(&[("authorization", "bearer t-bob")], "tools/call", json!({"name": "echo"}));
    assert_eq!((status, &body["result"]["structuredContent"]["subject"]), (200, &json!("bob")));
    assert_eq!(http(&server.url, "GET", "/healthz", &[], "").unwrap().0, 200);
}

#[test]
fn what_is_no_json_rpc_gets_an_error_and_the_server_goes_on() {
    let server = WireServer::open();
    let post = |body: &str| {
        let headers = [("content-type", "application/json; charset=utf-8")];
        let (status, head, body) = http(&server.url, "POST", "/mcp", &headers, body).unwrap();
        assert_eq!(header(&head, "content-type").as_deref(), Some("application/json"));
        let body: Value = serde_json::from_str(&body).unwrap();
        (status, body["error"]["code"].as_i64().unwrap(), body.get("id").cloned())
    };
    for body in
        ["", "{", "{\"jsonrpc\":\"2.0\"", "hello", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}"]
    {
        assert_eq!(post(body), (400, -32700, None), "{body}");
    }
    for body in ["[]", "1", "{}", "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}"] {
        assert_eq!(post(body), (400, -32600, None), "{body}");
    }
    assert_eq!(
        post("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\",\"params\":[]}"),
        (400, -32600, Some(json!("x")))
    );
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"a\":{}{}}}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert!(post(&deep).0 >= 400, "no depth brings the server down");
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        assert_eq!(http(&server.url, "POST", "/mcp", &[("content-type", kind)], "{}").unwrap().0, 415);
    }
    assert_eq!(server.stateless(&[], "tools/list", json!({})).0, 200);
}

#[test]
fn deep_arguments_are_refused_by_depth() {
    let server = WireServer::open();
    let deep = |n: usize| {
        let text = format!("{}1{}", "[".repeat(n), "]".repeat(n));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let call = |n| server.stateless(&[], "tools/call", json!({"name": "echo", "arguments": {"a": deep(n)}}));
    assert_eq!(call(90).2["result"]["isError"], false);
    assert_eq!(call(110).2["error"]["code"], -32602);
}

#[test]
fn a_body_of_20_mib_is_refused_and_its_sender_sees_why() {
    let server = WireServer::open();
    let body = "x".repeat(20 * 1024 * 1024);
    let (status, _, answer) =
        http(&server.url, "POST", "/mcp", &[("content-type", "application/json")], &body).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, answer["error"]["code"].as_i64()), (413, Some(-32600)));
    assert!(answer["error"]["message"].as_str().unwrap().contains(&REQUEST_BODY_BYTES_MAX.to_string()));
    let expecting = [("content-type", "application/json"), ("expect", "100-continue")];
    assert_eq!(http(&server.url, "POST", "/mcp", &expecting, &body).map_or(413, |a| a.0), 413);
    assert_eq!(server.stateless(&[], "tools/list", json!({})).0, 200);
}

#[test]
fn garbage_instead_of_http_harms_nobody() {
    let server = WireServer::open();
    let host = server.url.trim_start_matches("http://").to_owned();
    let long = vec![b'A'; 100_000];
    for bytes in [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", &long] {
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.write_all(bytes).ok();
        stream.shutdown(std::net::Shutdown::Write).ok();
        stream.read_to_end(&mut Vec::new()).ok();
    }
    assert_eq!(http(&server.url, "GET", "/healthz", &[], "").unwrap().0, 200);
}

#[test]
fn a_stop_lets_running_calls_end_and_closes_streams() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-11-25");
    let mut stream = Streaming::open(&server.url, "GET", &[("mcp-session-id", &session)], "");
    let url = server.url.clone();
    let call = std::thread::spawn(move || {
        let body = request(1, "tools/call", json!({"name": "slow"})).to_string();
        http(
            &url,
            "POST",
            "/mcp",
            &[("mcp-session-id", &session), ("content-type", "application/json")],
            &body,
        )
        .unwrap()
    });
    server.until("the call begins", |d| d.began.load(std::sync::atomic::Ordering::SeqCst) == 1);
    let begun = Instant::now();
    server.shutdown.cancel();
    server.mcp.drain();
    assert!(stream.event().is_none());
    let (status, _, body) = call.join().unwrap();
    assert!(status == 200 && body.contains("slow is done"), "{status} {body}");
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert!(
        TcpStream::connect(server.url.trim_start_matches("http://")).is_err(),
        "nothing listens any more"
    );
}

#[test]
fn events_are_not_held_back_by_nagle() {
    let server = WireServer::open();
    let session = server.session(&[], "2025-06-18");
    let body =
        request(5, "tools/call", json!({"name": "progress", "_meta": {"progressToken": 11}})).to_string();
    let begun = Instant::now();
    for _ in 0..20 {
        let mut stream = Streaming::open(&server.url, "POST", &[("mcp-session-id", &session)], &body);
        while stream.event().is_some() {}
    }
    assert!(begun.elapsed() < Duration::from_millis(20 * 40), "{:?} for 20 streams", begun.elapsed());
}
