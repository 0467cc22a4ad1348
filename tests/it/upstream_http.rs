//! HTTP upstreams that misbehave, and what docent sends them.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, get, post};
use docent::call::{HttpRequest, UpstreamRequest};
use docent::upstream::{ErrorSource, Retry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::upstream_support::{How, TestUpstream, text};

/// Serves a router; its address.
pub(crate) async fn serve(app: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// Answers every connection with these bytes, then closes it.
async fn serve_raw(answer: &'static [u8]) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0u8; 4096];
            assert!(stream.read(&mut buffer).await.is_ok());
            stream.write_all(answer).await.ok();
        }
    });
    format!("http://{address}")
}

fn upstream(base: &str, more: &str) -> TestUpstream {
    TestUpstream::new("web", &format!("kind = \"http\"\nbase_url = \"{base}\"\n{more}"))
}

fn flood() -> Response {
    let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
    let endless = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
    Body::from_stream(endless).into_response()
}

/// 24 MiB of zeros in 24 KiB.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..24 {
        packed.write_all(&vec![0u8; 1 << 20]).unwrap();
    }
    packed.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_flooding_and_compressed_bombs_end_in_time_and_in_bounds() {
    let packed = bomb();
    let app = Router::new()
        .route("/hang", any(|| async { std::future::pending::<()>().await }))
        .route("/flood", get(|| async { flood() }))
        .route("/bomb", get(move || async move { ([("content-encoding", "gzip")], packed) }));
    let web = upstream(&serve(app).await, "read_bytes = 1000000\n");
    for (read_only, retry) in [(true, Retry::Safe), (false, Retry::Unknown)] {
        let how = How { timeout: Duration::from_millis(150), read_only, ..How::default() };
        let error = web.fetch("POST", "/hang", how).await.unwrap_err();
        assert_eq!((error.source_kind, error.retry), (ErrorSource::Timeout, retry));
    }
    let start = Instant::now();
    for path in ["/flood", "/bomb"] {
        let error = web.fetch("GET", path, How::default()).await.unwrap_err();
        assert_eq!(error.source_kind, ErrorSource::TooLarge, "{path}");
        assert!(error.message.contains("1000000 bytes"), "{}", error.message);
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    let how = How::default();
    let cancel = how.cancel.clone();
    let (gone, ()) = tokio::join!(web.fetch("GET", "/hang", how), async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
    });
    assert_eq!(gone.unwrap_err().source_kind, ErrorSource::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn lies_about_length_and_broken_replies_are_told_apart_from_nothing_sent() {
    let short = serve_raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this").await;
    let error = upstream(&short, "").fetch("POST", "/", How::default()).await.unwrap_err();
    assert_eq!((error.source_kind, error.retry), (ErrorSource::Upstream, Retry::Unknown));
    let how = How { read_only: true, ..How::default() };
    assert_eq!(upstream(&short, "").fetch("GET", "/", how).await.unwrap_err().retry, Retry::Safe);
    let huge = serve_raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\nx").await;
    let error = upstream(&huge, "").fetch("GET", "/", How::default()).await.unwrap_err();
    assert_eq!(error.source_kind, ErrorSource::TooLarge);
    let noise = serve_raw(b"220 mail.example.org ESMTP\r\n").await;
    assert!(upstream(&noise, "").fetch("GET", "/", How::default()).await.is_err());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = upstream(&format!("http://{free}"), "").fetch("POST", "/", How::default()).await.unwrap_err();
    assert_eq!((error.source_kind, error.retry), (ErrorSource::Upstream, Retry::Safe));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_stay_on_the_host_and_never_carry_credentials() {
    let hits = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&hits);
    let other = serve(Router::new().fallback(move || {
        seen.fetch_add(1, Ordering::Relaxed);
        async { "you should not be here" }
    }))
    .await;
    let app = Router::new()
        .route("/away", get(move || async move { Redirect::temporary(&other) }))
        .route("/meta", get(|| async { Redirect::temporary("http://169.254.169.254/latest/meta-data") }))
        .route("/here", get(|| async { Redirect::temporary("/there") }))
        .route("/there", get(|| async { "arrived" }))
        .route("/round", get(|| async { Redirect::temporary("/round") }));
    let base = serve(app).await;
    let (plain, keyed) = (upstream(&base, ""), upstream(&base, "[auth]\nbearer = \"${env:TEST_SECRET}\"\n"));
    for path in ["/away", "/meta"] {
        let error = plain.fetch("GET", path, How::default()).await.unwrap_err();
        assert!(error.message.contains("redirects to another host"), "{}", error.message);
    }
    assert_eq!(text(&plain.fetch("GET", "/here", How::default()).await.unwrap()), "arrived");
    assert!(plain.fetch("GET", "/round", How::default()).await.unwrap_err().message.contains("more than"));
    let error = keyed.fetch("GET", "/here", How::default()).await.unwrap_err();
    assert!(error.message.contains("a request with credentials"), "{}", error.message);
    assert_eq!(hits.load(Ordering::Relaxed), 0, "the other host was never asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_placed_and_cannot_be_replaced_or_seen() {
    let app = Router::new().fallback(|uri: Uri, headers: HeaderMap| async move {
        let of = |n: &str| headers.get(n).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
        let secret = [("x-secret", "hidden"), ("etag", "\"1\"")];
        (secret, format!("{uri} {} {} {}", of("authorization"), of("x-key"), of("x-request-id")))
    });
    let base = serve(app).await;
    let auth = "headers = { x-key = \"${env:TEST_SECRET}\" }\n[auth]\nquery = { key = \"${env:TEST_SECRET}\" }\n\
                basic = { username = \"u\", password = \"${env:TEST_SECRET}\" }\n";
    let web = upstream(&format!("{base}/v1"), auth);
    let request = |headers: &[(&str, &str)], query: &[(&str, &str)]| {
        let own = |p: &[(&str, &str)]| p.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        UpstreamRequest::Http(HttpRequest {
            method: "GET".to_owned(),
            path: "/a%2Fb".to_owned(),
            query: own(query),
            headers: own(headers),
            body: None,
        })
    };
    let sent = request(&[("x-key", "mine"), ("accept", "text/plain")], &[("key", "mine"), ("q", "a b")]);
    let reply = web.send("any", sent, How::default()).await.unwrap();
    let basic = "Basic dTpzM2NyM3QtdmFsdWU=";
    assert_eq!(text(&reply), format!("/v1/a%2Fb?q=a+b&key=s3cr3t-value {basic} s3cr3t-value test-1"));
    assert!(reply.headers.iter().any(|(n, _)| n == "etag"), "{:?}", reply.headers);
    assert!(!reply.headers.iter().any(|(n, _)| n == "x-secret"), "{:?}", reply.headers);
    for bad in [("authorization", "Bearer x"), ("host", "evil"), ("x-a", "b\r\nx-c: d"), ("x a", "b")] {
        let error = web.send("any", request(&[bad], &[]), How::default()).await.unwrap_err();
        assert_eq!(error.source_kind, ErrorSource::Caller, "{bad:?}");
    }
    for bad in ["/../admin", "/%2e%2e/admin", "//evil.example", "/a\\b", "x"] {
        let reply = web.fetch("GET", bad, How::default()).await;
        let inside = reply.as_ref().map_or(true, |r| text(r).starts_with("/v1/"));
        assert!(inside, "{bad}: {reply:?}");
    }
    assert!(!format!("{web:?}", web = web.config).contains("s3cr3t-value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oauth_token_is_fetched_once_and_renewed_when_refused() {
    let (fetched, valid) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
    let forms = Arc::new(Mutex::new(Vec::new()));
    let (count, kept, good) = (Arc::clone(&fetched), Arc::clone(&forms), Arc::clone(&valid));
    let app = Router::new()
        .route(
            "/token",
            post(move |headers: HeaderMap, form: String| async move {
                let n = count.fetch_add(1, Ordering::Relaxed) + 1;
                kept.lock().unwrap().push((headers["authorization"].to_str().unwrap().to_owned(), form));
                format!("{{\"access_token\":\"t{n}\",\"token_type\":\"Bearer\",\"expires_in\":3600}}")
            }),
        )
        .fallback(move |request: Request| async move {
            let wanted = format!("Bearer t{}", good.load(Ordering::Relaxed));
            let fits = request.headers()["authorization"] == wanted.as_str();
            if fits { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
        });
    let base = serve(app).await;
    let auth = format!(
        "[auth.oauth2]\ntoken_url = \"{base}/token\"\nclient_id = \"me\"\nclient_secret = \"${{env:TEST_SECRET}}\"\nscopes = [\"a\", \"b\"]\n"
    );
    let web = upstream(&base, &auth);
    for _ in 0..3 {
        assert_eq!(web.fetch("GET", "/", How::default()).await.unwrap().status, 200);
    }
    assert_eq!(fetched.load(Ordering::Relaxed), 1);
    let (basic, form) = forms.lock().unwrap()[0].clone();
    assert_eq!(form, "grant_type=client_credentials&scope=a+b");
    assert_eq!(basic, "Basic bWU6czNjcjN0LXZhbHVl");
    valid.store(2, Ordering::Relaxed);
    assert_eq!(web.fetch("GET", "/", How::default()).await.unwrap().status, 200);
    valid.store(9, Ordering::Relaxed);
    assert_eq!(web.fetch("GET", "/", How::default()).await.unwrap().status, 401, "one more try, not more");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_openapi_document_is_served_and_called() {
    let app = Router::new().route("/api/pets/{id}", get(|uri: Uri| async move { uri.to_string() }));
    let base = serve(app).await;
    let home = crate::support::TestHome::with(&[(
        "scripts/pets/openapi.json",
        r#"{"openapi":"3.0.0","info":{"title":"p","version":"1"},"servers":[{"url":"/api"}],
           "paths":{"/pets/{id}":{"get":{"operationId":"getPet","summary":"One pet","parameters":[
           {"name":"id","in":"path","required":true,"schema":{"type":"string"}},
           {"name":"full","in":"query","schema":{"type":"boolean"}}]},
           "delete":{"operationId":"dropPet","summary":"Drop a pet","parameters":[
           {"name":"id","in":"path","required":true,"schema":{"type":"string"}}]}}}}"#,
    )]);
    let toml = format!(
        "kind = \"openapi\"\nspec = \"openapi.json\"\nbase_url = \"{base}/api\"\nexclude = {{ methods = [\"DELETE\"] }}\n[override.\"getPet\"]\ntags = [\"pets\"]\n"
    );
    let pets = TestUpstream::at(home, "pets", &toml);
    let found = pets.discover().await;
    assert_eq!(found.tools.len(), 1, "{}", found.problems);
    let name = found.tools[0].tool.name.to_string();
    let reply = pets.call(&name, serde_json::json!({"id": "../x y", "full": true})).await;
    assert_eq!(reply.map(|r| text(&r)).unwrap_or_default(), "/api/pets/..%2Fx%20y?full=true");
    let empty = pets.call(&name, serde_json::json!({})).await.unwrap_err();
    assert_eq!(empty.source_kind, ErrorSource::Caller);
}
