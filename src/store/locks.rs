//! Named locks: what only one of several nodes may do at a time (telling alerts, refreshing a credential that rotates).
//!
//! A lock ends by itself, so that a node that dies with it blocks nobody for long. Its holder therefore finishes, or takes it
//! again, before that; and whoever gets it first looks whether the work is done already, by the holder before.

use diesel::prelude::*;

use super::Store;
use super::conn::on_each;
use super::schema::locks;
use super::types::StoreError;
use crate::clock::At;

impl Store {
    /// Takes a lock until that time, or keeps it for longer; whether it is now the holder's.
    pub async fn take_lock(&self, name: String, holder: String, now: At, until: At) -> Result<bool, StoreError> {
        self.write(move |conn, _| {
            // The row's own lock decides between two nodes that find it expired at once: the later one sees what the first wrote.
            let mine_or_over = locks::until.le(now.micros()).or(locks::holder.eq(&holder));
            let taken = diesel::update(locks::table.filter(locks::name.eq(&name)).filter(mine_or_over))
                .set((locks::holder.eq(&holder), locks::until.eq(until.micros())))
                .execute(conn)?;
            if taken == 1 {
                return Ok(true);
            }
            let row = (locks::name.eq(&name), locks::holder.eq(&holder), locks::until.eq(until.micros()));
            let made =
                on_each!(conn, |c| diesel::insert_into(locks::table).values(row).on_conflict_do_nothing().execute(c))?;
            Ok(made == 1)
        })
        .await
    }

    /// Gives a lock back, if it is still the holder's.
    pub async fn release_lock(&self, name: String, holder: String) -> Result<(), StoreError> {
        self.write(move |conn, _| {
            let own = locks::table.filter(locks::name.eq(&name)).filter(locks::holder.eq(&holder));
            diesel::delete(own).execute(conn).map(drop).map_err(Into::into)
        })
        .await
    }
}
