//! A server that answers like Ombi, from the replies of the pack's cases: `cargo run --example fake_ombi`.
//!
//! It listens on 127.0.0.1:3579 (or the address given as its argument) and takes the key `fake-key`. A request with
//! the header `x-fake-fault`, or `fault=…` in its query, fails in that way; `PUT /fake/fault/NAME` makes all following
//! ones fail, `none` ends it. The faults are those of [`FAULTS`].
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "an example reads its files and says where it is"
)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The key that it takes.
pub(crate) const KEY: &str = "fake-key";

/// What it can do wrong.
pub(crate) const FAULTS: [&str; 11] =
    ["slow", "500", "429", "204", "html", "truncated", "huge", "types", "is_error", "older", "newer"];

/// What an `older` server does not have.
const LATER: [&str; 5] = [
    "v2/Features",
    "v2/Requests/recentlyRequested",
    "v2/Search/*/requested/**",
    "v2/Hub/Users",
    "v1/Identity/streamingcountry",
];

/// Bytes of a `huge` answer: several times what docent reads of one.
const HUGE_BYTES: usize = 40 * 1024 * 1024;

/// Method, path (`*` is any segment, a trailing `**` any rest) and reply; the first that fits answers.
const ROUTES: &[(&str, &str, &str)] = &[
    ("POST", "v2/Search/multi/*", "v2-search-multi"),
    ("POST", "v1/Search/movie/**", "v1-search-movie-term"),
    ("POST", "v1/Search/movie", "v1-search-movie-term"),
    ("GET", "v1/Search/movie/*", "v1-search-movie-term"),
    ("GET", "v1/Search/tv/info/*", "v1-search-tv-info"),
    ("GET", "v1/Search/tv/*", "v1-search-tv-term"),
    ("GET", "v1/Search/music/artist/*", "v1-search-music-artist"),
    ("GET", "v1/Search/music/album/*", "v1-search-music-album"),
    ("POST", "v2/Search/movie/similar", "v2-search-movie-browse"),
    ("POST", "v2/Search/advancedSearch/**", "v2-search-movie-browse"),
    ("GET", "v2/Search/movie/*/*/*", "v2-search-movie-browse"),
    ("GET", "v2/Search/tv/popular/*/*", "v2-search-tv-browse-hydrated"),
    ("GET", "v2/Search/tv/*/*/*", "v2-search-tv-browse"),
    ("GET", "v2/Search/movie/collection/*", "v2-search-movie-collection"),
    ("GET", "v2/Search/movie/**", "v2-search-movie-detail"),
    ("GET", "v2/Search/tv/**", "v2-search-tv-detail"),
    ("GET", "v2/Search/actor/*/movie", "v2-search-actor-movie"),
    ("GET", "v2/Search/actor/*/tv", "v2-search-actor-tv"),
    ("GET", "v2/Search/artist/album/*", "v2-search-artist-album"),
    ("GET", "v2/Search/artist/*", "v2-search-artist"),
    ("GET", "v2/Search/stream/**", "v2-search-stream-movie"),
    ("GET", "v2/Search/ratings/movie/**", "v2-search-ratings-movie"),
    ("GET", "v2/Search/ratings/tv/**", "v2-search-ratings-tv"),
    ("GET", "v2/Search/releasegroupart/*", "v2-search-releasegroupart"),
    ("GET", "v2/Search/Genres/*", "v2-search-genres"),
    ("GET", "v2/Search/Languages", "v2-search-languages"),
    ("GET", "v1/TheMovieDb/Keywords", "v1-themoviedb-keywords"),
    ("GET", "v1/TheMovieDb/WatchProviders/*", "v1-themoviedb-watchproviders-movie"),
    ("GET", "v1/RecentlyAdded/movies", "v1-recentlyadded-movies"),
    ("GET", "v1/RecentlyAdded/**", "v1-recentlyadded-tv"),
    ("GET", "v2/Calendar", "v2-calendar"),
    ("GET", "v1/Images/poster/tv/**", "v1-images-poster-tv-tmdb"),
    ("GET", "v1/Images/**", "v1-images-poster-movie"),
    ("GET", "v2/Requests/recentlyRequested", "v2-requests-recent"),
    ("GET", "v2/Requests/movie/**", "v2-requests-movie-page"),
    ("GET", "v2/Requests/tv/**", "v2-requests-tv-page"),
    ("GET", "v2/Requests/album/**", "v2-requests-album-page"),
    ("GET", "v1/Request/movie/search/*", "v1-request-movie"),
    ("GET", "v1/Request/tv/search/*", "v1-request-tv"),
    ("GET", "v1/Request/tv/*/child", "v1-request-tv-children"),
    ("GET", "v1/Request/tvlite", "v1-request-tvlite"),
    ("GET", "v1/Request/count", "v1-request-count"),
    ("GET", "v1/Request/*/total", "v1-request-movie-total"),
    ("GET", "v1/Request/tv/remaining", "v1-request-tv-remaining-nolimit"),
    ("GET", "v1/Request/*/remaining", "v1-request-movie-remaining"),
    ("GET", "v1/Request/userhasrequest", "v1-request-userhasrequest"),
    ("GET", "v1/Request/tv/*", "v1-request-tv-detail"),
    ("GET", "v1/RequestRetry", "v1-requestretry"),
    ("GET", "v1/Stats", "v1-stats"),
    ("GET", "v1/Issues/count", "v1-issues-count"),
    ("GET", "v1/Issues/categories", "v1-issues-categories"),
    ("GET", "v1/Issues/*/comments", "v1-issues-comments"),
    ("GET", "v1/Issues/*/*/*", "v1-issues-page"),
    ("GET", "v1/Issues/*", "v1-issues-detail"),
    ("GET", "v1/Issues", "v1-issues-list"),
    ("GET", "v2/Issues/details/*", "v2-issues-details"),
    ("GET", "v2/Issues/**", "v2-issues-groups"),
    ("GET", "v1/Vote/**", "v1-vote-movie"),
    ("GET", "v1/Vote", "v1-vote"),
    ("GET", "v1/Identity/Users", "v1-identity-users"),
    ("GET", "v1/Identity/dropdown/Users", "v1-identity-dropdown-users"),
    ("GET", "v1/Identity/User/*", "v1-identity-user"),
    ("GET", "v1/Identity/claims", "v1-identity-claims"),
    ("GET", "v1/Identity/streamingcountry", "v1-identity-streamingcountry"),
    ("GET", "v1/Identity/notificationpreferences/**", "v1-identity-notificationpreferences"),
    ("GET", "v1/Identity/notificationpreferences", "v1-identity-notificationpreferences"),
    ("GET", "v1/Identity", "v1-identity"),
    ("GET", "v2/Hub/Users", "v2-hub-users"),
    ("GET", "v1/Status", "v1-status"),
    ("GET", "v1/Status/info", "v1-status-info"),
    ("GET", "v1/Update", "v1-update"),
    ("GET", "v1/LandingPage", "v1-landingpage"),
    ("GET", "v1/Job/update", "v1-job-update"),
    ("GET", "v2/Features", "v2-features"),
    ("GET", "v1/Radarr/Profiles/**", "v1-radarr-profiles"),
    ("GET", "v1/Radarr/Profiles", "v1-radarr-profiles"),
    ("GET", "v1/Radarr/RootFolders", "v1-radarr-rootfolders"),
    ("GET", "v1/*/enabled", "v1-radarr-enabled"),
    ("GET", "v1/Sonarr/tags", "v1-sonarr-tags"),
    ("GET", "v1/Sonarr/v3/LanguageProfiles", "v1-sonarr-languageprofiles"),
    ("GET", "v1/Lidarr/Profiles", "v1-lidarr-profiles"),
    ("GET", "v1/Plex/friends", "v1-plex-friends"),
    ("GET", "v1/Settings/*enabled", "v1-radarr-enabled"),
    ("GET", "v2/System/logs", "v2-system-logs"),
    ("POST", "v1/Request/movie", "v1-request-movie-create-ok"),
    ("POST", "v2/Requests/tv", "v2-requests-tv-create-ok"),
    ("POST", "v1/request/music", "v1-request-music-create-ok"),
    ("POST", "v2/Requests/movie/collection/*", "v2-requests-collection"),
    ("POST", "v1/Request/*/subscribe/*", "v1-request-movie-subscribe"),
    ("POST", "v1/Request/**", "v1-request-movie-approve-ok"),
    ("PUT", "v1/Request/**", "v1-request-movie-deny-ok"),
    ("DELETE", "v1/Request/**", "v1-request-movie-delete-ok"),
    ("POST", "v2/Requests/**", "v2-requests-advancedoptions"),
    ("DELETE", "v1/RequestRetry/*", "v1-requestretry-delete"),
    ("POST", "v1/Vote/**", "v1-vote-up-ok"),
    ("POST", "v1/Issues/comments", "v1-issues-comment-add"),
    ("POST", "v1/Issues/status", "v1-issues-status-ok"),
    ("POST", "v1/Issues/categories", "v1-issues-category-create"),
    ("POST", "v1/Issues", "v1-issues-create"),
    ("PUT", "v1/Identity", "v1-identity-create-ok"),
    ("POST", "v1/Settings/**", "v1-settings-save"),
    ("POST", "v2/Features/*", "v2-features-enable"),
    ("POST", "v1/Job/*", "v1-job-trigger"),
    ("POST", "v1/Tester/*", "v1-tester-radarr"),
];

/// What the handler needs.
#[derive(Debug)]
struct Fake {
    replies: PathBuf,
    /// The fault of all requests that name none.
    fault: Mutex<String>,
}

/// The server over a folder of replies.
pub(crate) fn app(replies: &Path) -> Router {
    let fake = Fake { replies: replies.to_path_buf(), fault: Mutex::new("none".to_owned()) };
    Router::new().fallback(answer).with_state(Arc::new(fake))
}

async fn answer(State(fake): State<Arc<Fake>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if let (&Method::PUT, Some(name)) = (request.method(), path.strip_prefix("/fake/fault/")) {
        name.clone_into(&mut fake.fault.lock().unwrap_or_else(PoisonError::into_inner));
        return StatusCode::NO_CONTENT.into_response();
    }
    if request.headers().get("apikey").is_none_or(|k| k != KEY) {
        return (StatusCode::UNAUTHORIZED, "Invalid API Key").into_response();
    }
    let text = path.strip_prefix("/api/").and_then(|p| found(&fake.replies, request.method().as_str(), p));
    let standing = fake.fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let asked = request.headers().get("x-fake-fault").and_then(|v| v.to_str().ok());
    let query = request.uri().query().unwrap_or_default().split('&').find_map(|p| p.strip_prefix("fault="));
    let fault = asked.or(query).unwrap_or(&standing).to_owned();
    match text {
        None => page(),
        Some(_)
            if fault == "older"
                && LATER.iter().any(|route| fits(route, path.trim_start_matches("/api/"))) =>
        {
            page()
        }
        Some(text) => spoilt(&fault, text).await,
    }
}

/// The reply of a route.
fn found(replies: &Path, method: &str, path: &str) -> Option<String> {
    let read = |name: &str| std::fs::read_to_string(replies.join(format!("{name}.json"))).ok();
    if let Some(section) =
        path.strip_prefix("v1/Settings/").filter(|s| method == "GET" && !s.ends_with("enabled"))
    {
        return read(&format!("v1-settings-{section}"));
    }
    let (_, _, name) = ROUTES.iter().find(|(m, pattern, _)| *m == method && fits(pattern, path))?;
    read(name)
}

/// Whether a path fits a pattern; Ombi's routes know no case.
fn fits(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some("**"), Some(_)) => return true,
            (Some("*"), Some(_)) => {}
            (Some(w), Some(g)) if w.strip_prefix('*').is_some_and(|end| g.ends_with(end)) => {}
            (Some(w), Some(g)) if w.eq_ignore_ascii_case(g) => {}
            _ => return false,
        }
    }
}

/// Ombi's web page, which answers every route that it does not know.
fn page() -> Response {
    ([(CONTENT_TYPE, "text/html")], "<!DOCTYPE html><html><title>Ombi</title></html>").into_response()
}

async fn spoilt(fault: &str, text: String) -> Response {
    let json = |text: String| ([(CONTENT_TYPE, "application/json")], text).into_response();
    match fault {
        "slow" => {
            tokio::time::sleep(Duration::from_mins(1)).await;
            json(text)
        }
        "500" => {
            let body = json!({"error": "Connection refused (radarr.lan:7878, apikey=SECRET-in-an-exception)"});
            (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "application/json")], body.to_string())
                .into_response()
        }
        "429" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")], "").into_response(),
        "204" => StatusCode::NO_CONTENT.into_response(),
        "html" => page(),
        "truncated" => json(text.chars().take(text.chars().count() / 2).collect()),
        "huge" => {
            let body = format!("[\"{}\"]", "x".repeat(HUGE_BYTES));
            ([(CONTENT_TYPE, "application/json")], Body::from(body)).into_response()
        }
        "types" => {
            let value = serde_json::from_str(&text).unwrap_or(Value::Null);
            json(retyped(value).to_string())
        }
        "newer" => json(renewed(serde_json::from_str(&text).unwrap_or(Value::Null)).to_string()),
        "is_error" => json(
            json!({
                "result": false, "isError": true, "message": null, "errorCode": "NoPermissions", "requestId": 0,
                "errorMessage": "refused by http://10.0.0.9:7878/?apikey=SECRET-in-a-message",
            })
            .to_string(),
        ),
        _ => json(text),
    }
}

/// The same shape with every value of another type.
fn retyped(value: Value) -> Value {
    match value {
        Value::Null => json!([]),
        Value::Bool(_) => json!("yes"),
        Value::Number(n) => Value::from(n.to_string()),
        Value::String(_) => json!(7),
        Value::Array(items) => Value::Array(items.into_iter().map(retyped).collect()),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, retyped(v))).collect(),
    }
}

/// What a newer server might answer: the same, and more of it everywhere.
fn renewed(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(renewed).collect()),
        Value::Object(map) => {
            let own = map.into_iter().map(|(k, v)| (k, renewed(v)));
            own.chain([("addedLater".to_owned(), json!({"id": 424_242, "name": "later"}))]).collect()
        }
        plain => plain,
    }
}

/// Serves until it is stopped.
#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3579".to_owned());
    let replies = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/ombi/cases/replies");
    let listener = tokio::net::TcpListener::bind(&address).await?;
    eprintln!(
        "a fake Ombi at http://{}; OMBI_API_KEY={KEY}; faults: {}",
        listener.local_addr()?,
        FAULTS.join(", ")
    );
    axum::serve(listener, app(&replies)).await
}
