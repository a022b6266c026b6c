//! `Prefer: wait=N`: holds an answer until the operation is finished (RFC 7240, contract 6.1).

use std::time::Duration;

use actix_web::http::header::HeaderMap;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::operation::{Operation, OperationId};
use crate::store::Admission;

/// How often the store is asked while waiting: where another node finishes the operation, word of it may get lost.
const POLL: Duration = Duration::from_millis(500);

/// The wait that the `Prefer` headers ask for, in any of their spellings; `None` where they ask for none. The first `wait`
/// counts, what cannot be read is ignored (RFC 7240 section 2).
pub(crate) fn preferred(headers: &HeaderMap) -> Option<Duration> {
    let prefer = headers.get_all("prefer").filter_map(|value| value.to_str().ok());
    for preference in prefer.flat_map(|value| value.split(',')) {
        let value = preference.split(';').next().unwrap_or_default();
        let (name, value) = value.split_once('=').unwrap_or((value, ""));
        if name.trim().eq_ignore_ascii_case("wait") {
            let value = value.trim();
            let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
            let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
            // Too many digits ask for longer than anybody allows.
            return digits.then(|| Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
        }
    }
    None
}

/// Brings the admissions up to date until all are finished or the patience is over.
///
/// `finished` must have been subscribed before the events were admitted: what is finished in between is told by it.
pub(crate) async fn until_finished(
    admissions: &mut [Admission],
    mut finished: Receiver<OperationId>,
    patience: Duration,
    read: impl AsyncFn(OperationId) -> Option<Operation>,
) {
    let watch = async {
        while admissions.iter().any(|admission| !admission.operation.state().is_finished()) {
            let _ = tokio::time::timeout(POLL, told(&mut finished, admissions)).await;
            for admission in admissions.iter_mut().filter(|a| !a.operation.state().is_finished()) {
                if let Some(now) = read(admission.operation.id).await {
                    admission.operation = now;
                }
            }
        }
    };
    let _ = tokio::time::timeout(patience, watch).await;
}

/// Returns when one of the operations was finished, or may have been.
async fn told(finished: &mut Receiver<OperationId>, admissions: &[Admission]) {
    loop {
        match finished.recv().await {
            Ok(id) if admissions.iter().any(|admission| admission.operation.id == id) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            // The store is going down; polling still finds what it committed.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::super::view::samples;
    use super::*;
    use crate::store::Verdict;

    #[test]
    fn a_wait_is_read_in_every_spelling_of_rfc_7240() {
        let seconds = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HeaderName::from_static("prefer"), HeaderValue::from_static(value));
            }
            preferred(&headers).map(|wait| wait.as_secs())
        };
        let table: [(&[&'static str], Option<u64>); 12] = [
            (&["wait=5"], Some(5)),
            (&["respond-async, wait=10"], Some(10)),
            (&["return=minimal", "Wait = 3"], Some(3)),
            (&["wait=\"7\""], Some(7)),
            (&["wait=4; foo=bar"], Some(4)),
            (&["wait=1, wait=9"], Some(1)),
            (&["wait=99999999999999999999999"], Some(u64::MAX)),
            (&["wait=-1"], None),
            (&["wait=soon"], None),
            (&["wait"], None),
            (&["await=5"], None),
            (&[], None),
        ];
        for (headers, expected) in table {
            assert_eq!(seconds(headers), expected, "{headers:?}");
        }
    }

    fn admitted() -> Vec<Admission> {
        vec![Admission { verdict: Verdict::New, operation: samples::received() }]
    }

    #[actix_web::test]
    async fn the_answer_is_held_until_the_operation_is_finished() {
        let (tell, finished) = tokio::sync::broadcast::channel(4);
        let mut admissions = admitted();
        tell.send(admissions[0].operation.id).expect("a receiver");
        let read = async |_| Some(samples::completed());
        until_finished(&mut admissions, finished, Duration::from_secs(30), read).await;
        assert_eq!(admissions[0].operation, samples::completed());
    }

    #[actix_web::test]
    async fn what_another_node_finished_is_found_by_asking() {
        let (_tell, finished) = tokio::sync::broadcast::channel(4);
        let asked = Cell::new(0);
        let read = async |_| {
            asked.set(asked.get() + 1);
            Some(if asked.get() < 2 { samples::received() } else { samples::completed() })
        };
        let mut admissions = admitted();
        until_finished(&mut admissions, finished, Duration::from_secs(30), read).await;
        assert!(admissions[0].operation.state().is_finished());
    }

    #[actix_web::test]
    async fn patience_ends() {
        let (tell, finished) = tokio::sync::broadcast::channel(4);
        drop(tell);
        let mut admissions = admitted();
        until_finished(&mut admissions, finished, Duration::from_millis(20), async |_| None).await;
        assert!(!admissions[0].operation.state().is_finished());
    }
}
