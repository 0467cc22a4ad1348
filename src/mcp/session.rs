//! Sessions of the session wire: unguessable ids, bound to their caller, bounded in number and age.
//!
//! A session is never a credential: every request is authenticated by itself, and a session of another
//! caller answers as one that does not exist.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::ask::Questions;
use super::envelope::{Params, RequestId};
use super::revision::Revision;
use super::subscriptions::Subscriptions;
use super::topics::{Seen, Topic};
use crate::clock::Clock;
use crate::gateway::{Negotiated, Surface};
use crate::id;
use crate::limits::{SESSION_IDLE, SESSIONS_MAX, SESSIONS_PER_CALLER_MAX};
use crate::policy::ClientFacts;

/// Bytes of randomness in an id: 256 bits, twice what guessing asks for.
const ID_BYTES: usize = 32;

/// What a client knows of one list that it is shown.
#[derive(Debug)]
struct Told {
    topic: Topic,
    /// As it was when the session began, or when it was last told of a change.
    surface: Surface,
    /// Whether it asked for the list since: a message into a connection that was just lost is not seen by anyone.
    seen: bool,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its id: lower-case hex.
    pub(super) id: String,
    /// The revision that was settled on.
    pub(super) revision: Revision,
    /// What the client said of itself.
    pub(super) client: ClientFacts,
    /// What `initialize` settled on besides the revision.
    pub(super) negotiated: Negotiated,
    /// Fires when the session ends.
    pub(super) ended: CancellationToken,
    /// The resources that the client watches.
    pub(super) subscriptions: Arc<Subscriptions>,
    /// Requests under way, by the JSON of their ids.
    pub(super) running: Running,
    /// Requests of the server's own that wait for the client.
    pub(super) questions: Arc<Questions>,
    told: Mutex<Vec<Told>>,
    subject: Arc<str>,
    last_used_ms: AtomicU64,
    /// Event streams open; a session with one is not idle.
    streams: AtomicUsize,
    newest_stream: AtomicU64,
}

impl Session {
    /// Notes that a stream was opened: its number, by which it knows whether it is the newest.
    pub(super) fn stream_opened(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.newest_stream.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that a stream was closed.
    pub(super) fn stream_closed(&self, now_ms: u64) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
        self.last_used_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// Whether a stream is the newest: a message goes to one stream only.
    pub(super) fn is_newest_stream(&self, number: u64) -> bool {
        self.newest_stream.load(Ordering::Relaxed) == number
    }

    fn told(&self) -> MutexGuard<'_, Vec<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the client asked for a list.
    pub(super) fn listed(&self, topic: Topic) {
        if let Some(told) = self.told().iter_mut().find(|t| t.topic == topic) {
            told.seen = true;
        }
    }

    /// Whether the client has to be told that a list changed, and notes that it is. A stream that has just
    /// been opened also says again what nobody seems to have heard.
    pub(super) fn must_tell(&self, topic: Topic, now: Surface, just_opened: bool) -> bool {
        let mut all = self.told();
        let Some(told) = all.iter_mut().find(|t| t.topic == topic) else { return false };
        let tell = told.surface != now || (just_opened && !told.seen);
        if tell {
            *told = Told { topic, surface: now, seen: false };
        }
        tell
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        let limit = u64::try_from(SESSION_IDLE.as_millis()).unwrap_or(u64::MAX);
        self.streams.load(Ordering::Relaxed) == 0
            && now_ms.saturating_sub(self.last_used_ms.load(Ordering::Relaxed)) > limit
    }
}

/// A request under way in a session, which `notifications/cancelled` may name until this is dropped.
#[derive(Debug)]
pub(super) struct Underway {
    session: Arc<Session>,
    key: String,
}

impl Underway {
    /// Notes a request; `None` if its id is already in use.
    pub(super) fn begin(
        session: &Arc<Session>,
        id: &RequestId,
        cancel: &CancellationToken,
    ) -> Option<Arc<Self>> {
        let key = id.as_str().to_owned();
        session.running.begin(&key, cancel.clone()).then(|| {
            let session = Arc::clone(session);
            Arc::new(Self { session, key })
        })
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.session.running.end(&self.key);
    }
}

/// Requests under way that a `notifications/cancelled` may name.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<HashMap<String, CancellationToken>>);

impl Running {
    fn map(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request; `false` if its id is already in use.
    pub(super) fn begin(&self, id: &str, cancel: CancellationToken) -> bool {
        let mut map = self.map();
        if map.contains_key(id) {
            return false;
        }
        map.insert(id.to_owned(), cancel);
        true
    }

    /// Forgets a request.
    pub(super) fn end(&self, id: &str) {
        self.map().remove(id);
    }

    /// Cancels a request; an unknown one has ended already, and that is fine.
    pub(super) fn cancel(&self, id: &str) {
        if let Some(token) = self.map().remove(id) {
            token.cancel();
        }
    }

    /// What a client tells of its requests: a cancellation. What is not known is nothing to fail over.
    pub(super) fn notified(&self, method: &str, params: &Params) {
        if method == "notifications/cancelled"
            && let Some(id) = params.member("requestId").and_then(RequestId::read)
        {
            self.cancel(id.as_str());
        }
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.map().len()
    }
}

/// All sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    clock: Clock,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<String, Arc<Session>>,
    per_caller: HashMap<Arc<str>, usize>,
}

impl Table {
    fn remove(&mut self, id: &str) -> Option<Arc<Session>> {
        let session = self.by_id.remove(id)?;
        if let Some(count) = self.per_caller.get_mut(&session.subject) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.per_caller.remove(&session.subject);
            }
        }
        session.ended.cancel();
        Some(session)
    }

    fn remove_idle(&mut self, now_ms: u64) {
        let idle: Vec<String> =
            self.by_id.values().filter(|s| s.is_idle(now_ms)).map(|s| s.id.clone()).collect();
        for id in idle {
            self.remove(&id);
        }
    }

    /// Makes room for one more session of a caller, at the cost of its own oldest one.
    fn make_room(&mut self, subject: &str) {
        if self.per_caller.get(subject).is_none_or(|n| *n < SESSIONS_PER_CALLER_MAX) {
            return;
        }
        let oldest = self
            .by_id
            .values()
            .filter(|s| &*s.subject == subject)
            .min_by_key(|s| s.last_used_ms.load(Ordering::Relaxed))
            .map(|s| s.id.clone());
        if let Some(id) = oldest {
            self.remove(&id);
        }
    }
}

impl Sessions {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that sessions go by.
    pub(super) fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// Opens a session; `None` when the server holds as many as it can, or has no randomness.
    pub(super) fn open(
        &self,
        subject: &Arc<str>,
        revision: Revision,
        (client, negotiated): (ClientFacts, Negotiated),
        seen: Seen,
    ) -> Option<Arc<Session>> {
        let id = id::hex(&id::random::<ID_BYTES>().ok()?);
        let now = self.now_ms();
        let mut table = self.table();
        table.make_room(subject);
        if table.by_id.len() >= SESSIONS_MAX {
            table.remove_idle(now);
        }
        if table.by_id.len() >= SESSIONS_MAX {
            return None;
        }
        let session = Arc::new(Session {
            id: id.clone(),
            revision,
            client,
            negotiated,
            ended: CancellationToken::new(),
            subscriptions: Arc::default(),
            running: Running::default(),
            questions: Arc::default(),
            told: Mutex::new(
                seen.0.into_iter().map(|(topic, surface)| Told { topic, surface, seen: true }).collect(),
            ),
            subject: Arc::clone(subject),
            last_used_ms: AtomicU64::new(now),
            streams: AtomicUsize::new(0),
            newest_stream: AtomicU64::new(0),
        });
        *table.per_caller.entry(Arc::clone(subject)).or_default() += 1;
        table.by_id.insert(id, Arc::clone(&session));
        Some(session)
    }

    /// A caller's session. Unknown, ended, idle for too long and another caller's are all the same.
    pub(super) fn find(&self, id: &str, subject: &str) -> Option<Arc<Session>> {
        let now = self.now_ms();
        let mut table = self.table();
        let session = table.by_id.get(id).filter(|s| &*s.subject == subject).map(Arc::clone)?;
        if session.is_idle(now) {
            table.remove(id);
            return None;
        }
        session.last_used_ms.store(now, Ordering::Relaxed);
        Some(session)
    }

    /// Ends a caller's session; whether there was one.
    pub(super) fn end(&self, id: &str, subject: &str) -> bool {
        self.find(id, subject).is_some() && self.table().remove(id).is_some()
    }

    /// Forgets what was idle for too long.
    pub(super) fn sweep(&self) {
        let now = self.now_ms();
        self.table().remove_idle(now);
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.table().by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    fn open(sessions: &Sessions, subject: &str) -> Arc<Session> {
        sessions
            .open(
                &Arc::from(subject),
                Revision::V2025_11_25,
                Default::default(),
                Seen(vec![(Topic::Tools, Surface([0; 32]))]),
            )
            .unwrap()
    }

    #[test]
    fn a_session_is_its_callers_alone_and_ends_once() {
        let sessions = Sessions::new(Clock::manual());
        let session = open(&sessions, "alice");
        assert!(sessions.find(&session.id, "alice").is_some());
        assert!(sessions.find(&session.id, "bob").is_none());
        assert!(!sessions.end(&session.id, "bob") && sessions.end(&session.id, "alice"));
        assert!(!sessions.end(&session.id, "alice"));
        assert!(session.ended.is_cancelled() && sessions.find(&session.id, "alice").is_none());
    }

    #[test]
    fn a_change_is_told_once_and_again_only_if_nobody_listed_since() {
        let session = open(&Sessions::new(Clock::manual()), "a");
        let (same, other) = (Surface([0; 32]), Surface([1; 32]));
        let must_tell = |now, just_opened| session.must_tell(Topic::Tools, now, just_opened);
        assert!(!must_tell(same, true) && !must_tell(same, false));
        assert!(must_tell(other, false) && !must_tell(other, false));
        assert!(must_tell(other, true), "the first message may have gone into a dead connection");
        session.listed(Topic::Agents);
        assert!(must_tell(other, true), "another list says nothing of this one");
        session.listed(Topic::Tools);
        assert!(!must_tell(other, true));
        assert!(!session.must_tell(Topic::Agents, other, true), "it never declared that it knows agents");
    }

    #[test]
    fn ids_have_256_bits_and_never_repeat() {
        let sessions = Sessions::new(Clock::manual());
        let ids: HashSet<String> = (0..500).map(|_| open(&sessions, "a").id.clone()).collect();
        assert_eq!(ids.len(), 500);
        assert!(ids.iter().all(|id| id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())));
    }

    #[test]
    fn idle_sessions_end_unless_a_stream_is_open() {
        let clock = Clock::manual();
        let sessions = Sessions::new(clock.clone());
        let (idle, listening) = (open(&sessions, "a"), open(&sessions, "a"));
        let number = listening.stream_opened();
        clock.advance(SESSION_IDLE + Duration::from_secs(1));
        assert!(sessions.find(&idle.id, "a").is_none());
        sessions.sweep();
        assert_eq!(sessions.count(), 1);
        assert!(listening.is_newest_stream(number));
        listening.stream_closed(sessions.now_ms());
        clock.advance(SESSION_IDLE);
        assert!(sessions.find(&listening.id, "a").is_some(), "closing a stream counts as use");
    }

    #[test]
    fn a_caller_pushes_out_only_its_own_oldest() {
        let clock = Clock::manual();
        let sessions = Sessions::new(clock.clone());
        let (bob, first) = (open(&sessions, "bob"), open(&sessions, "alice"));
        for _ in 0..SESSIONS_PER_CALLER_MAX {
            clock.advance(Duration::from_millis(1));
            open(&sessions, "alice");
        }
        assert!(sessions.find(&first.id, "alice").is_none());
        assert!(sessions.find(&bob.id, "bob").is_some());
        assert_eq!(sessions.count(), SESSIONS_PER_CALLER_MAX + 1);
    }
}
