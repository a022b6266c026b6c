//! A receiver of alerts.

use serde_json::Value;

/// A receiver that answers as told, after that time; it keeps the bodies and checks each signature.
pub(crate) async fn receiver(
    answers: Vec<u16>,
    slow: std::time::Duration,
) -> (String, std::sync::Arc<std::sync::Mutex<Vec<Value>>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/alert", listener.local_addr().expect("an address"));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&seen);
    let mut answers = answers.into_iter();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
            let (head, body) = loop {
                let text = String::from_utf8_lossy(&request).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let head = head.to_ascii_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        break (head, body.to_owned());
                    }
                }
                match stream.read(&mut chunk).await {
                    Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                    _ => break (String::new(), String::new()),
                }
            };
            let status = answers.next().unwrap_or(204);
            if status == 204 {
                let header = |name: &str| {
                    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                    line.unwrap_or_default().to_owned()
                };
                let timestamp = header("webhook-timestamp").parse().expect("a time stamp");
                let signed =
                    leadonce::intake::sign_webhook(ALERT_SECRET, &header("webhook-id"), timestamp, body.as_bytes());
                let sent = header("webhook-signature");
                assert!(signed.is_some_and(|signed| signed.eq_ignore_ascii_case(&sent)), "a wrong signature");
                kept.lock().expect("alerts").push(serde_json::from_str(&body).expect("JSON"));
            }
            tokio::time::sleep(slow).await;
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (url, seen)
}

/// The secret of the signature.
pub(crate) const ALERT_SECRET: &str = "whsec_bGVhZG9uY2UtYWxlcnQtc2lnbmluZy1zZWNyZXQtMDE=";
