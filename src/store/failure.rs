//! What can go wrong inside a transaction, and whom it concerns.

use diesel::result::{DatabaseErrorKind, Error as DbError};

use super::types::StoreError;

/// Why a transaction was given up.
#[derive(Debug)]
pub(super) enum Failure {
    /// The database said so.
    Database(DbError),
    /// The store itself found a reason.
    Store(StoreError),
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    /// Whether the connection itself is gone.
    pub(super) fn is_lost_connection(&self) -> bool {
        match self {
            Self::Database(
                DbError::DatabaseError(DatabaseErrorKind::ClosedConnection, _)
                | DbError::BrokenTransactionManager
                | DbError::RollbackErrorOnCommit { .. },
            ) => true,
            Self::Database(_) | Self::Store(_) => false,
        }
    }

    /// Whether every other write would fail by the same cause, so that trying them one by one only costs time.
    pub(super) fn hits_everyone(&self) -> bool {
        match self {
            Self::Database(DbError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)) => true,
            Self::Database(DbError::DatabaseError(_, info)) => {
                // SQLite after its busy time-out, PostgreSQL after its lock time-out: neither has a kind of its own.
                let text = info.message();
                text.contains("database is locked") || text.contains("due to lock timeout")
            }
            Self::Database(_) | Self::Store(_) => false,
        }
    }

    /// Whether the same write may succeed when it is simply done again (two nodes stood in each other's way).
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Database(DbError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)) => true,
            Self::Database(DbError::DatabaseError(_, info)) => info.message().contains("deadlock detected"),
            Self::Database(_) | Self::Store(_) => false,
        }
    }
}

impl From<Failure> for StoreError {
    /// Only the database's own message is passed on: its details may quote a row.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => error,
            Failure::Database(DbError::DatabaseError(
                kind @ (DatabaseErrorKind::CheckViolation
                | DatabaseErrorKind::NotNullViolation
                | DatabaseErrorKind::ForeignKeyViolation
                | DatabaseErrorKind::UniqueViolation),
                info,
            )) => Self::Inconsistent(format!("{kind:?}: {}", info.message())),
            Failure::Database(error @ DbError::DeserializationError(_)) => Self::Inconsistent(error.to_string()),
            Failure::Database(error) => Self::Unavailable(error.to_string()),
        }
    }
}

/// The same for a read.
pub(super) fn read_error(error: DbError) -> StoreError {
    Failure::Database(error).into()
}
