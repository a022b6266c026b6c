//! Bitrix24's errors: what an answer that confirms nothing means.
//!
//! One function, one table. Codes come in mixed case and are compared without it; the code is read before the status,
//! because statuses differ between portals and versions; the text is in the portal's language and is the last resort.
//! Sources: Bitrix24 REST docs, system errors and method pages; limits.md for the two limits, which are checked before a
//! method runs and so prove that it did not.

use std::time::Duration;

use serde_json::Value;

use crate::clock::At;
use crate::crm::Answer;
use crate::crm::failure::{by_status, class_of_status, json, message_of, retry_after, scalar_text};
use crate::operation::Failure;
use crate::operation::FailureClass::{self, Account, Duplicate, Rejected, Throttled, Uncertain};

/// Where a code is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    /// Whatever the status: the code says it all.
    Any,
    /// Only with a 4xx: a general code, which says nothing on a server fault or inside a 200.
    ClientError,
}

/// Code (in lower case), where it is believed, class.
const CODES: &[(&str, With, FailureClass)] = &[
    // The portal's limits; refused before execution (limits.md).
    ("query_limit_exceeded", With::Any, Throttled),
    ("operation_time_limit", With::Any, Throttled),
    // A manual block after overload: only support lifts it.
    ("overload_limit", With::Any, Account),
    // Credentials, rights, plan, portal: the same for every lead.
    ("expired_token", With::Any, Account), // a webhook has no token to refresh; its secret has run out
    ("invalid_token", With::Any, Account),
    ("no_auth_found", With::Any, Account),
    ("authorization_error", With::Any, Account), // the webhook's owner was dismissed
    ("application_not_found", With::Any, Account),
    ("error_oauth", With::Any, Account),
    ("not_installed", With::Any, Account),
    ("invalid_grant", With::Any, Account),
    ("invalid_client", With::Any, Account),
    ("invalid_scope", With::Any, Account),
    ("wrong_client", With::Any, Account), // arrives with 200
    ("payment_required", With::Any, Account),
    ("method_confirm_waiting", With::Any, Account),
    ("method_confirm_denied", With::Any, Account),
    ("access_denied", With::Any, Account),
    ("access_error", With::Any, Account),
    ("invalid_credentials", With::Any, Account),
    ("insufficient_scope", With::Any, Account),
    ("user_access_error", With::Any, Account),
    ("wrong_auth_type", With::Any, Account),
    ("allowed_only_intranet_user", With::Any, Account),
    ("create_dynamic_item_restricted", With::Any, Account),
    ("portal_deleted", With::Any, Account), // also while a self-hosted portal is closed for a time
    ("invalid_request", With::ClientError, Account), // HTTPS is required: the configured address
    // The method is missing on this portal: not the lead's fault (contract 5: 404 without a code that blames the lead).
    ("error_method_not_found", With::Any, Account),
    // The lead, or our request for it.
    ("crm_field_error_value_not_valid", With::Any, Rejected),
    ("crm_field_error_required", With::Any, Rejected),
    ("invalid_arg_value", With::Any, Rejected),
    ("error_batch_length_exceeded", With::Any, Rejected),
    ("error_batch_method_not_allowed", With::Any, Rejected),
    ("100", With::ClientError, Rejected), // wrong type, or a parameter is missing
    ("not_found", With::ClientError, Rejected),
    ("error_core", With::ClientError, Rejected),
    // Server faults with a name are server faults.
    ("internal_server_error", With::Any, Uncertain),
    ("error_unexpected_answer", With::Any, Uncertain),
];

/// Codes of REST 3.0 are class names; their ends tell them (rest-v3.md). No CRM method is there yet.
const CODE_ENDS: &[(&str, FailureClass)] =
    &[("invalididempotencykeyexception", Rejected), ("idempotencykeyreusedexception", Duplicate)];

/// Texts that come with an empty code.
const TEXTS: &[(&str, FailureClass)] = &[("access denied", Account), ("disk resource exhausted", Account)];

/// Classifies an answer that confirms no entity.
pub(super) fn classify(answer: &Answer, now: At) -> Failure {
    let body = json(&answer.body);
    let Some((code, text)) = body.as_ref().and_then(error_of) else {
        return without_error(answer, body.is_some(), now);
    };
    let class = class_of(answer.status, &code, &text);
    let label = if code.is_empty() { format!("HTTP {}", answer.status) } else { code.clone() };
    let message = if text.is_empty() { label } else { format!("{label}: {text}") };
    let told = body.as_ref().and_then(|body| reset_at(&code, body)).map(|reset| reset.since(now));
    Failure {
        class,
        message: message_of(&message),
        retry_after: retry_after(answer, now).or(told.filter(|wait: &Duration| !wait.is_zero())),
        crm_id: None,
    }
}

fn class_of(status: u16, code: &str, text: &str) -> FailureClass {
    let client_error = (400..500).contains(&status);
    let code = code.to_lowercase();
    if let Some((_, _, class)) =
        CODES.iter().find(|(known, with, _)| *known == code && (*with == With::Any || client_error))
    {
        return *class;
    }
    if let Some((_, class)) = CODE_ENDS.iter().find(|(end, _)| code.ends_with(end)) {
        return *class;
    }
    let text = text.to_lowercase();
    let told = TEXTS.iter().find(|(known, _)| code.is_empty() && status < 500 && text.contains(known));
    if let Some((_, class)) = told {
        return *class;
    }
    class_of_status(status)
}

/// An answer without an error of Bitrix24: what stands in front of it may have spoken.
fn without_error(answer: &Answer, is_json: bool, now: At) -> Failure {
    let mut failure = by_status(answer, now);
    // A proxy's or a firewall's 400 does not blame the lead: Bitrix24 itself always says why.
    if failure.class == Rejected && !is_json {
        failure.class = Uncertain;
    }
    failure
}

/// Code and text of `{"error":"CODE","error_description":"…"}`, or of REST 3.0's `{"error":{"code":…,"message":…}}`.
fn error_of(body: &Value) -> Option<(String, String)> {
    let text = |value: Option<&Value>| value.and_then(scalar_text).unwrap_or_default();
    match body.get("error")? {
        Value::Object(error) => {
            let mut message = text(error.get("message"));
            for row in error.get("validation").and_then(Value::as_array).into_iter().flatten() {
                message = format!("{message}; {}: {}", text(row.get("field")), text(row.get("message")));
            }
            Some((text(error.get("code")), message))
        }
        Value::Null => None,
        code => Some((text(Some(code)), text(body.get("error_description")))),
    }
}

/// When the blocked method opens again; Bitrix24 gives it with good answers, and errors may carry it too.
fn reset_at(code: &str, body: &Value) -> Option<At> {
    if !code.eq_ignore_ascii_case("operation_time_limit") {
        return None;
    }
    let seconds = body.pointer("/time/operating_reset_at").and_then(scalar_text)?;
    seconds.parse().ok().map(At::from_seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn classified(status: u16, body: &str) -> Failure {
        let answer = Answer { status, headers: Vec::new(), body: body.as_bytes().to_vec() };
        classify(&answer, At::from_seconds(1_000))
    }

    fn coded(status: u16, code: &str) -> FailureClass {
        classified(status, &format!(r#"{{"error":"{code}","error_description":"text"}}"#)).class
    }

    #[test]
    fn the_error_catalogue_is_classified() {
        for (status, code, class) in [
            (400, "INVALID_REQUEST", Account),
            (400, "ERROR_BATCH_LENGTH_EXCEEDED", Rejected),
            (405, "ERROR_BATCH_METHOD_NOT_ALLOWED", Rejected),
            (400, "CRM_FIELD_ERROR_VALUE_NOT_VALID", Rejected),
            (400, "CRM_FIELD_ERROR_REQUIRED", Rejected),
            (400, "100", Rejected),
            (400, "INVALID_ARG_VALUE", Rejected),
            (400, "NOT_FOUND", Rejected),
            (400, "ERROR_CORE", Rejected),
            (400, "ACCESS_DENIED", Account),
            (400, "CREATE_DYNAMIC_ITEM_RESTRICTED", Account),
            (401, "expired_token", Account),
            (401, "invalid_token", Account),
            (401, "NO_AUTH_FOUND", Account),
            (401, "authorization_error", Account),
            (401, "APPLICATION_NOT_FOUND", Account),
            (401, "ERROR_OAUTH", Account),
            (401, "NOT_INSTALLED", Account),
            (401, "PAYMENT_REQUIRED", Account),
            (401, "METHOD_CONFIRM_WAITING", Account),
            (403, "METHOD_CONFIRM_DENIED", Account),
            (403, "ACCESS_DENIED", Account),
            (403, "INVALID_CREDENTIALS", Account),
            (403, "insufficient_scope", Account),
            (403, "user_access_error", Account),
            (403, "WRONG_AUTH_TYPE", Account),
            (403, "allowed_only_intranet_user", Account),
            (403, "ACCESS_ERROR", Account),
            (404, "ERROR_METHOD_NOT_FOUND", Account),
            (429, "OPERATION_TIME_LIMIT", Throttled),
            (503, "QUERY_LIMIT_EXCEEDED", Throttled),
            (503, "OVERLOAD_LIMIT", Account),
            (500, "INTERNAL_SERVER_ERROR", Uncertain),
            (500, "ERROR_UNEXPECTED_ANSWER", Uncertain),
            (500, "PORTAL_DELETED", Account),
            (410, "PORTAL_DELETED", Account),
            (422, "BITRIX_REST_V3_EXCEPTION_IDEMPOTENCYKEYREUSEDEXCEPTION", Duplicate),
            (400, "BITRIX_REST_V3_EXCEPTION_INVALIDIDEMPOTENCYKEYEXCEPTION", Rejected),
            (200, "wrong_client", Account),
            // The code is read before the status, and without regard to case.
            (200, "QUERY_LIMIT_EXCEEDED", Throttled),
            (403, "query_limit_exceeded", Throttled),
            (200, "OPERATION_TIME_LIMIT", Throttled),
            (200, "access_denied", Account),
            (200, "Crm_Field_Error_Required", Rejected),
            // A general code inside a 200 or on a server fault proves nothing.
            (200, "ERROR_CORE", Uncertain),
            (500, "ERROR_CORE", Uncertain),
            (502, "NOT_FOUND", Uncertain),
            // Codes that nobody knows: the status speaks.
            (200, "SOMETHING_NEW", Uncertain),
            (400, "SOMETHING_NEW", Rejected),
            (401, "SOMETHING_NEW", Account),
            (409, "SOMETHING_NEW", Uncertain),
            (500, "SOMETHING_NEW", Uncertain),
            (503, "SOMETHING_NEW", Uncertain),
        ] {
            assert_eq!(coded(status, code), class, "{status} {code}");
        }
    }

    #[test]
    fn an_empty_code_is_read_by_its_text_and_then_by_the_status() {
        for (status, body, class) in [
            (400, r#"{"error":"","error_description":"Access denied"}"#, Account),
            (403, r#"{"error":"","error_description":"ACCESS DENIED."}"#, Account),
            (400, r#"{"error":"","error_description":"Disk resource exhausted"}"#, Account),
            (400, r#"{"error":"","error_description":"Parameter 'fields' must be array."}"#, Rejected),
            (400, r#"{"error":"","error_description":"Invalid value for the Currency field"}"#, Rejected),
            (400, r#"{"error":100,"error_description":"Expected iterable value, but got string"}"#, Rejected),
            (400, r#"{"error":0,"error_description":"Доступ запрещен"}"#, Rejected),
            (200, r#"{"error":"","error_description":"Access denied"}"#, Account),
            (200, r#"{"error":""}"#, Uncertain),
            (500, r#"{"error":"","error_description":"Access denied"}"#, Uncertain),
            (
                400,
                r#"{"error":{"code":"INVALID_ARG_VALUE","message":"no","validation":[{"field":"f","message":"m"}]}}"#,
                Rejected,
            ),
        ] {
            assert_eq!(classified(status, body).class, class, "{status} {body}");
        }
    }

    #[test]
    fn answers_without_an_error_of_bitrix24_are_read_by_their_status() {
        let page = "<html><body>nginx</body></html>";
        for (status, body, class) in [
            (200, page, Uncertain),
            (200, "", Uncertain),
            (200, "{}", Uncertain),
            (200, r#"{"result":null}"#, Uncertain),
            (200, r#"{"result":0}"#, Uncertain),
            (200, "Sorry, duplicate contact found", Uncertain),
            (204, "", Uncertain),
            (302, page, Account),
            (307, "", Account),
            (303, "", Uncertain),
            (400, page, Uncertain),
            (400, r#"{"message":"no"}"#, Rejected),
            (401, page, Account),
            (403, page, Account),
            (404, page, Account),
            (429, page, Throttled),
            (429, "", Throttled),
            (500, "", Uncertain),
            (502, page, Uncertain),
            (503, page, Uncertain),
            (503, "{}", Uncertain),
            (504, page, Uncertain),
            (520, "", Uncertain),
            (524, "", Uncertain),
        ] {
            assert_eq!(classified(status, body).class, class, "{status} {body}");
        }
    }

    #[test]
    fn a_blocked_method_tells_when_it_opens_if_it_does() {
        let wait = |code: &str, reset: &str| {
            let body = format!(r#"{{"error":"{code}","time":{{"operating_reset_at":{reset}}}}}"#);
            classified(429, &body).retry_after.map(|wait| wait.as_secs())
        };
        assert_eq!(wait("OPERATION_TIME_LIMIT", "1600"), Some(600));
        assert_eq!(wait("operation_time_limit", "\"1600\""), Some(600));
        for rubbish in ["900", "null", "\"soon\"", "1e400", "-5", "99999999999999999999999"] {
            assert_eq!(wait("OPERATION_TIME_LIMIT", rubbish), None, "{rubbish}");
        }
        assert_eq!(wait("QUERY_LIMIT_EXCEEDED", "1600"), None);
    }

    #[test]
    fn the_message_is_the_vendors_own() {
        let failure = classified(503, r#"{"error":"QUERY_LIMIT_EXCEEDED","error_description":"Too many requests"}"#);
        assert_eq!(failure.message, "QUERY_LIMIT_EXCEEDED: Too many requests");
        let page = format!("<html>{}</html>", "x".repeat(200_000));
        assert_eq!(classified(403, &page).message, "HTTP 403: a page of HTML");
    }

    fn any_body() -> impl Strategy<Value = Vec<u8>> {
        let code = prop_oneof![
            Just("\"QUERY_LIMIT_EXCEEDED\"".to_owned()),
            "\"[A-Z_]{0,12}\"",
            Just("{}".into()),
            "[0-9]{1,30}"
        ];
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            code.prop_map(|code| format!("{{\"error\":{code},\"error_description\":[1]}}").into_bytes()),
            "\\{\"result\":.{0,40}\\}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn no_answer_breaks_the_classifier(status: u16, body in any_body(), now: i64) {
            let failure = classify(&Answer { status, headers: Vec::new(), body }, At::from_micros(now));
            prop_assert!(failure.message.chars().count() <= 500 && failure.crm_id.is_none());
        }

        #[test]
        fn a_server_fault_without_a_known_code_never_proves_that_nothing_ran(
            status in 500u16..1000,
            code in "[a-zA-Z0-9_ ]{0,20}",
            text in "(access denied|disk resource exhausted|.{0,20})",
        ) {
            let known = |(name, with, _): &(&str, With, FailureClass)| *with == With::Any && name.eq_ignore_ascii_case(&code);
            prop_assume!(!CODES.iter().any(known));
            let body = serde_json::json!({"error": code, "error_description": text}).to_string();
            prop_assert!(!classified(status, &body).class.proves_not_executed());
        }

        #[test]
        fn a_server_fault_of_something_else_never_proves_that_nothing_ran(
            status in 500u16..1000,
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let answer = Answer { status, headers: Vec::new(), body };
            prop_assert!(!classify(&answer, At::from_seconds(0)).class.proves_not_executed());
        }
    }
}
