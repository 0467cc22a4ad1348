//! Docent serving the Ombi pack before a fake Ombi: its resources under the caller's rights, and no secret anywhere
//! that docent writes or answers.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::check::run;
use crate::ombi::{fake_ombi, home, set_fault};
use crate::ombi_samples::cases;
use crate::support::{TestHome, TestServer, docent, http, root, rpc};
use crate::upstream_http::serve;

/// What an upstream that is down is asked with.
const DOWN_TOKEN: &str = "down-bearer-0123456789";

/// A secret that a caller pastes into its arguments.
const GIVEN: &str = "ghp_givenBYtheCALLER0123456789abcdefgh";

struct Client<'a> {
    server: &'a TestServer,
    token: String,
}

impl Client<'_> {
    fn ask(&self, method: &str, params: &Value) -> Value {
        let name = params["name"].as_str().or(params["uri"].as_str()).unwrap_or_default();
        let bearer = format!("Bearer {}", self.token);
        let mut headers = vec![
            ("authorization", bearer.as_str()),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        if !name.is_empty() {
            headers.push(("mcp-name", name));
        }
        let mut all = params.clone();
        all["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "it", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": all});
        rpc(&self.server.url, &headers, &message).2
    }

    fn read(&self, uri: &str) -> Value {
        self.ask("resources/read", &json!({"uri": uri}))
    }

    fn call(&self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }
}

/// The text of a resource that was read.
fn text(answer: &Value) -> &str {
    answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// A home whose pack asks this Ombi, with a caller who may everything and one who may not see logs; and their tokens.
fn served(url: &str, more: &str) -> (TestHome, [String; 2]) {
    let home = home();
    let pack = home.path().join("scripts/ombi/upstream.toml");
    let toml = std::fs::read_to_string(&pack).unwrap();
    let toml = toml.replace("${env:OMBI_URL}", url).replace("${env:OMBI_API_KEY}", "${file:key.txt}");
    std::fs::write(&pack, toml).unwrap();
    home.write("key.txt", fake_ombi::KEY);
    let token = |name: &str| {
        let scopes = if name == "admin" { "admin,docent:admin" } else { name };
        let (code, out, err) = run(home.path(), &["token", "new", name, "--scopes", scopes, "--json"]);
        assert_eq!(code, 0, "{err}");
        let made: Value = serde_json::from_str(&out).unwrap();
        (made["token"].as_str().unwrap().to_owned(), made["toml"].as_str().unwrap().to_owned())
    };
    let ((admin, table_a), (user, table_u)) = (token("admin"), token("user"));
    home.write(
        "docent.toml",
        &format!(
            "[auth]\nmode = \"token\"\n[upstreams]\nenabled = [\"ombi\"]\n\
             [[allow]]\nscopes = [\"admin\"]\n\
             [[allow]]\nscopes = [\"user\"]\nread_only = true\nunless_tools = [\"ombi.read_logs\"]\n{more}\n{table_a}{table_u}"
        ),
    );
    (home, [admin, user])
}

#[tokio::test(flavor = "multi_thread")]
async fn every_resource_of_the_pack_is_read_under_the_rights_of_its_tool() {
    let replies: PathBuf = root().join("scripts/ombi/cases/replies");
    let url = serve(fake_ombi::app(&replies)).await;
    let (home, [admin, user]) = served(&url, "");
    let server = TestServer::start(home.path(), &[]);
    let admin = Client { server: &server, token: admin };
    let user = Client { server: &server, token: user };
    let templates = |client: &Client<'_>| {
        let answer = client.ask("resources/templates/list", &json!({}));
        let all = answer["result"]["resourceTemplates"].as_array().unwrap_or_else(|| panic!("{answer}"));
        all.iter()
            .map(|t| t["uriTemplate"].as_str().unwrap().to_owned())
            .filter(|t| t.starts_with("ombi:"))
            .collect::<Vec<_>>()
    };
    let (artwork, catalog) =
        ("ombi://artwork/{kind}/{media}/{namespace}/{value}", "ombi://reference/{catalog}");
    assert_eq!(templates(&admin), [artwork, "ombi://logs/{file_id}", catalog]);
    assert_eq!(templates(&user), [artwork, catalog]);
    for catalog in [
        "genres",
        "languages",
        "issue_categories",
        "claims",
        "streaming_countries",
        "features",
        "notification_agents",
    ] {
        let uri = format!("ombi://reference/{catalog}");
        let page: Value = serde_json::from_str(text(&admin.read(&uri))).unwrap();
        assert!(page["items"].as_array().is_some_and(|i| !i.is_empty()), "{catalog}: {page}");
        assert_eq!(text(&admin.read(&uri)), text(&user.read(&uri)), "{catalog}");
    }
    for (kind, media, namespace, value) in [
        ("poster", "movie", "tmdb", "910001"),
        ("background", "movie", "tmdb", "910001"),
        ("banner", "movie", "tmdb", "910001"),
        ("poster", "tv", "tvdb", "810001"),
        ("poster", "album", "musicbrainz", "00000000-0000-4000-8000-000000000001"),
    ] {
        let answer = user.read(&format!("ombi://artwork/{kind}/{media}/{namespace}/{value}"));
        let page: Value = serde_json::from_str(text(&answer)).unwrap();
        assert_eq!(page["kind"], "artwork_page", "{answer}");
    }
    let files: Value = serde_json::from_str(text(&admin.read("ombi://logs"))).unwrap();
    let id = files["files"][0]["file_id"].as_str().unwrap_or_else(|| panic!("{files}"));
    let log: Value = serde_json::from_str(text(&admin.read(&format!("ombi://logs/{id}")))).unwrap();
    assert!(log["lines"].as_array().is_some_and(|l| !l.is_empty() && l.len() <= 500), "{log}");
    // Who may not call the tool is told what is told of an address that never was.
    let absent = user.read("ombi://nothing/here").to_string();
    for uri in ["ombi://logs".to_owned(), format!("ombi://logs/{id}")] {
        let hidden = user.read(&uri).to_string();
        assert_eq!(hidden.replace(&uri, ""), absent.replace("ombi://nothing/here", ""));
    }
    let (wrong, list) = (admin.read("ombi://reference/passwords"), admin.ask("resources/list", &json!({})));
    assert!(wrong["error"].is_object(), "a catalogue that there is not: {wrong}");
    assert!(list.to_string().contains("ombi://logs"), "{list}");
}

/// Every file below a folder with its bytes.
fn files(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for path in std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()) {
        if path.is_dir() {
            files(&path, found);
        } else if let Ok(bytes) = std::fs::read(&path) {
            found.push((path, bytes));
        }
    }
}

fn search(what: &str, bytes: &[u8], secrets: &[&str]) {
    for secret in secrets {
        let found = bytes.windows(secret.len()).position(|w| w == secret.as_bytes());
        if let Some(at) = found {
            let near = &bytes[at.saturating_sub(200)..(at + 60).min(bytes.len())];
            panic!("`{secret}` stands in {what}: {}", String::from_utf8_lossy(near));
        }
    }
}

/// Everything that is answered to calls of every tool, under faults, as jobs and with secrets of the caller's own.
fn spoken(admin: &Client<'_>, user: &Client<'_>, url: &str) -> String {
    let mut answers = String::new();
    let mut tell = |answer: Value| answers.push_str(&answer.to_string());
    for case in cases() {
        let tool = format!("ombi_{}", case["tool"].as_str().unwrap());
        tell(admin.call(&tool, &case["args"]));
    }
    for fault in ["500", "html", "truncated", "types", "is_error", "429"] {
        set_fault(url, fault);
        tell(admin.call("ombi_read_requests", &json!({})));
        tell(admin.call("ombi_write_request_create", &json!({"media": "movie", "tmdb_id": 910_001})));
        tell(user.read("ombi://reference/genres"));
    }
    set_fault(url, "none");
    let run = |tool: &str, arguments: Value| {
        let more = json!({"tool": tool, "arguments": arguments, "wait_seconds": 0, "request_key": format!("{tool}-1")});
        admin.call("docent_run_tool", &more)
    };
    tell(run("ombi.read_users", json!({"view": "list"})));
    tell(run("ombi.read_settings", json!({"section": "radarr"})));
    tell(run("ombi.write_issue_comment", json!({"action": "add", "issue_id": 3, "comment": "hello"})));
    // A caller's own secret in an argument, one that is refused among them.
    tell(admin.call("ombi_read_search", &json!({"query": GIVEN})));
    tell(admin.call("ombi_read_search", &json!({"query": GIVEN, "unknown": GIVEN})));
    tell(user.call("ombi_write_settings", &json!({"section": GIVEN})));
    tell(admin.call(GIVEN, &json!({})));
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_anything_that_docent_writes_or_answers() {
    let replies: PathBuf = root().join("scripts/ombi/cases/replies");
    let url = serve(fake_ombi::app(&replies)).await;
    let (home, [admin_token, user_token]) = served(&url, "[telemetry]\nlog = \"trace\"\n");
    let main = home.path().join("docent.toml");
    let toml = std::fs::read_to_string(&main).unwrap().replace("[\"ombi\"]\n[[", "[\"ombi\", \"down\"]\n[[");
    std::fs::write(&main, toml).unwrap();
    home.write("down.txt", DOWN_TOKEN);
    home.write(
        "scripts/down/upstream.toml",
        "kind = \"mcp\"\nurl = \"http://127.0.0.1:1/mcp\"\n[auth]\nbearer = \"${file:down.txt}\"\n",
    );
    let server = TestServer::start(home.path(), &[]);
    let admin = Client { server: &server, token: admin_token.clone() };
    let user = Client { server: &server, token: user_token.clone() };
    let secrets = [
        fake_ombi::KEY,
        DOWN_TOKEN,
        &admin_token,
        &user_token,
        "SECRET-",
        "apikey=SECRET",
        "@example.invalid",
    ];
    let answers = spoken(&admin, &user, &url);
    search("an answer", answers.as_bytes(), &secrets);
    for path in ["/healthz", "/readyz", "/metrics", "/.well-known/oauth-protected-resource"] {
        let bearer = format!("Bearer {admin_token}");
        for headers in [&[][..], &[("authorization", bearer.as_str())][..]] {
            let (_, head, body) = http(&server.url, "GET", path, headers, "").unwrap();
            search(path, format!("{head}{body}").as_bytes(), &secrets);
        }
    }
    let bearer = format!("Bearer {admin_token}");
    let (_, _, ready) =
        http(&server.url, "GET", "/readyz", &[("authorization", bearer.as_str())], "").unwrap();
    assert!(ready.contains("down"), "the upstream that is down is told: {ready}");
    let log = server.log();
    assert!(log.contains("TRACE") && log.contains("DEBUG"), "{log:.500}");
    let mut written = Vec::new();
    files(server.data(), &mut written);
    assert!(written.iter().any(|(path, _)| path.to_string_lossy().contains("audit")), "{written:?}");
    for (path, bytes) in &written {
        let what = path.display().to_string();
        search(&what, bytes, &secrets);
        // What a caller sends is its own; it is still in no log and in no audit.
        search(&what, bytes, &[GIVEN]);
    }
    drop(server);
    recorded(&home, &secrets);
}

/// `docent record` writes what the upstream said, without what is secret in it.
fn recorded(home: &TestHome, secrets: &[&str]) {
    let folder = home.path().join("scripts/ombi/cases");
    std::fs::remove_dir_all(&folder).unwrap();
    for (tool, args) in [
        ("ombi.read_requests", json!({})),
        ("ombi.read_users", json!({"view": "list"})),
        ("ombi.read_settings", json!({"section": "sonarr"})),
        ("ombi.read_requests", json!({"view": "retry_queue"})),
    ] {
        let data = tempfile::tempdir().unwrap();
        let output = docent()
            .args(["record", tool, &args.to_string(), "--as", "admin", "--home"])
            .arg(home.path())
            .arg("--data")
            .arg(data.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Addresses of people are no secret of the operator's; the note says to look for them.
        let secrets: Vec<&str> = secrets.iter().copied().filter(|s| !s.starts_with('@')).collect();
        search("what is said", &[output.stdout, output.stderr].concat(), &secrets);
        let mut written = Vec::new();
        files(&folder, &mut written);
        for (path, bytes) in &written {
            search(&path.display().to_string(), bytes, &secrets);
        }
    }
}
