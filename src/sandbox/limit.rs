//! A limit on calls, as CRMs have them: counted over a sliding second, and whoever does not heed it is locked out.

use std::collections::VecDeque;
use std::time::Duration;

use super::fault::Kind;
use crate::clock::At;

/// The limit of an account.
#[derive(Debug, Clone)]
pub struct Limit {
    per_second: usize,
    block_after: usize,
    block_for: Duration,
    recent: VecDeque<At>,
    refused: usize,
    blocked_until: Option<At>,
}

impl Limit {
    /// So many calls in any second, others are answered 429; after so many of those, 403 for so long.
    pub fn new(per_second: usize, block_after: usize, block_for: Duration) -> Self {
        Self { per_second, block_after, block_for, recent: VecDeque::new(), refused: 0, blocked_until: None }
    }

    /// How a call at that time is refused, if it is.
    pub(super) fn refuses(&mut self, at: At) -> Option<Kind> {
        while self.recent.front().is_some_and(|earlier| earlier.plus(Duration::from_secs(1)) <= at) {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
        if self.blocked_until.is_some_and(|until| at < until) {
            return Some(Kind::AccessDenied {});
        }
        if self.recent.len() <= self.per_second {
            return None;
        }
        self.refused += 1;
        if self.refused == self.block_after {
            self.refused = 0;
            self.blocked_until = Some(at.plus(self.block_for));
        }
        Some(Kind::Throttled { retry_after: None, date: None })
    }
}
