//! What waits for a person's yes, what was granted until when, and which answers were used: the rows behind the
//! confirm gate. Everything ends by itself; each method is one transaction, so that two processes of one data
//! directory cannot use one yes twice.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Family, Store, StoreError};

/// The tables. Hashes of arguments are bytes, times milliseconds since the epoch.
pub(super) const FAMILY: Family = Family {
    name: "confirmations",
    migrations: &["CREATE TABLE questions (
            id TEXT PRIMARY KEY,
            caller TEXT NOT NULL,
            tool TEXT NOT NULL,
            arguments BLOB NOT NULL,
            question TEXT NOT NULL,
            summary TEXT NOT NULL,
            file TEXT NOT NULL,
            line INTEGER NOT NULL,
            state TEXT NOT NULL,
            expires_ms INTEGER NOT NULL
        ) STRICT;
        CREATE UNIQUE INDEX questions_by_call ON questions (caller, tool, arguments, question);
        CREATE TABLE grants (
            caller TEXT NOT NULL,
            tool TEXT NOT NULL,
            id TEXT NOT NULL UNIQUE,
            question TEXT NOT NULL,
            given_by TEXT NOT NULL,
            issued_ms INTEGER NOT NULL,
            used_ms INTEGER NOT NULL,
            PRIMARY KEY (caller, tool)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE answers (position INTEGER PRIMARY KEY) STRICT;"],
    opened: None,
    sweep: Some(sweep),
};

/// A question waits this long for an operator.
pub const QUESTION_TTL_MS: u64 = 10 * 60 * 1_000;
/// A grant that is not used ends after this long …
pub const GRANT_IDLE_MS: u64 = 15 * 60 * 1_000;
/// … and one that is used after this long: nobody's yes holds for the whole day.
pub const GRANT_TTL_MS: u64 = 30 * 60 * 1_000;
/// Questions of one caller that wait at once; its oldest make room.
pub const QUESTIONS_PER_CALLER_MAX: usize = 20;
/// Questions that wait at once: more is nobody going to read.
const QUESTIONS_MAX: usize = 1_000;
/// Grants that hold at once; the one that ends first makes room.
const GRANTS_MAX: usize = 10_000;
/// Used answers remembered until they are too old to be used again.
const ANSWERS_MAX: usize = 100_000;
/// Grants that have ended are remembered this long, so that the caller is told why it is asked again.
const ENDED_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// How a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionState {
    /// Nobody has answered.
    Waiting,
    /// Yes, to one call.
    ApprovedOnce,
    /// No.
    Denied,
}

impl QuestionState {
    /// `waiting`, `approved_once` or `denied`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::ApprovedOnce => "approved_once",
            Self::Denied => "denied",
        }
    }

    /// What is not known is no yes.
    fn of(word: &str) -> Self {
        match word {
            "approved_once" => Self::ApprovedOnce,
            "denied" => Self::Denied,
            _ => Self::Waiting,
        }
    }
}

/// A call that needs a yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRow {
    /// Who calls.
    pub caller: String,
    /// The tool's id.
    pub tool: String,
    /// Hash of the canonical arguments.
    pub arguments: [u8; 32],
    /// The policy's question.
    pub question: String,
}

/// A question that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionRow {
    /// Names it to operators.
    pub id: String,
    /// The call.
    pub call: CallRow,
    /// The arguments in a few words.
    pub summary: String,
    /// The file of the rule that asks, and its line.
    pub rule: (String, usize),
    /// How it stands.
    pub state: QuestionState,
    /// When it is dropped.
    pub expires_ms: u64,
}

/// A grant that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Names it to operators.
    pub id: String,
    /// Whose it is.
    pub caller: String,
    /// The tool's id.
    pub tool: String,
    /// The question that was answered.
    pub question: String,
    /// Who answered.
    pub given_by: String,
    /// When it was given.
    pub issued_ms: u64,
    /// When it was used last.
    pub used_ms: u64,
}

impl GrantRow {
    /// When it ends for good.
    pub fn expires_ms(&self) -> u64 {
        self.issued_ms.saturating_add(GRANT_TTL_MS)
    }

    /// When it ends unless it is used.
    pub fn idle_ms(&self) -> u64 {
        self.used_ms.saturating_add(GRANT_IDLE_MS)
    }

    /// Why it has ended, if it has.
    fn ended(&self, now_ms: u64) -> Option<&'static str> {
        if now_ms >= self.expires_ms() {
            Some("it had reached its end")
        } else if now_ms >= self.idle_ms() {
            Some("it was not used for a while")
        } else {
            None
        }
    }
}

/// Whether a call is covered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Covered {
    /// By a grant, which was used now.
    Granted(GrantRow),
    /// By a yes to this very call, which is used up now.
    Once,
    /// A person said no to this very call.
    Denied,
    /// There was a grant: why it does not cover the call.
    Decayed(&'static str),
    /// No.
    Not,
}

/// What came of an operator's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// Nothing of this id waits.
    Unknown,
    /// The caller that asks is the one that answers.
    Own,
    /// Taken, for this caller and tool.
    Done(String, String),
}

fn millis(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn sweep(db: &Connection, now_ms: i64) -> rusqlite::Result<()> {
    db.execute("DELETE FROM questions WHERE expires_ms <= ?1", params![now_ms])?;
    let ended = now_ms.saturating_sub(millis(GRANT_TTL_MS + ENDED_KEPT_MS));
    db.execute("DELETE FROM grants WHERE issued_ms <= ?1", params![ended])?;
    db.execute("DELETE FROM answers WHERE position <= ?1", params![now_ms]).map(drop)
}

fn unsigned(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

fn question(row: &Row<'_>) -> rusqlite::Result<QuestionRow> {
    Ok(QuestionRow {
        id: row.get("id")?,
        call: CallRow {
            caller: row.get("caller")?,
            tool: row.get("tool")?,
            arguments: row.get("arguments")?,
            question: row.get("question")?,
        },
        summary: row.get("summary")?,
        rule: (row.get("file")?, usize::try_from(row.get::<_, i64>("line")?).unwrap_or(0)),
        state: QuestionState::of(&row.get::<_, String>("state")?),
        expires_ms: unsigned(row, "expires_ms")?,
    })
}

fn grant(row: &Row<'_>) -> rusqlite::Result<GrantRow> {
    Ok(GrantRow {
        id: row.get("id")?,
        caller: row.get("caller")?,
        tool: row.get("tool")?,
        question: row.get("question")?,
        given_by: row.get("given_by")?,
        issued_ms: unsigned(row, "issued_ms")?,
        used_ms: unsigned(row, "used_ms")?,
    })
}

fn asked_before(db: &Connection, call: &CallRow, now_ms: u64) -> rusqlite::Result<Option<QuestionRow>> {
    db.query_row(
        "SELECT * FROM questions
         WHERE caller = ?1 AND tool = ?2 AND arguments = ?3 AND question = ?4 AND expires_ms > ?5",
        params![call.caller, call.tool, call.arguments, call.question, millis(now_ms)],
        question,
    )
    .optional()
}

/// Makes room for one more question of a caller, at the cost of its own oldest, else of the oldest of all.
fn make_room(db: &Connection, caller: &str) -> rusqlite::Result<()> {
    let drop_oldest = "DELETE FROM questions WHERE id IN (
        SELECT id FROM questions WHERE caller = ?1 OR ?1 IS NULL ORDER BY expires_ms DESC, id LIMIT -1 OFFSET ?2)";
    db.execute(drop_oldest, params![caller, count(QUESTIONS_PER_CALLER_MAX - 1)])?;
    db.execute(drop_oldest, params![None::<&str>, count(QUESTIONS_MAX - 1)]).map(drop)
}

impl Store {
    /// Whether a call is covered; a grant that covers it lives on, a yes to this call alone is used up.
    pub async fn cover(&self, call: CallRow, now_ms: u64) -> Result<Covered, StoreError> {
        self.write(move |db| {
            let found = asked_before(db, &call, now_ms)?;
            match found.as_ref().map(|q| q.state) {
                Some(QuestionState::Denied) => return Ok(Covered::Denied),
                Some(QuestionState::ApprovedOnce) => {
                    let id = found.map(|q| q.id);
                    db.execute("DELETE FROM questions WHERE id = ?1", params![id])?;
                    return Ok(Covered::Once);
                }
                Some(QuestionState::Waiting) | None => {}
            }
            let place = params![call.caller, call.tool];
            let sql = "SELECT * FROM grants WHERE caller = ?1 AND tool = ?2";
            let Some(mut held) = db.query_row(sql, place, grant).optional()? else {
                return Ok(Covered::Not);
            };
            if let Some(why) = held.ended(now_ms) {
                db.execute("DELETE FROM grants WHERE caller = ?1 AND tool = ?2", place)?;
                return Ok(Covered::Decayed(why));
            }
            if held.question != call.question {
                return Ok(Covered::Decayed("the policy asks another question now"));
            }
            held.used_ms = now_ms;
            let sql = "UPDATE grants SET used_ms = ?3 WHERE caller = ?1 AND tool = ?2";
            db.execute(sql, params![call.caller, call.tool, millis(now_ms)])?;
            Ok(Covered::Granted(held))
        })
        .await
    }

    /// Puts a question where operators see it; the same call asked again is the same question, under the id that
    /// it has. Returns the id.
    pub async fn ask(&self, asked: QuestionRow, now_ms: u64) -> Result<String, StoreError> {
        self.write(move |db| {
            sweep(db, millis(now_ms))?;
            let call = &asked.call;
            let id = match asked_before(db, call, now_ms)? {
                Some(found) => found.id,
                None => {
                    make_room(db, &call.caller)?;
                    asked.id
                }
            };
            db.execute(
                "INSERT OR REPLACE INTO questions
                    (id, caller, tool, arguments, question, summary, file, line, state, expires_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    id,
                    call.caller,
                    call.tool,
                    call.arguments,
                    call.question,
                    asked.summary,
                    asked.rule.0,
                    count(asked.rule.1),
                    asked.state.word(),
                    millis(asked.expires_ms)
                ],
            )?;
            Ok(id)
        })
        .await
    }

    /// What waits and what holds, in the order in which it ends.
    pub async fn confirmations(&self, now_ms: u64) -> Result<(Vec<QuestionRow>, Vec<GrantRow>), StoreError> {
        self.read(move |db| {
            let mut waiting =
                db.prepare("SELECT * FROM questions WHERE expires_ms > ?1 ORDER BY expires_ms, id")?;
            let waiting = waiting.query_map(params![millis(now_ms)], question)?.collect::<Result<_, _>>()?;
            let mut held = db.prepare("SELECT * FROM grants ORDER BY issued_ms, id")?;
            let held: Vec<GrantRow> = held.query_map([], grant)?.collect::<Result<_, _>>()?;
            Ok((waiting, held.into_iter().filter(|g| g.ended(now_ms).is_none()).collect()))
        })
        .await
    }

    /// An operator's answer to a question: to the one call, or, where `grant_id` is given, a grant of this id for
    /// the caller and the tool.
    pub async fn settle(
        &self,
        id: &str,
        by: &str,
        (state, grant_id): (QuestionState, Option<String>),
        now_ms: u64,
    ) -> Result<Settled, StoreError> {
        let (id, by) = (id.to_owned(), by.to_owned());
        self.write(move |db| {
            let sql = "SELECT * FROM questions WHERE id = ?1 AND state = 'waiting' AND expires_ms > ?2";
            let found = db.query_row(sql, params![id, millis(now_ms)], question).optional()?;
            let Some(QuestionRow { call, .. }) = found else { return Ok(Settled::Unknown) };
            if call.caller == by {
                return Ok(Settled::Own);
            }
            let Some(grant_id) = grant_id else {
                db.execute("UPDATE questions SET state = ?2 WHERE id = ?1", params![id, state.word()])?;
                return Ok(Settled::Done(call.caller, call.tool));
            };
            db.execute("DELETE FROM questions WHERE id = ?1", params![id])?;
            let sql = "DELETE FROM grants WHERE id IN (SELECT id FROM grants ORDER BY issued_ms DESC, id LIMIT -1 OFFSET ?1)";
            db.execute(sql, params![count(GRANTS_MAX - 1)])?;
            db.execute(
                "INSERT OR REPLACE INTO grants (caller, tool, id, question, given_by, issued_ms, used_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
                params![call.caller, call.tool, grant_id, call.question, by, millis(now_ms)],
            )?;
            Ok(Settled::Done(call.caller, call.tool))
        })
        .await
    }

    /// Ends a grant before its time: whose it was and for which tool, if there was one.
    pub async fn revoke_grant(&self, id: &str) -> Result<Option<(String, String)>, StoreError> {
        let id = id.to_owned();
        self.write(move |db| {
            let sql = "DELETE FROM grants WHERE id = ?1 RETURNING caller, tool";
            db.query_row(sql, params![id], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })
        .await
    }

    /// Uses up an answer by its position, which is when it ends: whether it still holds and was not used before.
    pub async fn spend(&self, position: u64, now_ms: u64) -> Result<bool, StoreError> {
        if position <= now_ms {
            return Ok(false);
        }
        self.write(move |db| {
            db.execute("DELETE FROM answers WHERE position <= ?1", params![millis(now_ms)])?;
            let used: i64 = db.query_row("SELECT count(*) FROM answers", [], |row| row.get(0))?;
            // A full memory takes no answers rather than taking one twice.
            if used >= count(ANSWERS_MAX) {
                return Ok(false);
            }
            let sql = "INSERT OR IGNORE INTO answers (position) VALUES (?1)";
            Ok(db.execute(sql, params![millis(position)])? == 1)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(caller: &str, arguments: u8) -> CallRow {
        let (caller, tool) = (caller.to_owned(), "a.b".to_owned());
        CallRow { caller, tool, arguments: [arguments; 32], question: "Really?".to_owned() }
    }

    async fn ask(store: &Store, caller: &str, arguments: u8, now_ms: u64) -> String {
        let row = QuestionRow {
            id: format!("{caller}-{arguments}-{now_ms}"),
            call: call(caller, arguments),
            summary: String::new(),
            rule: ("p.rhai".to_owned(), 1),
            state: QuestionState::Waiting,
            expires_ms: now_ms + QUESTION_TTL_MS,
        };
        store.ask(row, now_ms).await.unwrap()
    }

    async fn settle(store: &Store, id: &str, by: &str, answer: (QuestionState, Option<&str>)) -> Settled {
        store.settle(id, by, (answer.0, answer.1.map(str::to_owned)), 0).await.unwrap()
    }

    const GRANT: (QuestionState, Option<&str>) = (QuestionState::ApprovedOnce, Some("g"));

    #[tokio::test]
    async fn a_grant_slides_with_use_up_to_its_end_and_its_end_is_told_once() {
        let store = Store::in_memory();
        let id = ask(&store, "a", 1, 0).await;
        assert_eq!(ask(&store, "a", 1, 1).await, id, "the same call is the same question");
        settle(&store, &id, "operator", GRANT).await;
        let cover =
            async |caller: &str, arguments, now| store.cover(call(caller, arguments), now).await.unwrap();
        assert_eq!(cover("b", 1, 1).await, Covered::Not, "another caller");
        let Covered::Granted(held) = cover("a", 2, 600_000).await else { panic!("another call of the tool") };
        assert_eq!((held.expires_ms(), held.idle_ms()), (1_800_000, 1_500_000));
        assert!(matches!(cover("a", 1, 1_499_999).await, Covered::Granted(_)), "it slid");
        assert_eq!(cover("a", 1, 1_800_000).await, Covered::Decayed("it had reached its end"));
        assert_eq!(cover("a", 1, 1_800_000).await, Covered::Not);

        let id = ask(&store, "a", 1, 0).await;
        settle(&store, &id, "operator", GRANT).await;
        let other = CallRow { question: "Truly?".to_owned(), ..call("a", 1) };
        assert!(
            matches!(store.cover(other, 1).await.unwrap(), Covered::Decayed(_)),
            "a yes is to one question"
        );
        assert_eq!(cover("a", 1, 900_000).await, Covered::Decayed("it was not used for a while"));
    }

    #[tokio::test]
    async fn a_yes_to_one_call_is_used_up_and_a_no_stays_until_it_ends() {
        let store = Store::in_memory();
        let id = ask(&store, "a", 1, 0).await;
        assert_eq!(settle(&store, &id, "a", GRANT).await, Settled::Own);
        assert_eq!(settle(&store, "other", "operator", GRANT).await, Settled::Unknown);
        let once = (QuestionState::ApprovedOnce, None);
        let done = Settled::Done("a".to_owned(), "a.b".to_owned());
        assert_eq!(settle(&store, &id, "operator", once).await, done);
        assert_eq!(settle(&store, &id, "operator", once).await, Settled::Unknown, "it was answered");
        let cover = async |arguments, now| store.cover(call("a", arguments), now).await.unwrap();
        assert_eq!(cover(2, 1).await, Covered::Not, "another call");
        assert_eq!((cover(1, 2).await, cover(1, 3).await), (Covered::Once, Covered::Not));
        let id = ask(&store, "a", 1, 0).await;
        settle(&store, &id, "operator", (QuestionState::Denied, None)).await;
        assert_eq!((cover(1, 1).await, cover(1, 2).await), (Covered::Denied, Covered::Denied));
        assert_eq!(cover(1, QUESTION_TTL_MS).await, Covered::Not);
    }

    #[tokio::test]
    async fn one_callers_questions_crowd_out_nobody_elses() {
        let store = Store::in_memory();
        let other = ask(&store, "b", 0, 0).await;
        for n in 0..30 {
            ask(&store, "a", n, u64::from(n)).await;
        }
        let (waiting, _) = store.confirmations(30).await.unwrap();
        let of_a: Vec<u8> =
            waiting.iter().filter(|q| q.call.caller == "a").map(|q| q.call.arguments[0]).collect();
        assert_eq!(of_a, (10..30).collect::<Vec<u8>>(), "the newest stay");
        assert!(waiting.iter().any(|q| q.id == other));
        assert_eq!(store.confirmations(QUESTION_TTL_MS + 100).await.unwrap().0, []);
    }

    #[tokio::test]
    async fn an_answer_is_used_once_and_not_after_its_time_and_a_revoked_grant_is_gone() {
        let store = Store::in_memory();
        assert!(store.spend(1_000, 0).await.unwrap() && !store.spend(1_000, 0).await.unwrap());
        assert!(!store.spend(1_001, 1_001).await.unwrap());
        let id = ask(&store, "a", 1, 0).await;
        settle(&store, &id, "operator", GRANT).await;
        assert_eq!(store.confirmations(0).await.unwrap().1[0].id, "g");
        assert!(store.revoke_grant("g").await.unwrap().is_some());
        assert_eq!(store.cover(call("a", 1), 0).await.unwrap(), Covered::Not);
        assert_eq!(store.revoke_grant("g").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_sweep_takes_what_has_ended() {
        let store = Store::in_memory();
        let id = ask(&store, "a", 1, 0).await;
        ask(&store, "a", 2, 0).await;
        settle(&store, &id, "operator", GRANT).await;
        store.spend(5_000, 0).await.unwrap();
        store.sweep(GRANT_TTL_MS + ENDED_KEPT_MS).await.unwrap();
        let left = |table: &'static str| {
            let sql = format!("SELECT count(*) FROM {table}");
            store.read(move |db| db.query_row(&sql, [], |row| row.get::<_, i64>(0)))
        };
        for table in ["questions", "grants", "answers"] {
            assert_eq!(left(table).await.unwrap(), 0, "{table}");
        }
    }
}
