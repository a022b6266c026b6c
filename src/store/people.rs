//! People who sign in with a name and a password. What a password is and how it is checked is the business of `http`.

use diesel::prelude::*;

use super::codec::{self, clean};
use super::conn::{AnyConn, on_each};
use super::readers::Reader;
use super::schema::{people, sessions, tokens};
use super::types::{Audit, Person, PersonChange, Role, StoreError};
use super::{Store, changes};
use crate::clock::At;

#[derive(Queryable, Selectable)]
#[diesel(table_name = people)]
struct PersonRow {
    name: String,
    role: String,
    created_at: i64,
    disabled_at: Option<i64>,
    last_used_at: Option<i64>,
}

impl TryFrom<PersonRow> for Person {
    type Error = StoreError;

    fn try_from(row: PersonRow) -> Result<Self, StoreError> {
        Ok(Self {
            role: role(&row.name, &row.role)?,
            name: row.name,
            created_at: At::from_micros(row.created_at),
            disabled_at: row.disabled_at.map(At::from_micros),
            last_used_at: row.last_used_at.map(At::from_micros),
        })
    }
}

pub(super) fn role(name: &str, stored: &str) -> Result<Role, StoreError> {
    codec::named(&Role::ALL, |r| r.as_str(), Some(stored), "role")
        .map_err(|what| StoreError::Inconsistent(format!("{name:?}: {what}")))
}

impl Store {
    /// Makes a person; `false` where one of that name exists, also where shut out.
    pub async fn create_person(
        &self,
        name: String,
        role: Role,
        password_hash: String,
        audit: Audit,
    ) -> Result<bool, StoreError> {
        let name = clean(&name);
        self.write(move |conn, again| {
            let row = (
                people::name.eq(&name),
                people::role.eq(role.as_str()),
                people::password_hash.eq(&password_hash),
                people::created_at.eq(audit.at.micros()),
            );
            let made =
                on_each!(conn, |c| diesel::insert_into(people::table).values(row).on_conflict_do_nothing().execute(c))?;
            if made == 1 {
                changes::insert_audit(conn, &audit)?;
            } else if again {
                // The salt makes the hash this very write's own.
                let own = people::table.find(&name).filter(people::password_hash.eq(&password_hash));
                return Ok(diesel::select(diesel::dsl::exists(own)).get_result(conn)?);
            }
            Ok(made == 1)
        })
        .await
    }

    /// Whether anybody can sign in or hold a token. By the chores' connection: a node that starts needs no other for it.
    pub async fn has_operators(&self) -> Result<bool, StoreError> {
        self.read(|conn| {
            let people = people::table.filter(people::disabled_at.is_null());
            let tokens = tokens::table.filter(tokens::revoked_at.is_null());
            let (people, tokens) = (diesel::dsl::exists(people), diesel::dsl::exists(tokens));
            Ok(diesel::select(people.or(tokens)).get_result(conn)?)
        })
        .await
    }

    /// All people, by name.
    pub async fn people(&self) -> Result<Vec<Person>, StoreError> {
        self.read_for(Reader::Admin, |conn| {
            let rows: Vec<PersonRow> = people::table.order(people::name).select(PersonRow::as_select()).load(conn)?;
            Ok(rows.into_iter().map(Person::try_from).collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The password's hash of a person who is not shut out.
    pub async fn password_hash(&self, name: &str) -> Result<Option<String>, StoreError> {
        let name = clean(name);
        self.read_for(Reader::Admin, move |conn| {
            let active = people::table.find(&name).filter(people::disabled_at.is_null());
            Ok(on_each!(conn, |c| active.select(people::password_hash).get_result(c)).optional()?)
        })
        .await
    }

    /// Changes a person; whether there is one. All that change what a session stands on (password, being shut out) end the
    /// person's sessions in the same commit; a changed role holds for the open ones at once.
    pub async fn change_person(&self, name: String, change: PersonChange, audit: Audit) -> Result<bool, StoreError> {
        let name = clean(&name);
        self.write(move |conn: &mut AnyConn, _| {
            let row = people::table.find(&name);
            if on_each!(conn, |c| row.select(people::name).get_result::<String>(c)).optional()?.is_none() {
                return Ok(false);
            }
            if let Some(role) = change.role {
                diesel::update(row).set(people::role.eq(role.as_str())).execute(conn)?;
            }
            if let Some(hash) = &change.password_hash {
                diesel::update(row).set(people::password_hash.eq(hash)).execute(conn)?;
            }
            if let Some(disabled) = change.disabled {
                let at = disabled.then(|| audit.at.micros());
                diesel::update(row).set(people::disabled_at.eq(at)).execute(conn)?;
            }
            if change.password_hash.is_some() || change.disabled == Some(true) {
                let own = sessions::table.filter(sessions::holder.eq(&name)).filter(sessions::token_sha256.is_null());
                diesel::delete(own).execute(conn)?;
            }
            changes::insert_audit(conn, &audit)?;
            Ok(true)
        })
        .await
    }
}
