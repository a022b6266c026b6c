//! Errors as RFC 9457 problem documents: the only place that turns an error of a room into a status code.

use std::fmt;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, Responder, ResponseError};
use serde_json::{Map, Value};

use super::desk::Unresolved;
use crate::intake;
use crate::operation::OperationId;
use crate::store::StoreError;

/// What a sender is asked to wait where the store cannot commit now.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(5);

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $slug:literal, $status:literal, $title:literal;)*) => {
        /// A kind of problem. Its slug is part of the contract with clients and never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$kind,)*];

            const fn slug(self) -> &'static str {
                match self { $(Self::$kind => $slug,)* }
            }

            const fn status(self) -> u16 {
                match self { $(Self::$kind => $status,)* }
            }

            const fn title(self) -> &'static str {
                match self { $(Self::$kind => $title,)* }
            }
        }
    };
}

kinds! {
    /// The request says something that cannot be.
    BadRequest = "bad-request", 400, "The request cannot be used";
    /// The body ended before it was complete.
    IncompleteBody = "incomplete-body", 400, "The body is incomplete";
    /// No or wrong credentials.
    Unauthorized = "unauthorized", 401, "Not authenticated";
    /// Good credentials, too small a role.
    Forbidden = "forbidden", 403, "Not allowed";
    /// A page of another origin.
    OriginNotAllowed = "origin-not-allowed", 403, "This origin may not send";
    /// A write with a session's cookie that did not come from our own page.
    ForeignRequest = "foreign-request", 403, "This request did not come from the console";
    /// No such thing.
    NotFound = "not-found", 404, "Not found";
    /// No source of that name.
    UnknownSource = "unknown-source", 404, "No source of that name";
    /// The address knows other methods.
    MethodNotAllowed = "method-not-allowed", 405, "Method not allowed";
    /// The body did not arrive in time.
    SlowBody = "slow-body", 408, "The body took too long";
    /// The operation's state does not allow it.
    StateForbids = "state-forbids", 409, "The operation's state does not allow this";
    /// `retry` after the payload was erased.
    LeadNeeded = "lead-needed", 409, "The lead was erased";
    /// The name belongs to another.
    NameTaken = "name-taken", 409, "The name is taken";
    /// The filter matches another number than the preview showed.
    CountMoved = "count-moved", 409, "The list changed in the meantime";
    /// This kind of CRM has no look-up.
    NoLookup = "no-lookup", 409, "This CRM cannot be asked";
    /// The version in `If-Match` is not the present one.
    VersionMoved = "version-moved", 412, "Somebody changed the operation in the meantime";
    /// Over the limit.
    BodyTooLarge = "body-too-large", 413, "The body is too large";
    /// A content type or coding that nobody reads.
    UnsupportedMedia = "unsupported-media-type", 415, "Content type or coding not supported";
    /// Same key, different content.
    PayloadConflict = "payload-conflict", 422, "The key was used with different content";
    /// `complete` with an id that the CRM does not know.
    NotInCrm = "not-in-crm", 422, "The CRM does not have this entity";
    /// A change without `If-Match`.
    VersionRequired = "version-required", 428, "If-Match is required";
    /// The source is over its own limit.
    TooManyDeliveries = "too-many-deliveries", 429, "Too many deliveries from this source";
    /// Too many failed sign-ins.
    TooManySignIns = "too-many-sign-ins", 429, "Too many failed sign-ins";
    /// The CRM did not answer.
    CrmUnavailable = "crm-unavailable", 503, "The CRM did not answer";
    /// Something is wrong here, not with the request.
    Internal = "internal", 500, "Internal error";
    /// The store cannot commit now.
    StoreUnavailable = "store-unavailable", 503, "Cannot be stored now";
    /// The node should not be sent any requests.
    NotReady = "not-ready", 503, "Not ready";
}

/// An error as it is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    kind: Kind,
    detail: String,
    operation_id: Option<OperationId>,
    members: Map<String, Value>,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
    close: bool,
}

impl Problem {
    /// A problem; the detail says what to do and holds no personal data and no secret.
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            operation_id: None,
            members: Map::new(),
            retry_after: None,
            allow: None,
            close: false,
        }
    }

    /// 405 with the methods that are known.
    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        let mut problem = Self::new(Kind::MethodNotAllowed, format!("this address knows {allow}"));
        problem.allow = Some(allow);
        problem
    }

    /// 503 of the store: nothing was confirmed.
    pub(crate) fn not_stored() -> Self {
        Self::new(Kind::StoreUnavailable, "nothing was confirmed; send the same again, that is safe")
            .retry_after(BUSY_RETRY_AFTER)
    }

    /// 503 of `/readyz`: this machine's clock is so many microseconds ahead of the database's.
    pub(crate) fn clock_is_off(ahead: i64) -> Self {
        let off = Duration::from_micros(ahead.unsigned_abs());
        let side = if ahead < 0 { "behind" } else { "ahead of" };
        Self::new(Kind::NotReady, format!("this machine's clock is {off:.1?} {side} the database's; set it right"))
    }

    /// 422 for a key that was used with other content (contract 6.1); names the first operation and the one in review.
    pub(crate) fn conflict(first: Option<OperationId>, review: OperationId) -> Self {
        let owner = first.map_or_else(String::new, |first| format!(" by operation {first}"));
        let detail = format!(
            "this key was used before with different content{owner}; nothing was overwritten or created, the changed \
             content waits for a person as operation {review}; send a new enquiry under a new key"
        );
        let mut problem = Self::new(Kind::PayloadConflict, detail).about(first.unwrap_or(review));
        problem.members.insert("review_operation_id".into(), review.to_string().into());
        problem
    }

    /// Names the operation.
    #[must_use]
    pub(crate) fn about(mut self, operation: OperationId) -> Self {
        self.operation_id = Some(operation);
        self
    }

    /// Adds a member of its own.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.members.insert(name.into(), value.into());
        self
    }

    /// Says when to try again, in whole seconds, at least one.
    #[must_use]
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Closes the connection after the answer: what follows on it is not a request.
    #[must_use]
    pub(crate) fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    /// The status code.
    pub(crate) fn status(&self) -> u16 {
        self.kind.status()
    }

    /// The document.
    pub(crate) fn json(&self) -> Value {
        let mut document = Map::new();
        document.insert("type".into(), format!("urn:leadonce:problem:{}", self.kind.slug()).into());
        document.insert("title".into(), self.kind.title().into());
        document.insert("status".into(), self.kind.status().into());
        document.insert("detail".into(), self.detail.clone().into());
        if let Some(operation) = self.operation_id {
            document.insert("operation_id".into(), operation.to_string().into());
        }
        document.extend(self.members.clone());
        Value::Object(document)
    }

    /// The answer.
    pub(crate) fn response(&self) -> HttpResponse {
        let status = StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = HttpResponse::build(status);
        answer.insert_header((header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json")));
        if let Some(wait) = self.retry_after {
            answer.insert_header((header::RETRY_AFTER, whole_seconds(wait)));
        }
        if let Some(allow) = self.allow {
            answer.insert_header((header::ALLOW, HeaderValue::from_static(allow)));
        }
        if self.kind == Kind::Unauthorized {
            answer.insert_header((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        if self.close {
            answer.force_close();
        }
        answer.body(self.json().to_string())
    }
}

/// Rounded up, at least 1: a client that takes the figure literally must not come too early.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        self.response()
    }
}

impl Responder for Problem {
    type Body = BoxBody;

    fn respond_to(self, _: &HttpRequest) -> HttpResponse {
        self.response()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => Self::not_stored(),
            StoreError::Unavailable(_) | StoreError::Setup(_) => {
                tracing::error!(%error, "the store did not answer");
                Self::not_stored()
            }
            StoreError::Inconsistent(_) => {
                tracing::error!(%error, "the store holds a row that cannot be");
                Self::new(Kind::Internal, "the stored record is damaged; the log names it")
            }
        }
    }
}

impl From<intake::Refused> for Problem {
    fn from(refused: intake::Refused) -> Self {
        match refused {
            intake::Refused::Unauthorized { kind: _, detail } => Self::new(Kind::Unauthorized, detail),
            intake::Refused::BadRequest(detail) => Self::new(Kind::BadRequest, detail),
            intake::Refused::TooLarge(detail) => Self::new(Kind::BodyTooLarge, detail),
            intake::Refused::UnsupportedMedia(detail) => Self::new(Kind::UnsupportedMedia, detail),
        }
    }
}

impl From<Unresolved> for Problem {
    fn from(unresolved: Unresolved) -> Self {
        match unresolved {
            Unresolved::NotFound => Self::new(Kind::NotFound, "there is no operation of that id"),
            Unresolved::VersionMoved { current, by } => {
                let who = by.map_or_else(String::new, |(actor, at)| format!(" by {actor} at {at}"));
                let detail = format!("the operation is at version {current} now{who}; read it again and decide anew");
                Self::new(Kind::VersionMoved, detail).with("version", current)
            }
            Unresolved::Forbidden { detail, not_before } => {
                let problem = Self::new(Kind::StateForbids, detail);
                match not_before {
                    Some(at) => problem.with("not_before", at.rfc3339()),
                    None => problem,
                }
            }
            Unresolved::NotInCrm { detail } => Self::new(Kind::NotInCrm, detail),
            Unresolved::NeedsLead => Self::new(
                Kind::LeadNeeded,
                "the content was erased by retention; give the lead in the body: {\"action\":\"retry\",\"lead\":{…}}",
            ),
            Unresolved::NoLookup => Self::new(
                Kind::NoLookup,
                "this kind of CRM has no look-up by key; look for the lead in the CRM itself, then decide",
            ),
            Unresolved::CrmAway { detail, retry_after } => {
                Self::new(Kind::CrmUnavailable, detail).retry_after(retry_after.unwrap_or(BUSY_RETRY_AFTER))
            }
            Unresolved::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::At;

    fn id(last: u8) -> OperationId {
        let mut bytes = [0; 16];
        bytes[15] = last;
        OperationId(uuid::Uuid::from_bytes(bytes))
    }

    #[test]
    fn a_problem_has_the_members_of_rfc_9457() {
        let problem = Problem::new(Kind::BadRequest, "no key").about(id(1));
        assert_eq!(
            problem.json(),
            serde_json::json!({
                "type": "urn:leadonce:problem:bad-request", "title": "The request cannot be used", "status": 400,
                "detail": "no key", "operation_id": "00000000-0000-0000-0000-000000000001",
            })
        );
        let response = problem.response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers().get("content-type").unwrap(), "application/problem+json");
    }

    #[test]
    fn each_kind_has_a_slug_of_its_own_and_an_error_status() {
        let mut slugs: Vec<_> = Kind::ALL.iter().map(|kind| kind.slug()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        assert_eq!(slugs.len(), Kind::ALL.len());
        assert!(Kind::ALL.iter().all(|kind| (400..600).contains(&kind.status())));
    }

    #[test]
    fn a_conflict_names_both_operations() {
        let document = Problem::conflict(Some(id(1)), id(2)).json();
        assert_eq!(document["operation_id"], id(1).to_string());
        assert_eq!(document["review_operation_id"], id(2).to_string());
        assert_eq!(document["status"], 422);
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_rounded_up() {
        for (wait, told) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (90_000, "90")] {
            let response = Problem::not_stored().retry_after(Duration::from_millis(wait)).response();
            assert_eq!(response.headers().get("retry-after").unwrap(), told, "{wait} ms");
        }
    }

    #[test]
    fn what_the_store_says_about_itself_is_not_told_to_the_sender() {
        let problem = Problem::from(StoreError::Unavailable("postgres://user:secret@host".into()));
        assert_eq!(problem.status(), 503);
        assert!(!problem.json().to_string().contains("secret"));
        assert_eq!(Problem::from(StoreError::Inconsistent("row 7".into())).status(), 500);
    }

    #[test]
    fn each_refusal_of_the_desk_has_its_status() {
        let at = At::from_seconds(1_800_000_000);
        let table = [
            (Unresolved::NotFound, 404),
            (Unresolved::VersionMoved { current: 4, by: Some(("anna".into(), at)) }, 412),
            (Unresolved::Forbidden { detail: "completed".into(), not_before: None }, 409),
            (Unresolved::NotInCrm { detail: "unknown".into() }, 422),
            (Unresolved::NeedsLead, 409),
            (Unresolved::NoLookup, 409),
            (Unresolved::CrmAway { detail: "no answer".into(), retry_after: None }, 503),
            (Unresolved::Store(StoreError::Busy), 503),
        ];
        for (unresolved, status) in table {
            assert_eq!(Problem::from(unresolved.clone()).status(), status, "{unresolved:?}");
        }
        let early = Problem::from(Unresolved::Forbidden { detail: "early".into(), not_before: Some(at) });
        assert_eq!(early.json()["not_before"], at.rfc3339());
    }
}
