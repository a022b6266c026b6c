//! Which answer a sender gets (contract 6.1): one pure function of its wishes and of what became of its events.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};

use super::super::problem::Problem;
use super::super::state::Settings;
use super::super::view::OperationView;
use crate::intake::Answer;
use crate::operation::State;
use crate::store::{Admission, Verdict};

/// What became of a request that was not refused.
#[derive(Debug)]
pub(super) enum Outcome<'a> {
    /// Its events are durable. Never empty.
    Admitted(&'a [Admission]),
    /// Nothing in it makes a lead: `test` or `ignored`.
    Noted(&'static str),
}

/// An answer, before it becomes bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Where the status is (202), or where the browser goes (303).
    pub(super) location: Option<String>,
    /// `Idempotent-Replayed: true`.
    pub(super) replayed: bool,
    pub(super) content: Content,
}

/// The body of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Content {
    Nothing,
    Text(&'static str),
    Json(Vec<u8>),
    ThankYou,
    Problem(Problem),
}

/// Chooses the answer. `html`: the sender is a browser that shows what it gets.
pub(super) fn reply(answer: &Answer, outcome: &Outcome<'_>, html: bool, settings: &Settings) -> Reply {
    let plain = |status, content| Reply { status, location: None, replayed: false, content };
    match (answer, outcome) {
        (Answer::Text(text), _) => Reply { replayed: replayed(outcome), ..plain(200, Content::Text(text)) },
        (Answer::Empty, _) => Reply { replayed: replayed(outcome), ..plain(200, Content::Nothing) },
        (Answer::Form { thank_you_url: Some(url) }, _) if html => {
            Reply { location: Some(url.clone()), ..plain(303, Content::Nothing) }
        }
        (Answer::Form { thank_you_url: None }, _) if html => plain(200, Content::ThankYou),
        (Answer::Strict | Answer::Json | Answer::Form { .. }, Outcome::Noted(what)) => {
            plain(200, Content::Json(format!("{{\"noted\":\"{what}\"}}").into_bytes()))
        }
        (Answer::Strict, Outcome::Admitted(admissions)) => {
            match admissions.iter().find(|admission| admission.verdict == Verdict::Conflict) {
                Some(Admission { operation, .. }) => {
                    let problem = Problem::conflict(operation.conflicts_with, operation.id);
                    plain(problem.status(), Content::Problem(problem))
                }
                None => told(outcome, admissions, settings),
            }
        }
        (Answer::Form { thank_you_url: Some(url) }, Outcome::Admitted(admissions)) => {
            with_thanks(told(outcome, admissions, settings), url)
        }
        (Answer::Json | Answer::Form { .. }, Outcome::Admitted(admissions)) => told(outcome, admissions, settings),
    }
}

/// Tells the form's script where to go next.
fn with_thanks(mut reply: Reply, url: &str) -> Reply {
    if let Content::Json(json) = &mut reply.content
        && json.pop() == Some(b'}')
    {
        json.extend_from_slice(format!(",\"thank_you_url\":{}}}", serde_json::Value::from(url)).as_bytes());
    }
    reply
}

fn told(outcome: &Outcome<'_>, admissions: &[Admission], settings: &Settings) -> Reply {
    let all = |test: &dyn Fn(&Admission) -> bool| admissions.iter().all(test);
    let finished = all(&|a| a.operation.state().is_finished());
    let created = all(&|a| a.verdict == Verdict::New && a.operation.state() == State::Completed);
    let status = match (finished, created) {
        (false, _) => 202,
        (true, true) => 201,
        (true, false) => 200,
    };
    let (json, location) = match admissions {
        [one] => {
            let location = (status == 202).then(|| settings.status_url(one.operation.id));
            (serde_json::to_vec(&OperationView::from(&one.operation)), location)
        }
        several => {
            let views: Vec<_> = several.iter().map(|one| OperationView::from(&one.operation)).collect();
            (serde_json::to_vec(&serde_json::json!({ "operations": views })), None)
        }
    };
    // Text and numbers always have a JSON form.
    Reply { status, location, replayed: replayed(outcome), content: Content::Json(json.unwrap_or_default()) }
}

/// Whether all of it was known and finished: the stored result is told once more.
fn replayed(outcome: &Outcome<'_>) -> bool {
    let Outcome::Admitted(admissions) = outcome else { return false };
    admissions.iter().all(|admission| {
        matches!(admission.verdict, Verdict::Replay | Verdict::ReplayUnverified)
            && admission.operation.state().is_finished()
    })
}

/// Whether the sender wants a page: `text/html` by name, and not liked less than JSON. `*/*` alone is a script.
pub(super) fn wants_html(accept: Option<&str>) -> bool {
    let mut html = None;
    let mut json = None;
    for (place, range) in accept.unwrap_or_default().split(',').enumerate() {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let q = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let q: f64 = q.map_or(1.0, |q| q.parse().unwrap_or(0.0));
        if q > 0.0 && kind.eq_ignore_ascii_case("text/html") {
            html.get_or_insert((q, place));
        } else if q > 0.0 && kind.eq_ignore_ascii_case("application/json") {
            json.get_or_insert((q, place));
        }
    }
    match (html, json) {
        (Some((html, before)), Some((json, after))) => html > json || (html >= json && before < after),
        (html, _) => html.is_some(),
    }
}

const THANK_YOU: &str = "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
    <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"robots\" content=\"noindex\">\
    <title>Thank you</title></head>\n<body><h1>Thank you</h1><p>Your message has been received.</p></body>\n</html>\n";

impl Reply {
    /// The answer as the server sends it.
    pub(super) fn response(self) -> HttpResponse {
        if let Content::Problem(problem) = &self.content {
            return problem.response();
        }
        let mut answer = HttpResponse::build(StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK));
        if let Some(location) = self.location.and_then(|url| HeaderValue::try_from(url).ok()) {
            answer.insert_header((header::LOCATION, location));
        }
        if self.replayed {
            answer.insert_header((HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true")));
        }
        let (kind, body) = match self.content {
            Content::Nothing | Content::Problem(_) => return answer.finish(),
            Content::Text(text) => ("text/plain; charset=utf-8", text.as_bytes().to_vec()),
            Content::Json(json) => ("application/json", json),
            Content::ThankYou => {
                let nothing_loads = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
                answer.insert_header((header::CONTENT_SECURITY_POLICY, nothing_loads));
                ("text/html; charset=utf-8", THANK_YOU.as_bytes().to_vec())
            }
        };
        answer.insert_header((header::CONTENT_TYPE, HeaderValue::from_static(kind))).body(body)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::view::samples;
    use super::*;
    use crate::clock::At;
    use crate::operation::{FailReason, Operation, OperationId, ReviewReason, Status};

    fn settings() -> Settings {
        Settings { public_url: "https://leads.example/".into(), ..Settings::default() }
    }

    fn of(verdict: Verdict, operation: Operation) -> Vec<Admission> {
        vec![Admission { verdict, operation }]
    }

    fn in_review(reason: ReviewReason) -> Operation {
        samples::operation(Status::NeedsReview { reason, send_ended_at: None })
    }

    fn failed() -> Operation {
        samples::operation(Status::FailedTerminal { reason: FailReason::Rejected })
    }

    fn in_progress() -> Operation {
        let at = At::from_seconds(0);
        samples::operation(Status::Reconciling { next_lookup_at: at, send_ended_at: at, since: at })
    }

    fn choose(answer: &Answer, admissions: &[Admission], html: bool) -> (u16, bool, bool) {
        let reply = reply(answer, &Outcome::Admitted(admissions), html, &settings());
        (reply.status, reply.location.is_some(), reply.replayed)
    }

    #[test]
    fn every_verdict_in_every_state_has_its_answer() {
        use Verdict::{Conflict, New, Replay, ReplayUnverified};
        let review = || in_review(ReviewReason::UncertainOutcome);
        // verdict, operation, (status, Location, Idempotent-Replayed) for strict and for the forgiving senders
        let table = [
            (New, samples::received(), (202, true, false)),
            (New, in_progress(), (202, true, false)),
            (New, samples::completed(), (201, false, false)),
            (New, failed(), (200, false, false)),
            (New, review(), (200, false, false)),
            (Replay, samples::received(), (202, true, false)),
            (Replay, in_progress(), (202, true, false)),
            (Replay, samples::completed(), (200, false, true)),
            (Replay, failed(), (200, false, true)),
            (Replay, review(), (200, false, true)),
            (ReplayUnverified, samples::completed(), (200, false, true)),
        ];
        for (verdict, operation, expected) in table {
            let admissions = of(verdict, operation);
            for answer in [Answer::Strict, Answer::Json, Answer::Form { thank_you_url: None }] {
                assert_eq!(choose(&answer, &admissions, false), expected, "{answer:?} {admissions:?}");
            }
            // Senders with a protocol of their own get what they demand, always.
            for answer in [Answer::Text("ok"), Answer::Empty] {
                assert_eq!(choose(&answer, &admissions, true), (200, false, expected.2), "{answer:?}");
            }
        }
        let conflict = of(Conflict, in_review(ReviewReason::PayloadConflict));
        assert_eq!(choose(&Answer::Strict, &conflict, false), (422, false, false));
        for answer in [Answer::Json, Answer::Form { thank_you_url: None }, Answer::Text("ok"), Answer::Empty] {
            assert_eq!(choose(&answer, &conflict, false), (200, false, false), "{answer:?}");
        }
    }

    #[test]
    fn the_location_is_the_public_status_address() {
        let admissions = of(Verdict::New, samples::received());
        let reply = reply(&Answer::Json, &Outcome::Admitted(&admissions), false, &settings());
        let expected = "https://leads.example/v1/operations/0198c0de-0000-7000-8000-000000000001";
        assert_eq!(reply.location.as_deref(), Some(expected));
    }

    #[test]
    fn the_forms_script_is_told_where_to_go_next() {
        let admissions = of(Verdict::New, samples::received());
        let form = Answer::Form { thank_you_url: Some("https://example.com/\"thanks\"".into()) };
        let Content::Json(json) = reply(&form, &Outcome::Admitted(&admissions), false, &settings()).content else {
            panic!("JSON for a script")
        };
        let body: serde_json::Value = serde_json::from_slice(&json).expect("valid JSON");
        assert_eq!(body["thank_you_url"], "https://example.com/\"thanks\"");
        assert_eq!(body["status"], "received");
    }

    #[test]
    fn a_browser_goes_to_the_thank_you_page_whatever_became_of_the_lead() {
        let url = Answer::Form { thank_you_url: Some("https://example.com/thanks".into()) };
        let page = Answer::Form { thank_you_url: None };
        for admissions in [
            of(Verdict::New, samples::received()),
            of(Verdict::Replay, samples::completed()),
            of(Verdict::Conflict, in_review(ReviewReason::PayloadConflict)),
        ] {
            assert_eq!(choose(&url, &admissions, true), (303, true, false));
            assert_eq!(choose(&page, &admissions, true), (200, false, false));
            assert_ne!(choose(&url, &admissions, false).0, 303, "a script is never redirected");
        }
    }

    #[test]
    fn nobody_but_a_browser_form_is_ever_redirected() {
        let admissions = of(Verdict::New, samples::received());
        for answer in [Answer::Strict, Answer::Json, Answer::Text("ok"), Answer::Empty] {
            let status = choose(&answer, &admissions, true).0;
            assert!((200..300).contains(&status), "{answer:?}: {status}");
        }
    }

    #[test]
    fn test_calls_are_answered_as_the_sender_expects() {
        let status = |answer: &Answer| reply(answer, &Outcome::Noted("test"), false, &settings());
        assert_eq!(status(&Answer::Text("ok")).content, Content::Text("ok"));
        assert_eq!(status(&Answer::Empty).content, Content::Nothing);
        assert_eq!(status(&Answer::Strict).content, Content::Json(b"{\"noted\":\"test\"}".to_vec()));
    }

    #[test]
    fn several_events_are_finished_when_all_are() {
        let mut admissions = of(Verdict::New, samples::completed());
        admissions.extend(of(Verdict::Replay, samples::received()));
        assert_eq!(choose(&Answer::Json, &admissions, false), (202, false, false));
        admissions[1].operation = samples::completed();
        assert_eq!(choose(&Answer::Json, &admissions, false), (200, false, false));
    }

    #[test]
    fn a_conflict_names_the_first_operation_and_the_one_in_review() {
        let first: OperationId = "0198c0de-0000-7000-8000-00000000000f".parse().expect("a uuid");
        let mut admissions = of(Verdict::Conflict, in_review(ReviewReason::PayloadConflict));
        admissions[0].operation.conflicts_with = Some(first);
        let reply = reply(&Answer::Strict, &Outcome::Admitted(&admissions), false, &settings());
        let Content::Problem(problem) = reply.content else { panic!("no problem") };
        assert_eq!(problem.json()["operation_id"], first.to_string());
        assert_eq!(problem.json()["review_operation_id"], admissions[0].operation.id.to_string());
    }

    #[test]
    fn only_who_asks_for_a_page_gets_one() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
        for (accept, html) in [
            (Some(browser), true),
            (Some("TEXT/HTML"), true),
            (Some("text/html, application/json"), true),
            (Some("application/json, text/html"), false),
            (Some("application/json;q=0.5, text/html"), true),
            (Some("text/html;q=0.4, application/json"), false),
            (Some("text/html;q=0"), false),
            (Some("*/*"), false),
            (Some("application/json"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(wants_html(accept), html, "{accept:?}");
        }
    }
}
