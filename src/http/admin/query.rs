//! Query strings of lists. What is not known is refused: a filter that is silently left out shows too much.

use super::super::problem::{Kind, Problem};
use crate::clock::At;

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

/// The pairs of a query string; an empty field of a search form asks for nothing.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads it.
    pub(super) fn read(query: &str, known: &[&str]) -> Result<Self, Problem> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                return Err(bad(format!("the query knows {}", known.join(", "))));
            }
            if pairs.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(bad(format!("{name} is given twice")));
            }
        }
        Ok(Self(pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()))
    }

    /// A text, without the white space around it.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        let value = self.0.swap_remove(at).1;
        Some(value.trim().to_owned())
    }

    /// A value; `what` says what it is.
    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        what: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        parse(&text).map(Some).ok_or_else(|| bad(format!("{name} is {what}")))
    }

    /// One of these.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        as_str: impl Fn(&T) -> &'static str,
    ) -> Result<Option<T>, Problem> {
        let names = all.iter().map(&as_str).collect::<Vec<_>>().join(", ");
        self.parsed(name, &format!("one of {names}"), |text| all.iter().copied().find(|value| as_str(value) == text))
    }

    /// A time.
    pub(super) fn time(&mut self, name: &str) -> Result<Option<At>, Problem> {
        self.parsed(name, "a time like 2026-12-01T10:00:00Z", At::parse_rfc3339)
    }

    /// The size of the page.
    pub(super) fn limit(&mut self) -> Result<usize, Problem> {
        let parse = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
        let limit = self.parsed("limit", &format!("a number from 1 to {MAX_LIMIT}"), parse)?;
        Ok(limit.unwrap_or(DEFAULT_LIMIT))
    }

    /// Where the page begins.
    pub(super) fn cursor<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Problem> {
        self.parsed("cursor", "the next_cursor of the page before", parse)
    }
}

fn bad(detail: String) -> Problem {
    Problem::new(Kind::BadRequest, detail)
}
