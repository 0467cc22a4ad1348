//! Callers by JWT, on real sockets: an issuer of our own whose keys are rotated in the middle, challenges and
//! metadata, and that the token ends here.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::check::run;
use crate::support::{TestHome, TestServer, http, rpc};

/// A server that answers every request with what `answer` says now, and keeps the requests.
struct Fixture {
    url: String,
    answer: Arc<Mutex<String>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn start(answer: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(answer.to_string()));
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (told, kept) = (Arc::clone(&answer), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                    head.push(byte[0]);
                }
                kept.lock().unwrap().push(String::from_utf8_lossy(&head).to_lowercase());
                let body = told.lock().unwrap().clone();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(answer.as_bytes()).ok();
            }
        });
        Self { url, answer, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

struct Issuer(Ed25519KeyPair, &'static str);

impl Issuer {
    fn new(id: &'static str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap(), id)
    }

    fn jwks(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": self.1, "x": x}]})
    }

    fn token(&self, subject: &str, scope: &str, more: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({"iss": "https://login", "aud": "docent", "sub": subject, "exp": now + 300, "scope": scope});
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let part = |v: &Value| URL_SAFE_NO_PAD.encode(v.to_string());
        let message = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": self.1})), part(&claims));
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(self.0.sign(message.as_bytes())))
    }
}

fn home(keys: &str, upstream: &str, more: &str) -> TestHome {
    let main = format!(
        "[auth]\nmode = \"jwt\"\nissuer = \"https://login\"\naudience = \"docent\"\n{keys}\nscopes_supported = [\"u:use\", \"u:deploy\"]\n\
         agent_claim = \"agent\"\n[upstreams]\nenabled = [\"u\"]\n{more}"
    );
    let pack = format!(
        "kind = \"http\"\nbase_url = \"{upstream}\"\n[auth]\nheader = {{ X-Own = \"${{env:PATH}}\" }}\n\
         [[tool]]\nid = \"read\"\ndescription = \"Reads.\"\nrequest = {{ method = \"GET\", path = \"/read\" }}\nannotations = {{ read_only = true }}\n\
         [[tool]]\nid = \"deploy\"\ndescription = \"Deploys.\"\nrequest = {{ method = \"GET\", path = \"/deploy\" }}\n"
    );
    let policy = "fn rules(p) {\n  p.allow().upstream(\"u\").scopes([\"u:use\"]);\n  p.challenge([\"u:deploy\"]).tool(\"u.deploy\");\n}\n";
    TestHome::with(&[("docent.toml", &main), ("scripts/u/upstream.toml", &pack), ("policies/p.rhai", policy)])
}

fn send(url: &str, token: &str, method: &str, params: Value) -> (u16, String, Value) {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let authorization = format!("Bearer {token}");
    let mut headers = vec![
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("authorization", &authorization),
    ];
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    rpc(url, &headers, &json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
}

fn tools(url: &str, token: &str) -> Vec<String> {
    let (status, head, answer) = send(url, token, "tools/list", json!({}));
    assert_eq!(status, 200, "{head}\n{answer}");
    let names = answer["result"]["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap());
    names.filter(|n| n.starts_with("u_")).map(str::to_owned).collect()
}

#[test]
fn keys_are_rotated_in_the_middle_and_the_token_ends_here() {
    let (first, second) = (Issuer::new("1"), Issuer::new("2"));
    let (keys, upstream) = (Fixture::start(&first.jwks()), Fixture::start(&json!({"ok": true})));
    let home = home(&format!("jwks_url = \"{}/jwks\"", keys.url), &upstream.url, "");
    let server = TestServer::start(home.path(), &[]);
    let token = first.token("alice", "u:use", &json!({}));
    assert_eq!(tools(&server.url, &token), ["u_deploy", "u_read"]);
    let (status, _, answer) =
        send(&server.url, &token, "tools/call", json!({"name": "u_read", "arguments": {}}));
    assert!(status == 200 && answer["result"]["isError"] == false, "{answer}");
    // What went upstream has docent's own credentials and nothing of the caller's.
    let sent = upstream.requests();
    assert!(sent.len() == 1 && sent[0].contains("x-own:") && !sent[0].contains("authorization"), "{sent:?}");
    assert!(!sent[0].contains(&token.to_lowercase()));
    // A key that came in the middle; docent waits ten seconds between two readings, so the server starts anew here.
    *keys.answer.lock().unwrap() = second.jwks().to_string();
    drop(server);
    let server = TestServer::start(home.path(), &[]);
    assert_eq!(tools(&server.url, &second.token("alice", "u:use", &json!({}))).len(), 2);
    let (status, head, _) = send(&server.url, &token, "tools/list", json!({}));
    assert!(
        status == 401 && head.contains("error=\"invalid_token\"") && head.contains("error_description"),
        "{head}"
    );
    assert!(keys.requests().iter().all(|r| r.starts_with("get /jwks ") && !r.contains("authorization")));
    assert!(!server.log().contains(&token));
}

#[test]
fn challenges_name_the_metadata_and_the_metadata_names_the_issuer() {
    let issuer = Issuer::new("1");
    let upstream = Fixture::start(&json!({"ok": true}));
    let home = home("jwks_file = \"jwks.json\"", &upstream.url, "");
    home.write("jwks.json", &issuer.jwks().to_string());
    let server = TestServer::start(home.path(), &[]);
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let (status, _, body) = http(&server.url, "GET", path, &[], "").unwrap();
        let told: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 200);
        assert_eq!(told["resource"], format!("{}/mcp", server.url));
        assert_eq!(told["authorization_servers"], json!(["https://login"]));
        assert_eq!(told["scopes_supported"], json!(["u:deploy", "u:use"]));
        assert_eq!(told["bearer_methods_supported"], json!(["header"]));
    }
    let metadata = format!("resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"", server.url);
    let (status, head, _) =
        http(&server.url, "POST", "/mcp", &[("content-type", "application/json")], "{}").unwrap();
    assert!(status == 401 && head.contains(&metadata) && !head.contains("error="), "{head}");
    let token = issuer.token("alice", "u:use", &json!({}));
    let (status, head, _) =
        send(&server.url, &token, "tools/call", json!({"name": "u_deploy", "arguments": {}}));
    assert_eq!(status, 403);
    assert!(
        head.contains("error=\"insufficient_scope\", scope=\"u:deploy\"") && head.contains(&metadata),
        "{head}"
    );
    let wider = issuer.token("alice", "u:use u:deploy", &json!({}));
    let (status, _, answer) =
        send(&server.url, &wider, "tools/call", json!({"name": "u_deploy", "arguments": {}}));
    assert!(status == 200 && answer["result"]["isError"] == false, "{answer}");
    // A token in the address is refused wherever it is sent.
    for path in ["/mcp?access_token=x", "/api/v1/search?q=a&access_token=x", "/healthz?%61ccess_token=x"] {
        let (status, _, body) = http(&server.url, "GET", path, &[], "").unwrap();
        assert!(status == 400 && body.contains("Authorization header"), "{path}: {status} {body}");
    }
}

#[test]
fn rights_are_those_of_the_agent_the_user_and_the_token_together() {
    let issuer = Issuer::new("1");
    let upstream = Fixture::start(&json!({"ok": true}));
    let more = "[callers.bob]\nscopes = [\"other\"]\n[agents.reader]\ndescription = \"Reads.\"\ncapabilities = [\"read\"]\ntools = [\"u.read\"]\n";
    let home = home("jwks_file = \"jwks.json\"", &upstream.url, more);
    home.write("jwks.json", &issuer.jwks().to_string());
    let server = TestServer::start(home.path(), &[]);
    let list =
        |subject: &str, scope: &str, more: Value| tools(&server.url, &issuer.token(subject, scope, &more));
    assert_eq!(list("alice", "u:use", json!({})), ["u_deploy", "u_read"]);
    // `u_deploy` asks for a scope, which would not be enough: nobody is sent for it.
    let none: [&str; 0] = [];
    assert_eq!(list("alice", "other", json!({})), none, "the token does not have it");
    assert_eq!(list("bob", "u:use other", json!({})), none, "the user does not have it");
    assert_eq!(list("alice", "u:use", json!({"agent": "reader"})), ["u_read"], "the agent does not have it");
    let token = issuer.token("alice", "u:use", &json!({"agent": "reader"}));
    let hidden = send(&server.url, &token, "tools/call", json!({"name": "u_deploy", "arguments": {}}));
    let absent = send(&server.url, &token, "tools/call", json!({"name": "u_deplox", "arguments": {}}));
    assert_eq!(hidden.2.to_string().replace("deploy", "deplox"), absent.2.to_string());
    let (status, head, _) = send(
        &server.url,
        &issuer.token("alice", "u:use", &json!({"agent": "nobody"})),
        "tools/list",
        json!({}),
    );
    assert!(status == 401 && head.contains("an agent that this server does not have"), "{head}");
    let (code, out, _) = run(home.path(), &["policy", "explain", "u.read", "--as", "bob", "--json"]);
    assert!(code == 0 && out.contains("\"decision\": \"deny\""), "{out}");
}
