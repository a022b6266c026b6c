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

    /// Whether this connection leads to a server that only reads: one that was switched over, or a connection that was opened
    /// while it was. Another connection may lead to the one that writes.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self, Self::Database(DbError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)))
    }

    /// Whether every other write would fail by the same cause, so that trying them one by one only costs time.
    pub(super) fn hits_everyone(&self) -> bool {
        // Neither backend's library has a kind for these. PostgreSQL may say them in another language: the writer also gives
        // up where several writes in a row fail without a fault of their own.
        const SIGNS: [&str; 8] = [
            "database is locked",
            "database or disk is full",
            "disk I/O error",
            "unable to open database file",
            "due to lock timeout",
            "due to statement timeout",
            "could not extend file",
            "No space left on device",
        ];
        match self {
            Self::Database(DbError::DatabaseError(_, info)) => {
                self.is_read_only() || SIGNS.iter().any(|sign| info.message().contains(sign))
            }
            Self::Database(_) | Self::Store(_) => false,
        }
    }

    /// Whether the same write may succeed when it is simply done again: two nodes stood in each other's way (40001, 40P01), or
    /// the database names a cause that is not in the row. diesel keeps the code of neither deadlocks nor anything else that it
    /// has no kind for, and the message may be in any language.
    pub(super) fn passes(&self) -> bool {
        matches!(
            self,
            Self::Database(DbError::DatabaseError(
                DatabaseErrorKind::SerializationFailure | DatabaseErrorKind::Unknown,
                _
            ))
        )
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
