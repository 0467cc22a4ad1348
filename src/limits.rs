//! Every ceiling of docent as a named value with its reason. Settings may lower or raise those marked
//! *default*; the others are fixed.

use std::time::Duration;

/// Bytes of one HTTP request body at most: arguments of a call are small, files go to `/api/v1/files`.
pub const REQUEST_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of one line on the stdio wire: the same body without HTTP.
pub const STDIO_LINE_BYTES_MAX: usize = REQUEST_BODY_BYTES_MAX;
/// Nesting of any JSON that enters: `serde_json` refuses more than 128, clients break earlier.
pub const JSON_DEPTH_MAX: usize = 100;
/// Bytes of one file of a home (TOML, YAML, cases): hand-written files are far smaller.
pub const HOME_FILE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of one Rhai source: compile time grows faster than the text (facts: 20,000 arms take 3.6 s).
pub const SCRIPT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of one OpenAPI document: GitHub's has 13 MB.
pub const OPENAPI_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a catalog file after unpacking: 22,742 tools take 24 MiB.
pub const CATALOG_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Bytes of a structured result (*default* of `budgets.result_bytes`, seed 001).
pub const RESULT_BYTES: usize = 64 * 1024;
/// Bytes of the text half of an unprojected result (*default* of `budgets.text_bytes`, seed 002).
pub const TEXT_BYTES: usize = 50 * 1024;
/// Bytes read of one upstream reply (*default* of `budgets.upstream_read_bytes`, seed 001).
pub const UPSTREAM_READ_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of the server's instructions (*default* of `budgets.instructions_bytes`: clients cut at 2 KiB).
pub const INSTRUCTIONS_BYTES: usize = 2048;
/// Bytes of one result that are kept aside where only a part of it is shown (*default* of `budgets.kept_bytes`):
/// what was read of an upstream fits.
pub const KEPT_BYTES: usize = UPSTREAM_READ_BYTES;
/// Bytes of one caller's results that are kept aside; the oldest make room (*default* of
/// `budgets.kept_bytes_per_caller`).
pub const KEPT_BYTES_PER_CALLER: usize = 64 * 1024 * 1024;
/// The same of all callers: a quarter of what the state may take on disk.
pub const KEPT_BYTES_TOTAL: u64 = 1024 * 1024 * 1024;
/// How long the whole of a result is kept (*default* of `budgets.kept_seconds`): a conversation comes back to it
/// within the hour or not at all.
pub const KEPT_TIME: Duration = Duration::from_hours(1);
/// `{"$result": …}` values in the arguments of one call.
pub const RESULT_REFERENCES_MAX: usize = 16;
/// Records of one projected page (seed 001).
pub const RESULT_RECORDS: usize = 100;
/// Elements of a list inside a record (seed 001).
pub const RESULT_NESTED: usize = 100;
/// Tools on one page of `tools/list` (*default* of `server.page_size`, seed 000).
pub const PAGE_SIZE: usize = 200;
/// Bytes of one page of `tools/list`: a stock client refuses an SSE event above 1 MiB.
pub const PAGE_BYTES_MAX: usize = 768 * 1024;
/// Permitted tools up to which `auto` lists in full (*default* of `server.listed_tools_max`).
pub const LISTED_TOOLS_MAX: usize = 100;
/// Bytes of a tool's name on the wire: what clients leave after their own prefixes.
pub const WIRE_NAME_BYTES_MAX: usize = 48;
/// Bytes of an input schema on the wire before `docent check` warns (*default* of `budgets.schema_bytes_per_tool`).
pub const SCHEMA_BYTES_PER_TOOL: usize = 32 * 1024;
/// Tools one upstream may bring: an upstream that never ends its list must end somewhere.
pub const TOOLS_PER_UPSTREAM_MAX: usize = 50_000;
/// Pages walked of one upstream's list.
pub const LIST_PAGES_MAX: usize = 1_000;
/// Unicode code points of a search query (seed 004).
pub const QUERY_CHARS_MAX: usize = 4_096;
/// How long a direct call waits for its tool (seed 000).
pub const CALL_WAIT: Duration = Duration::from_mins(2);
/// How long `run_tool` waits when it does not say (seed 000).
pub const RUN_WAIT: Duration = Duration::from_mins(1);
/// How long `run_tool` may ask to wait.
pub const RUN_WAIT_MAX: Duration = Duration::from_mins(5);
/// How long one upstream call may take (*default* of `timeout_ms`).
pub const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(30);
/// Calls at once to one upstream (*default* of `concurrency`).
pub const UPSTREAM_CONCURRENCY: usize = 64;
/// Sessions of the session wire held at once, over all callers.
pub const SESSIONS_MAX: usize = 10_000;
/// Sessions of one caller: a client that forgets its sessions must not push out the others.
pub const SESSIONS_PER_CALLER_MAX: usize = 1_000;
/// A session is forgotten after this long without a request.
pub const SESSION_IDLE: Duration = Duration::from_mins(30);
/// Event streams (GET and `subscriptions/listen`) of one caller at once.
pub const STREAMS_PER_CALLER_MAX: usize = 100;
/// Members of an object, or elements of a list, that are found without reading what is below: the parameters of a message,
/// the blocks of a result. Each takes up to a hundred bytes however short it is, so that a body of nothing else would
/// take fifty times itself; no tool has as many.
pub const LEVEL_ITEMS_MAX: usize = 20_000;
/// Messages of one 2025-03-26 batch.
pub const BATCH_MESSAGES_MAX: usize = 64;
/// A child process without calls is stopped after this long (*default* of `idle_seconds`).
pub const CHILD_IDLE: Duration = Duration::from_mins(10);
/// The tools of an MCP upstream are listed again after this long (*default* of `refresh_seconds`).
pub const DISCOVERY_REFRESH: Duration = Duration::from_mins(5);
/// Connecting to an upstream: longer than any handshake, far shorter than a call.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Finding the tools of one upstream, all pages of it.
pub const DISCOVERY_TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes of one page of an upstream's list: a server here sends 10,000 tools (12 MB) in one.
pub const DISCOVERY_PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of all definitions of one upstream.
pub const DISCOVERY_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes of one tool's definition: beyond it no client would take it.
pub const TOOL_DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// Bytes from which on a secret that an upstream echoes is taken out of its replies: shorter ones are words.
pub const SECRET_BYTES_MIN: usize = 6;
/// How long a client on a pipe waits for upstreams that were never listed before, so that its first list, which
/// may be its only one, is not empty. An `npx` server takes some seconds.
pub const FIRST_LISTS_WAIT: Duration = Duration::from_secs(10);
/// Bytes of a program's standard error that are kept for the message.
pub const STDERR_BYTES: usize = 2048;
/// Redirects followed of one request, on the same host only.
pub const REDIRECTS_MAX: usize = 5;
/// Files that one run of a program may bring.
pub const COMMAND_FILES_MAX: usize = 32;
/// Between the polite and the hard end of a process group.
pub const KILL_GRACE: Duration = Duration::from_millis(500);
/// How often the registry looks which upstreams are due.
pub const DISCOVERY_TICK: Duration = Duration::from_secs(1);
/// The first pause before an upstream that is down is tried again; it doubles up to 64 times.
pub const RECONNECT_PAUSE: Duration = Duration::from_secs(2);
/// Bytes of a JSON-RPC id: it is echoed in every message about its request.
pub const RPC_ID_BYTES_MAX: usize = 1024;
/// Bytes kept of what a client says of its own name and version.
pub const CLIENT_FACT_BYTES_MAX: usize = 200;
/// Progress messages that wait for a slow reader; more are dropped, the next one says more anyway.
pub const PROGRESS_QUEUE: usize = 64;
/// How long a cancelled call may take to tell its upstream before it is dropped.
pub const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// How long a client may keep a `server/discover` or a list (`ttlMs`): the pace of `list_changed`, for those
/// that do not listen.
pub const LIST_TTL: Duration = Duration::from_mins(1);
/// Requests that run at once on one pipe: more than any agent starts, fewer than would fill memory.
pub const STDIO_CALLS_MAX: usize = 1_000;
/// How long a request body may take to arrive.
pub const REQUEST_BODY_TIME: Duration = Duration::from_secs(30);
/// Bytes of a body that is too large which are still read and thrown away, so that its sender sees the answer.
pub const REQUEST_BODY_DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// How long the headers of a request may take, and how long a connection may be silent between requests.
pub const HEADER_TIME: Duration = Duration::from_secs(30);
/// Bytes of a request's head: tokens are long, nothing else is.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Connections held at once; more wait in the listener's queue.
pub const CONNECTIONS_MAX: usize = 8_192;
/// A comment is sent on an event stream that was silent for this long, so that proxies keep it.
pub const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long running requests may take to end after the server was told to stop.
pub const DRAIN_TIME: Duration = Duration::from_secs(10);
/// How long calls may take to end after their pipe has: a shell's `echo … | docent serve --stdio` gets its answer.
pub const STDIO_DRAIN_TIME: Duration = Duration::from_secs(2);
/// Jobs of one caller that wait or run: a fan-out over a large catalog, no more.
pub const JOBS_PER_CALLER_MAX: usize = 10_000;
/// Jobs of all callers that wait or run: at most 10 KB each, so half a gigabyte.
pub const JOBS_MAX: usize = 50_000;
/// How long the result of a job is kept after its end: longer than a person's lunch.
pub const JOB_KEPT: Duration = Duration::from_hours(2);
/// Results of ended jobs that one caller keeps; the oldest go first.
pub const JOB_RESULTS_PER_CALLER_MAX: usize = 1_000;
/// How long a job may wait for a slot of its upstream before it is given up. Nothing was sent then.
pub const JOB_QUEUE_TIME: Duration = Duration::from_mins(10);
/// Calls that wait for one upstream, of all callers: all of the jobs there may be.
pub const LANE_WAITING_MAX: usize = JOBS_MAX;
/// Calls of one caller that wait for one upstream.
pub const LANE_WAITING_PER_CALLER_MAX: usize = JOBS_PER_CALLER_MAX;
/// How long an equal call is answered by the first one's result (seed 002).
pub const REPLAY_WINDOW: Duration = Duration::from_mins(2);
/// Results of one caller that equal calls are answered with; the oldest go first (seed 002).
pub const REPLAYS_PER_CALLER_MAX: usize = 256;
/// Bytes of all such results in memory. One that had to go is still in the store.
pub const REPLAY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a `request_key` (seed 002).
pub const REQUEST_KEY_BYTES_MAX: usize = 256;
/// How long a keyed call goes on after its last caller's connection was lost, for the caller to come back to it.
pub const REJOIN_TIME: Duration = Duration::from_secs(10);
/// How long a job waits for an answer of its caller's client: a person has to see the question, and what a script was
/// answered before is believed for ten minutes.
pub const JOB_ANSWER_TIME: Duration = Duration::from_mins(9);
/// How long a call of a client with the tasks extension is waited for before it becomes a task: what ends sooner
/// is cheaper for both sides as a plain result.
pub const TASK_WAIT: Duration = Duration::from_millis(500);
/// How often a client should ask for a task (`pollIntervalMs`).
pub const TASK_POLL: Duration = Duration::from_secs(1);
/// Bytes of one file of a pack that is a resource or an image of a prompt: it is held in memory. Larger ones
/// belong behind a tool.
pub const OFFER_FILE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Resources, templates and prompts of one upstream together: each is a subject of the policies.
pub const OFFERS_PER_UPSTREAM_MAX: usize = 5_000;
/// Bytes of one resource that is read inline (seed 000); larger ones are for HTTP.
pub const RESOURCE_INLINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Resources that one session or one `subscriptions/listen` may watch.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Bytes of one prompt with all that is embedded: it goes into a model's context whole.
pub const PROMPT_BYTES_MAX: usize = 768 * 1024;
/// Bytes of one tool's output inside a prompt: it is context, not an answer to page through.
pub const PROMPT_TOOL_BYTES_MAX: usize = 16 * 1024;
/// Values of one completion (MCP, completion).
pub const COMPLETION_VALUES_MAX: usize = 100;
/// Files that one call may name in its arguments.
pub const FILE_REFERENCES_MAX: usize = 32;
/// Bytes of all files that go into one call as base64: the call is held in memory. Paths have no such limit.
pub const FILE_ARGUMENT_BYTES_MAX: u64 = 16 * 1024 * 1024;
