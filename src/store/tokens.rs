//! Bearer tokens: shown once, kept as SHA-256.

use diesel::prelude::*;

use super::codec::{self, clean};
use super::conn::on_each;
use super::job::{Job, Rare};
use super::readers::Reader;
use super::schema::tokens;
use super::types::{Audit, Role, StoreError, Token};
use super::{Store, changes};
use crate::clock::At;

/// Uses of a token that lie closer together are noted as one.
const NOTED_EVERY: i64 = 60_000_000;

#[derive(Queryable, Selectable)]
#[diesel(table_name = tokens)]
struct TokenRow {
    name: String,
    role: String,
    created_at: i64,
    revoked_at: Option<i64>,
    last_used_at: Option<i64>,
}

impl TryFrom<TokenRow> for Token {
    type Error = StoreError;

    fn try_from(row: TokenRow) -> Result<Self, StoreError> {
        let role = codec::named(&Role::ALL, |r| r.as_str(), Some(&row.role), "role");
        Ok(Self {
            role: role.map_err(|what| StoreError::Inconsistent(format!("token {:?}: {what}", row.name)))?,
            name: row.name,
            created_at: At::from_micros(row.created_at),
            revoked_at: row.revoked_at.map(At::from_micros),
            last_used_at: row.last_used_at.map(At::from_micros),
        })
    }
}

impl Store {
    /// Makes a token; `false` where an active token of that name exists.
    pub async fn create_token(
        &self,
        name: String,
        role: Role,
        sha256: Vec<u8>,
        audit: Audit,
    ) -> Result<bool, StoreError> {
        let name = clean(&name);
        self.write(move |conn, again| {
            let row = (
                tokens::sha256.eq(&sha256),
                tokens::name.eq(&name),
                tokens::role.eq(role.as_str()),
                tokens::created_at.eq(audit.at.micros()),
            );
            let made =
                on_each!(conn, |c| diesel::insert_into(tokens::table).values(row).on_conflict_do_nothing().execute(c))?;
            if made == 1 {
                changes::insert_audit(conn, &audit)?;
            } else if again {
                let own = tokens::table.find(&sha256).filter(tokens::revoked_at.is_null());
                return Ok(diesel::select(diesel::dsl::exists(own)).get_result(conn)?);
            }
            Ok(made == 1)
        })
        .await
    }

    /// The active token of that hash; notes its use, to the minute.
    pub async fn token(&self, sha256: Vec<u8>, at: At) -> Result<Option<Token>, StoreError> {
        let hash = sha256.clone();
        let found = self
            // Who asks for a status has not to wait behind the operators' searches.
            .read_for(Reader::Intake, move |conn| {
                let row: Option<TokenRow> = on_each!(conn, |c| tokens::table
                    .find(&hash)
                    .filter(tokens::revoked_at.is_null())
                    .select(TokenRow::as_select())
                    .get_result(c))
                .optional()?;
                Ok(row.map(Token::try_from).transpose()?)
            })
            .await?;
        let noted = |token: &Token| token.last_used_at.is_some_and(|used| at.micros() - used.micros() < NOTED_EVERY);
        if found.as_ref().is_some_and(|token| !noted(token)) {
            let note = move |conn: &mut super::conn::AnyConn, _: bool| {
                let older = tokens::last_used_at.is_null().or(tokens::last_used_at.lt(at.micros()));
                diesel::update(tokens::table.find(&sha256).filter(older))
                    .set(tokens::last_used_at.eq(at.micros()))
                    .execute(conn)?;
                Ok(())
            };
            // A note nobody waits for: where the queue is full it is left out.
            let (task, _) = Rare::new(note, |()| false);
            let _ = self.try_send(Job::Rare(Box::new(task)));
        }
        Ok(found)
    }

    /// All tokens, by the time they were made.
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.read_for(Reader::Admin, |conn| {
            let rows: Vec<TokenRow> =
                tokens::table.order((tokens::created_at, tokens::name)).select(TokenRow::as_select()).load(conn)?;
            Ok(rows.into_iter().map(Token::try_from).collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Revokes; whether there was one.
    pub async fn revoke_token(&self, name: String, audit: Audit) -> Result<bool, StoreError> {
        let name = clean(&name);
        self.write(move |conn, again| {
            let of_name = tokens::table.filter(tokens::name.eq(&name));
            let revoked = diesel::update(of_name.filter(tokens::revoked_at.is_null()))
                .set(tokens::revoked_at.eq(audit.at.micros()))
                .execute(conn)?;
            if revoked > 0 {
                changes::insert_audit(conn, &audit)?;
            } else if again {
                let own = of_name.filter(tokens::revoked_at.eq(audit.at.micros()));
                return Ok(diesel::select(diesel::dsl::exists(own)).get_result(conn)?);
            }
            Ok(revoked > 0)
        })
        .await
    }
}
