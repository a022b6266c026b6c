//! Why a body cannot be read, before it is decided whose fault that is.

use super::{Received, Refused};

/// Why a body cannot be read. The text is for the sender; it names places and sizes, never content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// Larger than allowed once its content coding is undone.
    TooLarge(String),
    /// A content coding that is not known here.
    Coding(String),
    /// A content type that is not read here.
    Media(String),
    /// Broken, or not what it says it is.
    Unreadable(String),
}

impl Fault {
    /// For senders that are told (kind `api`): 400, 413 or 415.
    pub(super) fn refused(self) -> Refused {
        match self {
            Self::TooLarge(why) => Refused::TooLarge(why),
            Self::Coding(why) | Self::Media(why) => Refused::UnsupportedMedia(why),
            Self::Unreadable(why) => Refused::BadRequest(why),
        }
    }

    /// For authenticated senders: the content goes to a person, since the sender could only send the same bytes again
    /// (contract 6.1). Only what never became content is refused.
    pub(super) fn received(self) -> Result<Received, Refused> {
        match self {
            Self::TooLarge(why) => Err(Refused::TooLarge(why)),
            Self::Coding(why) => Err(Refused::UnsupportedMedia(why)),
            Self::Media(why) | Self::Unreadable(why) => Ok(Received::Unreadable(why)),
        }
    }

    /// The reason alone.
    pub(super) fn text(self) -> String {
        match self {
            Self::TooLarge(why) | Self::Coding(why) | Self::Media(why) | Self::Unreadable(why) => why,
        }
    }
}

/// What cannot be read, for this reason.
pub(super) fn unreadable(why: impl Into<String>) -> Fault {
    Fault::Unreadable(why.into())
}
