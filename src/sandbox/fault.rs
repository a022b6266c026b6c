//! Faults on demand: what goes wrong, at which call, how often.
//!
//! As JSON a fault is one flat object: `{"kind":"commit_then_status","status":502,"call":"create","times":2}`. Without `call`
//! it meets creates, without `times` one of them; `commit` overrules whether the call is carried out behind the answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::world::CallKind;

/// Which calls a fault meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// Those that make an entity.
    Create,
    /// Those that ask which entities bear a key.
    Lookup,
    /// All.
    Any,
}

/// Where an answer breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Before the first byte.
    #[default]
    BeforeStatus,
    /// In the middle of the status line.
    MidStatus,
    /// After the headers.
    AfterHeaders,
    /// In the middle of the body.
    MidBody,
}

/// What part of an answer comes byte by byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The body, after headers at the usual speed.
    #[default]
    Body,
    /// All of it.
    All,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Kind {
    /// The call is carried out; then silence until the client leaves.
    CommitThenHang {},
    /// The call is carried out; the answer is a proxy's page with this status.
    CommitThenStatus {
        /// 500, 502, 503, 504, 520 …
        status: u16,
    },
    /// The same page, and the call is not carried out.
    StatusWithoutCommit {
        /// 500, 502, 503, 504, 520 …
        status: u16,
    },
    /// The call is carried out; its good answer breaks off.
    CommitThenCut {
        /// Where.
        #[serde(default)]
        at: Cut,
        /// By a reset instead of an orderly close.
        #[serde(default)]
        reset: bool,
    },
    /// The call is carried out and well answered; then the connection is closed without notice.
    CommitThenClose {},
    /// The call is carried out; its good answer comes a byte at a time.
    Drip {
        /// Time between two bytes.
        #[serde(default = "drip_ms")]
        every_ms: u64,
        /// Of what.
        #[serde(default)]
        part: Part,
    },
    /// 429; not carried out.
    Throttled {
        /// The Retry-After header, byte for byte: seconds, a date, rubbish. None is sent where it is missing.
        #[serde(default)]
        retry_after: Option<String>,
        /// The Date header instead of the true one.
        #[serde(default)]
        date: Option<String>,
    },
    /// 503 with Bitrix24's QUERY_LIMIT_EXCEEDED; not carried out.
    #[serde(rename = "limit_503")]
    Limit503 {},
    /// The lead is refused.
    ValidationError {},
    /// The credentials are refused (401).
    Unauthorized {},
    /// The credentials are good and do not suffice (403).
    AccessDenied {},
    /// The address has moved; not carried out.
    Redirect {
        /// The Location header.
        to: String,
        /// 301, 302, 303, 307 or 308.
        #[serde(default = "redirect_code")]
        code: u16,
    },
    /// Look-ups do not see an entity until it is so old. Meets look-ups only, and without `times` every one.
    LookupBlind {
        /// Age at which an entity shows.
        seconds: f64,
    },
    /// A log-in page with 200 instead of JSON; not carried out.
    #[serde(rename = "html_200")]
    Html200 {},
    /// A firewall's page with 403; not carried out.
    #[serde(rename = "html_403")]
    Html403 {},
    /// The call is carried out; the answer is a 2xx without a body.
    #[serde(rename = "empty_2xx")]
    Empty2xx {
        /// 200, 201, 202 or 204.
        #[serde(default = "empty_status")]
        status: u16,
    },
    /// The call is carried out; the answer is a 200 with so large a body.
    HugeBody {
        /// How large.
        #[serde(default = "huge_bytes")]
        bytes: u64,
    },
    /// The call is carried out and well answered, with a byte order mark before the JSON.
    Bom {},
    /// The call waits, is then carried out, whether the client still listens or not, and well answered.
    Delay {
        /// How long.
        ms: u64,
    },
    /// The call is answered with this body; not carried out.
    Body {
        /// The status.
        #[serde(default = "ok_status")]
        status: u16,
        /// The body.
        body: String,
    },
}

fn drip_ms() -> u64 {
    200
}

fn redirect_code() -> u16 {
    302
}

fn empty_status() -> u16 {
    201
}

fn ok_status() -> u16 {
    200
}

fn huge_bytes() -> u64 {
    1 << 30
}

impl Kind {
    /// The name in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CommitThenHang {} => "commit_then_hang",
            Self::CommitThenStatus { .. } => "commit_then_status",
            Self::StatusWithoutCommit { .. } => "status_without_commit",
            Self::CommitThenCut { .. } => "commit_then_cut",
            Self::CommitThenClose {} => "commit_then_close",
            Self::Drip { .. } => "drip",
            Self::Throttled { .. } => "throttled",
            Self::Limit503 {} => "limit_503",
            Self::ValidationError {} => "validation_error",
            Self::Unauthorized {} => "unauthorized",
            Self::AccessDenied {} => "access_denied",
            Self::Redirect { .. } => "redirect",
            Self::LookupBlind { .. } => "lookup_blind",
            Self::Html200 {} => "html_200",
            Self::Html403 {} => "html_403",
            Self::Empty2xx { .. } => "empty_2xx",
            Self::HugeBody { .. } => "huge_body",
            Self::Bom {} => "bom",
            Self::Delay { .. } => "delay",
            Self::Body { .. } => "body",
        }
    }

    /// Whether the call is carried out, where the fault does not say.
    const fn commits(&self) -> bool {
        match self {
            Self::CommitThenHang {}
            | Self::CommitThenStatus { .. }
            | Self::CommitThenCut { .. }
            | Self::CommitThenClose {}
            | Self::Drip { .. }
            | Self::LookupBlind { .. }
            | Self::Empty2xx { .. }
            | Self::HugeBody { .. }
            | Self::Bom {}
            | Self::Delay { .. } => true,
            Self::StatusWithoutCommit { .. }
            | Self::Throttled { .. }
            | Self::Limit503 {}
            | Self::ValidationError {}
            | Self::Unauthorized {}
            | Self::AccessDenied {}
            | Self::Redirect { .. }
            | Self::Html200 {}
            | Self::Html403 {}
            | Self::Body { .. } => false,
        }
    }
}

/// A fault that waits to be played.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// Which calls it meets.
    pub calls: Calls,
    /// How many of them, still.
    pub times: u32,
    /// Whether the call is carried out behind the wrong answer.
    pub commit: bool,
    /// What goes wrong.
    pub kind: Kind,
}

impl Fault {
    /// At one create.
    pub fn on_create(kind: Kind) -> Self {
        Self { calls: Calls::Create, times: 1, commit: kind.commits(), kind }
    }

    /// At one look-up.
    pub fn on_lookup(kind: Kind) -> Self {
        Self { calls: Calls::Lookup, ..Self::on_create(kind) }
    }

    /// At one call of any kind.
    pub fn on_any(kind: Kind) -> Self {
        Self { calls: Calls::Any, ..Self::on_create(kind) }
    }

    /// Look-ups do not see an entity until it is so many seconds old; stays until the faults are cleared.
    pub fn lookup_blind(seconds: f64) -> Self {
        Self::on_lookup(Kind::LookupBlind { seconds }).times(u32::MAX)
    }

    /// The same at so many calls.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times, ..self }
    }

    /// The same with or without the call being carried out.
    #[must_use]
    pub fn commit(self, commit: bool) -> Self {
        Self { commit, ..self }
    }

    pub(super) fn meets(&self, call: CallKind) -> bool {
        let meant = match self.calls {
            Calls::Create => call == CallKind::Create,
            Calls::Lookup => call == CallKind::Lookup,
            Calls::Any => true,
        };
        // A blind look-up is well answered: it shares the call with any other fault.
        meant && self.times > 0 && !matches!(self.kind, Kind::LookupBlind { .. })
    }

    /// Reads one fault; the error says which key is wrong.
    pub fn from_json(value: Value) -> Result<Self, String> {
        let Value::Object(mut parts) = value else { return Err("a fault is an object".into()) };
        let Some(Value::String(name)) = parts.remove("kind") else { return Err("a fault has a kind".into()) };
        let calls = parts.remove("call").map(serde_json::from_value::<Calls>).transpose();
        let times = parts.remove("times").map(serde_json::from_value::<u32>).transpose();
        let commit = parts.remove("commit").map(serde_json::from_value::<bool>).transpose();
        let kind = Value::Object(Map::from_iter([(name.clone(), Value::Object(parts))]));
        let wrong = |key: &str, error: serde_json::Error| format!("{name}: {key}{error}");
        let kind: Kind = serde_json::from_value(kind).map_err(|error| wrong("", error))?;
        let blind = matches!(kind, Kind::LookupBlind { .. });
        Ok(Self {
            calls: calls.map_err(|error| wrong("call: ", error))?.unwrap_or(if blind {
                Calls::Lookup
            } else {
                Calls::Create
            }),
            times: times.map_err(|error| wrong("times: ", error))?.unwrap_or(if blind { u32::MAX } else { 1 }),
            commit: commit.map_err(|error| wrong("commit: ", error))?.unwrap_or(kind.commits()),
            kind,
        })
    }

    /// Reads a list of faults, or a single one.
    pub fn list_from_json(value: Value) -> Result<Vec<Self>, String> {
        match value {
            Value::Array(list) => list.into_iter().map(Self::from_json).collect(),
            one => Self::from_json(one).map(|fault| vec![fault]),
        }
    }

    /// The JSON that [`Fault::from_json`] reads.
    pub fn to_json(&self) -> Value {
        let mut parts = match serde_json::to_value(&self.kind) {
            Ok(Value::Object(outer)) => match outer.into_iter().next() {
                Some((_, Value::Object(inner))) => inner,
                _ => Map::new(),
            },
            _ => Map::new(),
        };
        parts.insert("kind".into(), self.kind.name().into());
        parts.insert("call".into(), serde_json::to_value(self.calls).unwrap_or_default());
        parts.insert("times".into(), self.times.into());
        parts.insert("commit".into(), self.commit.into());
        Value::Object(parts)
    }
}
