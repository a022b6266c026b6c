//! Likely copies: some senders give one event a new id when they send it again. A source that asks for it (`likely_copy`) has
//! each event compared, less its id, with those that came shortly before.

use std::time::Duration;

use super::Settings;
use super::pairs::{Pair, hash};
use crate::operation::canonical::hash_json;
use crate::operation::field::FieldPath;
use crate::operation::json::Json;
use crate::operation::likeness::Likeness;

/// How a source takes the likeness of its events.
#[derive(Debug)]
pub(super) struct CopyRule {
    left_out: Vec<FieldPath>,
    window: Duration,
}

impl CopyRule {
    /// The rule of a source whose kind finds its own ids in the fields `native`; `None` where copies are of no concern.
    pub(super) fn of(settings: &Settings, volatile: &[FieldPath], native: &[&str]) -> Option<Self> {
        let ids = native.iter().copied().chain(settings.key.as_deref()).filter_map(FieldPath::parse);
        let left_out = volatile.iter().cloned().chain(ids).collect();
        settings.hold_copies.then_some(Self { left_out, window: settings.resubmit_window })
    }

    pub(super) fn json(&self, json: &Json<'_>) -> Likeness {
        Likeness::of(hash_json(json, &self.left_out), self.window)
    }

    pub(super) fn pairs(&self, pairs: &[Pair<'_>]) -> Likeness {
        Likeness::of(hash(pairs, &self.left_out), self.window)
    }
}
