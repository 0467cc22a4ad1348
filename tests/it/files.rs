//! Files over real sockets: uploaded in every way, read in parts, given to programs, made by them; another
//! caller's file is an unknown file everywhere.

use std::io::{Read, Write};

use docent::auth::TokenHash;
use serde_json::{Value, json};

use crate::support::{TestHome, TestServer, http, rpc};
use crate::wire_double::{request, with_meta};

const PACK: &str = r#"
kind = "command"
[[tool]]
id = "count"
description = "Counts the bytes of a file."
annotations = { read_only = true }
paths = ["file"]
input_schema = { type = "object", required = ["file"], additionalProperties = false, properties = { file = { type = "string", maxLength = 20 } } }
run = ["wc", "-c", "{file}"]
[[tool]]
id = "make"
description = "Makes two files."
output = "files"
run = ["sh", "-c", "printf hello > \"$0/a b.txt\"; printf '\\377\\376' > \"$0/raw.bin\"; ln -s /etc/hostname \"$0/out\"; mkdir -p \"$0/1/2/3/4/5\"; echo done", "{output_dir}"]
"#;

fn home() -> TestHome {
    let mut main = "[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"sh\"]\n[files]\nmax_bytes = 2000\nquota_files = 20\n".to_owned();
    for name in ["alice", "bob"] {
        main += &format!("[callers.{name}]\ntoken_hash = \"{}\"\n", TokenHash::of(&format!("t-{name}")));
    }
    TestHome::with(&[
        ("docent.toml", &main),
        ("policies/p.rhai", "fn rules(p) { p.allow(); }"),
        ("scripts/sh/upstream.toml", PACK),
    ])
}

fn ask(server: &TestServer, who: &str, method: &str, params: Value) -> Value {
    let token = format!("Bearer t-{who}");
    let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default().to_owned();
    let mut headers = vec![
        ("authorization", token.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    if matches!(method, "tools/call" | "resources/read") {
        headers.push(("mcp-name", &name));
    }
    rpc(&server.url, &headers, &request(5, method, with_meta(params))).2
}

#[expect(clippy::needless_pass_by_value, reason = "so that `json!` can stand in the call")]
fn call(server: &TestServer, who: &str, tool: &str, arguments: Value) -> Value {
    ask(server, who, "tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
}

fn api(
    server: &TestServer,
    who: &str,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let token = format!("Bearer t-{who}");
    let mut headers = vec![("authorization", token.as_str())];
    headers.extend(more);
    http(&server.url, method, path, &headers, body).unwrap()
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"))
}

#[test]
fn a_file_goes_in_raw_or_as_a_form_and_comes_out_in_parts() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let (status, _, body) = api(
        &server,
        "alice",
        "POST",
        "/api/v1/files?name=../notes.txt",
        &[("content-type", "text/plain")],
        "0123456789",
    );
    let file = parsed(&body);
    assert_eq!(
        (status, &file["name"], &file["mime"], &file["size"]),
        (201, &json!("notes.txt"), &json!("text/plain"), &json!(10))
    );
    let id = file["file_id"].as_str().unwrap();
    assert_eq!(file["uri"], format!("docent://files/{id}"));
    let path = format!("/api/v1/files/{id}/content");
    assert_eq!(file["url"], path);
    let (status, head, body) = api(&server, "alice", "GET", &path, &[], "");
    assert_eq!((status, body.as_str()), (200, "0123456789"));
    for header in [
        "content-type: text/plain",
        "content-disposition: attachment; filename=\"notes.txt\"",
        "x-content-type-options: nosniff",
        "content-security-policy: default-src 'none'; sandbox",
        "accept-ranges: bytes",
    ] {
        assert!(head.contains(header), "{header} is not in {head}");
    }
    let (status, head, body) = api(&server, "alice", "GET", &path, &[("range", "bytes=2-4")], "");
    assert_eq!((status, body.as_str()), (206, "234"));
    assert!(head.contains("content-range: bytes 2-4/10") && head.contains("content-length: 3"), "{head}");
    let (status, head, _) = api(&server, "alice", "GET", &path, &[("range", "bytes=20-")], "");
    assert!(status == 416 && head.contains("content-range: bytes */10"), "{head}");
    let etag = head.lines().find_map(|l| l.strip_prefix("etag: ")).unwrap().trim().to_owned();
    assert_eq!(api(&server, "alice", "GET", &path, &[("if-none-match", &etag)], "").0, 304);
    let other = [("range", "bytes=2-4"), ("if-range", "\"other\"")];
    assert_eq!(api(&server, "alice", "GET", &path, &other, "").2, "0123456789");
    let form = "--X\r\ncontent-disposition: form-data; name=\"note\"\r\n\r\nno file\r\n\
                --X\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a.csv\"\r\ncontent-type: text/csv\r\n\r\n1,2\r\n\
                --X\r\ncontent-disposition: form-data; name=\"g\"; filename=\"b.png\"\r\n\r\nPNG\r\n--X--\r\n";
    let kind = [("content-type", "multipart/form-data; boundary=X")];
    let (status, _, body) = api(&server, "alice", "POST", "/api/v1/files", &kind, form);
    let made = parsed(&body);
    assert_eq!((status, made["files"].as_array().unwrap().len()), (201, 2));
    assert_eq!(
        (&made["files"][1]["name"], &made["files"][1]["mime"]),
        (&json!("b.png"), &json!("image/png"))
    );
    let listed = parsed(&api(&server, "alice", "GET", "/api/v1/files", &[], "").2);
    assert_eq!(listed["files"].as_array().unwrap().len(), 3);
    assert_eq!(api(&server, "alice", "DELETE", &format!("/api/v1/files/{id}"), &[], "").0, 204);
    assert_eq!(api(&server, "alice", "GET", &path, &[], "").0, 404);
}

#[test]
fn what_is_too_large_unnamed_or_nobodys_is_refused() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let large = "x".repeat(2_001);
    let (status, _, body) = api(&server, "alice", "POST", "/api/v1/files", &[], &large);
    assert_eq!((status, &parsed(&body)["error"]["code"]), (413, &json!("INVALID_ARGUMENT")));
    // Without a length only the stream itself can tell.
    let host = server.url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(stream, "POST /api/v1/files HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer t-alice\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n", large.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(http(&server.url, "POST", "/api/v1/files", &[], "x").unwrap().0, 401);
    let kind = [("content-type", "multipart/form-data; boundary=X")];
    assert_eq!(api(&server, "alice", "POST", "/api/v1/files", &kind, "--X--\r\n").0, 400);
    assert_eq!(api(&server, "alice", "POST", "/api/v1/files", &kind, "nothing of a form").0, 400);
    assert!(
        parsed(&api(&server, "alice", "GET", "/api/v1/files", &[], "").2)["files"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_form_is_kept_whole_or_not_at_all_and_names_and_types_are_what_was_meant() {
    let home = home();
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write("docent.toml", &main.replace("max_bytes = 2000", "max_bytes = 2000\nquota_bytes = 4500"));
    let server = TestServer::start(home.path(), &[]);
    let post = |path: &str, headers: &[(&str, &str)], body: &str| {
        let (status, _, body) = api(&server, "alice", "POST", path, headers, body);
        (status, parsed(&body))
    };
    let listed = || {
        parsed(&api(&server, "alice", "GET", "/api/v1/files", &[], "").2)["files"].as_array().unwrap().len()
    };
    let part = |name: &str, body: &str| {
        format!("--X\r\ncontent-disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n{body}\r\n")
    };
    let kind = [("content-type", "multipart/form-data; boundary=X")];
    let large = "x".repeat(1_900);
    // Each fits, all together do not: none is kept, and the sender is told of room, not of a part that went in.
    let form = format!("{}{}{}--X--\r\n", part("a", &large), part("b", &large), part("c", &large));
    let (status, refused) = post("/api/v1/files", &kind, &form);
    assert_eq!((status, listed()), (507, 0), "{refused}");
    // One that breaks off in the middle brings nothing either; a field in which no file was chosen is none.
    assert_eq!((post("/api/v1/files", &kind, &part("a", "1")).0, listed()), (400, 0));
    let (status, made) =
        post("/api/v1/files", &kind, &format!("{}{}--X--\r\n", part("", ""), part("a.txt", "1")));
    assert_eq!((status, &made["name"], listed()), (201, &json!("a.txt"), 1), "{made}");
    // The type that clients put on bytes they know nothing of says nothing: the name does.
    let unknown = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(post("/api/v1/files?name=plan.pdf", &unknown, "%PDF").1["mime"], "application/pdf");
    let named = [("content-disposition", "attachment; filename=\"a;b \\\"c\\\".txt\"; size=1")];
    assert_eq!(post("/api/v1/files", &named, "1").1["name"], "a;b _c_.txt");
    let id = made["file_id"].as_str().unwrap();
    let path = format!("/api/v1/files/{id}/content");
    let etag = format!("W/\"{}\"", made["blake3"].as_str().unwrap());
    assert_eq!(api(&server, "alice", "GET", &path, &[("if-none-match", &etag)], "").0, 304);
    assert_eq!(api(&server, "alice", "GET", "/api/v1/files?from=abc", &[], "").0, 400);
}

/// An HTTP server that keeps what it is sent and answers with bytes.
fn sink() -> (String, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let log = std::sync::Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut bytes, mut buffer) = (Vec::new(), [0u8; 4096]);
            let text = loop {
                let n = stream.read(&mut buffer).unwrap_or(0);
                bytes.extend_from_slice(&buffer[..n]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let length = text
                    .to_lowercase()
                    .split("content-length: ")
                    .nth(1)
                    .and_then(|rest| rest.lines().next()?.parse::<usize>().ok());
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
                if n == 0 || body.is_some() && body >= length {
                    break text;
                }
            };
            log.lock().unwrap().push(text);
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/pdf\r\nconnection: close\r\ncontent-length: 5\r\n\r\n%PDF\u{1}").ok();
        }
    });
    (url, seen)
}

#[test]
fn a_request_by_hand_sends_a_file_as_bytes_and_its_answer_becomes_one() {
    let (url, seen) = sink();
    let home = home();
    let schema = "input_schema = { type = \"object\", properties = { file = { type = \"string\" }, note = { type = \"string\" } } }";
    let pack = format!(
        "kind = \"http\"\nbase_url = \"{url}\"\n\
         [[tool]]\nid = \"form\"\ndescription = \"Sends a form.\"\n{schema}\n\
         request = {{ method = \"POST\", path = \"/form\", multipart = {{ upload = \"{{file}}\", note = \"{{note}}\" }} }}\n\
         [[tool]]\nid = \"put\"\ndescription = \"Sends bytes.\"\n{schema}\n\
         request = {{ method = \"PUT\", path = \"/raw\", raw = \"file\" }}\n"
    );
    home.write("scripts/out/upstream.toml", &pack);
    let main = std::fs::read_to_string(home.path().join("docent.toml")).unwrap();
    home.write("docent.toml", &main.replace("[\"sh\"]", "[\"sh\", \"out\"]"));
    let server = TestServer::start(home.path(), &[]);
    let kind = [("content-type", "text/csv")];
    let file = parsed(&api(&server, "alice", "POST", "/api/v1/files?name=a.csv", &kind, "1,2").2);
    let reference = json!({"$file": file["file_id"]});
    let sent = call(&server, "alice", "out_form", json!({"file": reference, "note": "hi"}));
    assert_eq!(sent["isError"], false, "{sent}");
    let form = seen.lock().unwrap().pop().unwrap();
    for part in [
        "name=\"upload\"; filename=\"a.csv\"",
        "text/csv",
        "\r\n\r\n1,2\r\n",
        "name=\"note\"",
        "\r\n\r\nhi\r\n",
    ] {
        assert!(form.contains(part), "{part} is not in {form}");
    }
    let artifact = &sent["structuredContent"]["artifacts"][0];
    assert_eq!((&artifact["mime"], &artifact["size"]), (&json!("application/pdf"), &json!(5)), "{sent}");
    assert!(sent["structuredContent"]["text"].is_null() && sent["structuredContent"]["data"].is_null());
    call(&server, "alice", "out_put", json!({"file": reference}));
    let raw = seen.lock().unwrap().pop().unwrap();
    assert!(
        raw.starts_with("PUT /raw ") && raw.contains("text/csv") && raw.ends_with("\r\n\r\n1,2"),
        "{raw}"
    );
    call(&server, "alice", "out_put", json!({"file": "plain"}));
    let raw = seen.lock().unwrap().pop().unwrap();
    assert!(raw.contains("text/plain; charset=utf-8") && raw.ends_with("\r\n\r\nplain"), "{raw}");
}

#[test]
fn another_callers_file_is_an_unknown_file() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let file = parsed(&api(&server, "alice", "POST", "/api/v1/files", &[], "secret").2);
    let id = file["file_id"].as_str().unwrap().to_owned();
    let absent = "0".repeat(32);
    let plain = |text: String, id: &str| text.replace(id, "ID");
    for (method, path) in [("GET", ""), ("GET", "/content"), ("DELETE", "")] {
        let answer = |id: &str| api(&server, "bob", method, &format!("/api/v1/files/{id}{path}"), &[], "");
        let (theirs, none) = (answer(&id), answer(&absent));
        assert_eq!((theirs.0, plain(theirs.2, &id)), (404, plain(none.2, &absent)), "{method} {path}");
    }
    let read = |id: &str| {
        ask(&server, "bob", "resources/read", json!({"uri": format!("docent://files/{id}")})).to_string()
    };
    assert_eq!(plain(read(&id), &id), plain(read(&absent), &absent));
    let run = |id: &str| {
        let mut result = call(&server, "bob", "sh_count", json!({"file": {"$file": id}}));
        result["structuredContent"]["correlation_id"].take();
        assert_eq!(result["structuredContent"]["error"]["code"], "NOT_FOUND", "{result}");
        result["structuredContent"].to_string()
    };
    assert_eq!(run(&id), run(&absent));
    let listed = call(&server, "bob", "docent_list_files", json!({}));
    assert_eq!(listed["structuredContent"]["files"], json!([]));
    assert!(
        ask(&server, "alice", "resources/read", json!({"uri": format!("docent://files/{id}")}))["result"]
            .is_object()
    );
}

#[test]
fn a_program_gets_a_path_and_its_files_become_the_callers() {
    let home = home();
    let server = TestServer::start(home.path(), &[]);
    let up = call(&server, "alice", "docent_upload_file", json!({"name": "five.txt", "content": "aGVsbG8"}));
    let id = up["structuredContent"]["file_id"].as_str().unwrap_or_else(|| panic!("{up}")).to_owned();
    // The schema allows 20 characters, the path has more: what stands there is docent's.
    let counted = call(&server, "alice", "sh_count", json!({"file": {"$file": id}}));
    assert!(counted["content"][0]["text"].as_str().unwrap().contains('5'), "{counted}");
    let outside = call(&server, "alice", "sh_count", json!({"file": "/etc/passwd"}));
    assert_eq!(outside["isError"], true, "a path of the caller's own still stays below the pack");
    for bad in [json!({"$file": 7}), json!({"$file": id, "more": 1})] {
        let refused = call(&server, "alice", "sh_count", json!({"file": bad}));
        assert_eq!(refused["structuredContent"]["error"]["code"], "INVALID_ARGUMENT", "{refused}");
    }
    let made = call(&server, "alice", "sh_make", json!({}));
    let plain = &made["structuredContent"];
    assert_eq!(made["content"][0]["text"], plain.to_string(), "the halves are one, byte for byte");
    let members: Vec<&String> = plain.as_object().unwrap().keys().collect();
    assert_eq!(members, ["text", "text_mime", "data", "artifacts", "warnings", "duration_ms"], "{plain}");
    assert_eq!((&plain["text"], &plain["text_mime"]), (&json!("done\n"), &json!("text/plain")));
    // What is no file of the run is not followed, and not passed over in silence.
    let warned = plain["warnings"].to_string();
    assert!(warned.contains("`out` (") && warned.contains("no plain file"), "{warned}");
    assert!(warned.contains("`1/2/3/4/5` (") && warned.contains("too deep"), "{warned}");
    let artifact = &plain["artifacts"][0];
    assert_eq!(
        (&artifact["name"], &artifact["mime"], &artifact["size"]),
        (&json!("a b.txt"), &json!("text/plain"), &json!(5))
    );
    assert_eq!(artifact["url"], format!("/api/v1/files/{}/content", artifact["id"].as_str().unwrap()));
    assert_eq!(api(&server, "alice", "GET", artifact["url"].as_str().unwrap(), &[], "").2, "hello");
    let blocks = made["content"].as_array().unwrap();
    let links: Vec<&Value> = blocks.iter().filter(|b| b["type"] == "resource_link").collect();
    let names: Vec<&str> = links.iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a b.txt", "raw.bin"], "{made}");
    let text = ask(&server, "alice", "resources/read", json!({"uri": links[0]["uri"]}));
    assert_eq!(text["result"]["contents"][0]["text"], "hello");
    let raw = ask(&server, "alice", "resources/read", json!({"uri": links[1]["uri"]}));
    assert_eq!(raw["result"]["contents"][0]["blob"], "//4=");
    assert!(!made.to_string().contains("file:///"), "no address that nobody can read: {made}");
    let listed = call(&server, "alice", "docent_list_files", json!({"limit": 2}));
    let listed = &listed["structuredContent"];
    assert_eq!((&listed["total"], listed["files"].as_array().unwrap().len()), (&json!(3), 2));
    let rest = call(&server, "alice", "docent_list_files", json!({"cursor": listed["next_cursor"]}));
    assert_eq!(rest["structuredContent"]["files"][0]["origin"], "sh.make");
    let resources = ask(&server, "alice", "resources/list", json!({}));
    assert_eq!(resources["result"]["resources"].as_array().unwrap().len(), 3);
    let reference = json!({"type": "ref/resource", "uri": "docent://files/{id}"});
    let asked = json!({"ref": reference, "argument": {"name": "id", "value": "five"}});
    let found = ask(&server, "alice", "completion/complete", asked);
    assert_eq!(found["result"]["completion"]["values"], json!([id]));
}
