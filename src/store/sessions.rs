//! Sessions of the console: who is signed in, on whatever node.

use diesel::prelude::*;

use super::codec::clean;
use super::conn::{AnyConn, on_each};
use super::failure::Failure;
use super::job::{Job, Rare};
use super::readers::Reader;
use super::schema::{people, sessions, tokens};
use super::types::{Audit, NewSession, Role, SessionTerms, StoreError};
use super::{Store, changes, people as persons};
use crate::clock::At;

/// Uses that lie closer together are noted as one.
const NOTED_EVERY: i64 = 60_000_000;

impl Store {
    /// Begins a session, and sweeps out those that are over.
    pub async fn begin_session(
        &self,
        session: NewSession,
        terms: SessionTerms,
        audit: Audit,
    ) -> Result<(), StoreError> {
        self.write(move |conn, _| {
            let over = sessions::begun_at.lt(session.begun_at.minus(terms.longest).micros());
            diesel::delete(sessions::table.filter(over)).execute(conn)?;
            let row = (
                sessions::sha256.eq(&session.sha256),
                sessions::holder.eq(clean(&session.holder)),
                sessions::token_sha256.eq(session.token_sha256.as_deref()),
                sessions::begun_at.eq(session.begun_at.micros()),
                sessions::seen_at.eq(session.begun_at.micros()),
            );
            let made = on_each!(conn, |c| diesel::insert_into(sessions::table)
                .values(row)
                .on_conflict_do_nothing()
                .execute(c))?;
            if made == 1 {
                changes::insert_audit(conn, &audit)?;
            }
            Ok(())
        })
        .await
    }

    /// Who holds the session of that cookie, and what the holder may now; `None` where it is over, or its holder was shut out.
    /// `used`: a person did something, rather than a page that looks again by itself.
    pub async fn session(
        &self,
        sha256: Vec<u8>,
        at: At,
        terms: SessionTerms,
        used: bool,
    ) -> Result<Option<(String, Role)>, StoreError> {
        let hash = sha256.clone();
        let found = self.read_for(Reader::Intake, move |conn| holder(conn, &hash, at, terms)).await?;
        let Some((holder, role, seen_at)) = found else { return Ok(None) };
        if used && at.micros() - seen_at >= NOTED_EVERY {
            let person = holder.clone();
            let note = move |conn: &mut AnyConn, _: bool| {
                let own = sessions::table.find(&sha256).filter(sessions::seen_at.lt(at.micros()));
                diesel::update(own).set(sessions::seen_at.eq(at.micros())).execute(conn)?;
                diesel::update(people::table.find(&person)).set(people::last_used_at.eq(at.micros())).execute(conn)?;
                Ok(())
            };
            // A note nobody waits for: where the queue is full it is left out.
            let (task, _) = Rare::new(note, |()| false);
            let _ = self.try_send(Job::Rare(Box::new(task)));
        }
        Ok(Some((holder, role)))
    }

    /// Ends one session, or all of its holder.
    pub async fn end_sessions(&self, sha256: Vec<u8>, everywhere: bool, audit: Audit) -> Result<(), StoreError> {
        self.write(move |conn, _| {
            let own = sessions::table.find(&sha256);
            let holder: Option<String> = on_each!(conn, |c| own.select(sessions::holder).get_result(c)).optional()?;
            let Some(holder) = holder else { return Ok(()) };
            if everywhere {
                diesel::delete(sessions::table.filter(sessions::holder.eq(&holder))).execute(conn)?;
            } else {
                diesel::delete(own).execute(conn)?;
            }
            changes::insert_audit(conn, &audit)?;
            Ok(())
        })
        .await
    }

    /// Writes an entry of the audit log that belongs to no other change.
    pub async fn note(&self, audit: Audit) -> Result<(), StoreError> {
        self.write(move |conn, _| Ok(changes::insert_audit(conn, &audit)?)).await
    }
}

/// Holder, role, last use. A session stands on its token, or on its person.
fn holder(
    conn: &mut AnyConn,
    sha256: &[u8],
    at: At,
    terms: SessionTerms,
) -> Result<Option<(String, Role, i64)>, Failure> {
    type Found = (String, Option<Vec<u8>>, i64);
    let open = sessions::table
        .find(sha256)
        .filter(sessions::begun_at.gt(at.minus(terms.longest).micros()))
        .filter(sessions::seen_at.gt(at.minus(terms.idle).micros()))
        .select((sessions::holder, sessions::token_sha256, sessions::seen_at));
    let found: Option<Found> = on_each!(conn, |c| open.get_result(c)).optional()?;
    let Some((holder, token, seen_at)) = found else { return Ok(None) };
    let role: Option<String> = match token {
        Some(token) => {
            let active = tokens::table.find(token).filter(tokens::revoked_at.is_null()).select(tokens::role);
            on_each!(conn, |c| active.get_result(c)).optional()?
        }
        None => {
            let active = people::table.find(&holder).filter(people::disabled_at.is_null()).select(people::role);
            on_each!(conn, |c| active.get_result(c)).optional()?
        }
    };
    let Some(role) = role else { return Ok(None) };
    let role = persons::role(&holder, &role)?;
    Ok(Some((holder, role, seen_at)))
}
