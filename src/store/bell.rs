//! The bell between nodes: what one of them commits wakes the workers of the others, and the senders that wait there. On
//! PostgreSQL, by LISTEN and NOTIFY; a SQLite file has one node only.
//!
//! It saves time and is trusted with nothing: whoever waits also looks by itself now and then, so a node whose bell is silent (its
//! connection is gone, or a pooler gives each transaction another one) is slower, not wrong.
//!
//! The writer only leaves word ([`Outbox`]). A thread of its own rings, on a connection of its own: PostgreSQL lets the commits of
//! transactions that notify pass one at a time, and no lead shall stand in that line. Word that comes while it rings is told
//! together afterwards.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use diesel::PgConnection;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DbError;

use super::Store;
use super::conn::{Address, AnyConn, Purpose};
use super::shared::Shared;
use super::types::StoreError;
use crate::operation::OperationId;

/// The channel. All nodes of a database share it; word of other tables in it costs a look, no more.
const CHANNEL: &str = "leadonce";
/// How long what the others say may lie in the socket. To look costs no round trip.
const HEAR_EVERY: Duration = Duration::from_millis(10);
/// The least time between two rings: under load each wakes the others for many commits.
const GAP: Duration = Duration::from_millis(20);
/// How long a database that cannot be reached is left alone.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest a statement of the bell may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Finished operations that word is kept of; the senders that wait for those beyond look by themselves.
const KEPT: usize = 4096;
/// Ids in one message: PostgreSQL takes less than 8000 bytes.
const IDS: usize = 200;
/// Says that there is work.
const WORK: &str = "work";

/// What a commit brought about that concerns other nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct News {
    work: bool,
    finished: Vec<OperationId>,
}

impl News {
    const fn is_empty(&self) -> bool {
        !self.work && self.finished.is_empty()
    }

    /// In words, so many messages as it takes.
    fn messages(&self) -> Vec<String> {
        let mut words: Vec<String> = self.work.then(|| WORK.to_owned()).into_iter().collect();
        words.extend(self.finished.iter().map(ToString::to_string));
        words.chunks(IDS).map(|words| words.join(" ")).collect()
    }

    /// Reads one message; what is not understood is of a later version.
    fn read(message: &str) -> Self {
        let mut news = Self::default();
        for word in message.split_whitespace() {
            match word.parse() {
                Ok(id) => news.finished.push(id),
                Err(_) => news.work |= word == WORK,
            }
        }
        news
    }
}

/// Where the writer leaves word for the bell.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    news: Mutex<News>,
    arrived: Condvar,
}

impl Outbox {
    /// Leaves word.
    pub(super) fn put(&self, work: bool, finished: &[OperationId]) {
        let mut news = self.lock();
        news.work |= work;
        let room = KEPT.saturating_sub(news.finished.len());
        news.finished.extend(finished.iter().take(room));
        if !news.is_empty() {
            self.arrived.notify_one();
        }
    }

    /// Takes what was left; waits a little for it.
    fn take(&self) -> News {
        let waited = self.arrived.wait_timeout_while(self.lock(), HEAR_EVERY, |news| news.is_empty());
        let (mut news, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *news)
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that hears, and is rung on.
struct Rope {
    conn: PgConnection,
    /// Its number at the server: what we rang ourselves is no news.
    own: i32,
}

impl Rope {
    fn open(address: &Address) -> Result<Self, StoreError> {
        let AnyConn::Postgres(mut conn) = address.connect(Purpose::Reader(PATIENCE))? else {
            return Err(StoreError::Inconsistent("a bell is for PostgreSQL".into()));
        };
        let own = diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>("pg_backend_pid()"))
            .get_result(&mut conn)
            .and_then(|own| conn.batch_execute(&format!("LISTEN {CHANNEL}")).map(|()| own))
            .map_err(|e| StoreError::Unavailable(e.to_string()))?;
        Ok(Self { conn, own })
    }

    /// Tells the others, in one round trip.
    fn ring(&mut self, news: &News) -> Result<(), DbError> {
        // Word need not survive a power cut, so no flush of the disk. For this transaction alone: behind a pooler the next one on
        // this connection may be a lead's.
        let mut sql = "BEGIN; SET LOCAL synchronous_commit = off;".to_owned();
        for message in news.messages() {
            // Ids and a fixed word: nothing in it could end the text.
            sql.push_str(&format!("NOTIFY {CHANNEL}, '{message}';"));
        }
        sql.push_str("COMMIT");
        self.conn.batch_execute(&sql)
    }

    /// What the others have told since.
    fn hear(&mut self) -> Result<Vec<News>, DbError> {
        let own = self.own;
        let others = |heard: &Result<diesel::pg::PgNotification, _>| !heard.as_ref().is_ok_and(|n| n.process_id == own);
        self.conn.notifications_iter().filter(others).map(|heard| heard.map(|n| News::read(&n.payload))).collect()
    }
}

/// Rings and hears. Whoever owns it gives it a thread.
pub struct Bell {
    shared: Weak<Shared>,
    address: Address,
    rope: Option<Rope>,
    /// The failure was told; not again before it is over.
    told: bool,
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bell(connected: {})", self.rope.is_some())
    }
}

impl Store {
    /// The bell between the nodes of this store; `None` where there can be one only. It connects when it first steps.
    pub fn bell(&self) -> Option<Bell> {
        self.shared.outbox.as_ref()?;
        Some(Bell {
            shared: std::sync::Arc::downgrade(&self.shared),
            address: self.address.clone(),
            rope: None,
            told: false,
        })
    }
}

impl Bell {
    /// Rings and hears for some milliseconds; `false` once the store is closed. Blocks.
    pub fn step(&mut self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let pause = match self.ring_and_hear(&shared) {
            Ok(rang) => {
                self.told = false;
                if rang { GAP } else { Duration::ZERO }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(%error, "other nodes cannot be heard; work of theirs is found by looking for it");
                }
                AGAIN
            }
        };
        drop(shared);
        std::thread::sleep(pause);
        true
    }

    /// Whether it rang.
    fn ring_and_hear(&mut self, shared: &Shared) -> Result<bool, StoreError> {
        let Some(outbox) = &shared.outbox else { return Ok(false) };
        let mut rope = match self.rope.take() {
            Some(rope) => rope,
            None => {
                let rope = Rope::open(&self.address)?;
                // Whatever was told before we listened.
                shared.wake();
                rope
            }
        };
        let news = outbox.take();
        let rang = !news.is_empty();
        let done = if rang { rope.ring(&news) } else { Ok(()) };
        let heard = done.and_then(|()| rope.hear()).map_err(|error| {
            // Told twice is no harm.
            outbox.put(news.work, &news.finished);
            StoreError::Unavailable(error.to_string())
        })?;
        self.rope = Some(rope);
        if heard.iter().any(|news| news.work) {
            shared.wake();
        }
        for id in heard.into_iter().flat_map(|news| news.finished) {
            // Nobody may be listening.
            let _ = shared.finished.send(id);
        }
        Ok(rang)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: u128) -> Vec<OperationId> {
        (1..=count).map(|number| OperationId(uuid::Uuid::from_u128(number))).collect()
    }

    #[test]
    fn what_is_told_is_understood_in_messages_that_postgresql_takes() {
        let news = News { work: true, finished: ids(1_000) };
        let messages = news.messages();
        assert!(messages.iter().all(|message| message.len() < 8_000), "{}", messages[0].len());
        let mut heard = News::default();
        for message in &messages {
            let news = News::read(message);
            heard.work |= news.work;
            heard.finished.extend(news.finished);
        }
        assert_eq!(heard, news);
        assert!(News::read("a word of a later version").is_empty());
        assert!(News::default().messages().is_empty());
    }

    #[test]
    fn word_is_collected_until_it_is_taken_and_has_a_bound() {
        let outbox = Outbox::default();
        outbox.put(false, &ids(1));
        outbox.put(true, &[]);
        assert_eq!(outbox.take(), News { work: true, finished: ids(1) });
        assert!(outbox.take().is_empty());
        outbox.put(false, &ids(10_000));
        assert_eq!(outbox.take().finished.len(), KEPT);
    }
}
