//! Tests in a real browser: `/static/leadonce.js` on a page, and the demo as its first visitor sees it.

#[path = "support/browser.rs"]
mod browser;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fantoccini::{Client, Locator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(40);

/// Whether a skip is a failure.
#[expect(clippy::disallowed_methods, reason = "how the tests are run")]
fn strict() -> bool {
    std::env::var("LEADONCE_TEST_STRICT").is_ok_and(|value| value == "1")
}

#[expect(clippy::disallowed_methods, reason = "a deadline of a test")]
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A website with a form, and the gateway's part of it: it answers as told and remembers the bodies.
#[derive(Clone)]
struct Site {
    url: String,
    /// Answers still to give; 202 after the last.
    answers: Arc<Mutex<Vec<u16>>>,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start(answers: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let site = Self { url, answers: Arc::new(Mutex::new(answers.to_vec())), bodies: Arc::default() };
        let serving = site.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        site
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head
                    .lines()
                    .find_map(|line| {
                        line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().to_owned())
                    })
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0);
                if body.len() >= length {
                    let answer = self.answer(head, body);
                    let _ = stream.write_all(answer.as_bytes()).await;
                    return;
                }
            }
            match stream.read(&mut chunk).await {
                Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                _ => return,
            }
        }
    }

    fn answer(&self, head: &str, body: &str) -> String {
        let reply = |status: u16, kind: &str, body: &str| {
            format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
        };
        if head.starts_with("POST /v1/intake/site") {
            self.bodies.lock().expect("bodies").push(body.to_owned());
            let mut answers = self.answers.lock().expect("answers");
            let status = if answers.is_empty() { 202 } else { answers.remove(0) };
            return reply(status, "application/json", "{\"status\":\"received\"}");
        }
        if head.starts_with("GET /static/leadonce.js") {
            return reply(200, "text/javascript", leadonce::intake::SCRIPT);
        }
        reply(
            200,
            "text/html",
            "<!doctype html><title>form</title><form method=post action=/v1/intake/site><input name=name value=Anna>\
             <button>Send</button></form><p id=done></p><script src=/static/leadonce.js></script><script>\
             document.addEventListener('leadonce:done',()=>{document.getElementById('done').textContent='done'})</script>",
        )
    }

    fn ids(&self) -> Vec<String> {
        let bodies = self.bodies.lock().expect("bodies");
        let id = |body: &String| {
            form_urlencoded::parse(body.as_bytes())
                .find(|(name, _)| name == "_submission_id")
                .map(|(_, value)| value.into_owned())
        };
        bodies.iter().filter_map(id).collect()
    }
}

async fn send(client: &Client) {
    client.find(Locator::Css("button")).await.expect("the button").click().await.expect("clicked");
}

async fn done(client: &Client) {
    until("success", async || {
        let text = client.find(Locator::Id("done")).await.ok()?.text().await.ok()?;
        (text == "done").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_repeats_with_one_ordered_id_until_success() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(&[503, 503]).await;
    browser.client.goto(&site.url).await.expect("the page");
    send(&browser.client).await;
    done(&browser.client).await;
    let ids = site.ids();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.iter().all(|id| id == &ids[0]), "{ids:?}");
    let id = uuid::Uuid::try_parse(&ids[0]).expect("a UUID");
    assert_eq!(id.get_version_num(), 7, "keys arrive in order only as UUIDv7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_content_sent_again_is_the_same_submission_and_changed_content_another() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(&[]).await;
    browser.client.goto(&site.url).await.expect("the page");
    for sends in 1..=2 {
        send(&browser.client).await;
        until("a delivery", async || (site.ids().len() == sends).then_some(())).await;
    }
    let name = browser.client.find(Locator::Css("input[name=name]")).await.expect("the field");
    name.send_keys(" Maria").await.expect("typed");
    send(&browser.client).await;
    until("a delivery", async || (site.ids().len() == 3).then_some(())).await;
    let ids = site.ids();
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_before_success_keeps_the_id() {
    let Some(browser) = browser::start(true).await else { return };
    // 400 is not tried again by itself: the visitor reloads and sends once more.
    let site = Site::start(&[400]).await;
    browser.client.goto(&site.url).await.expect("the page");
    send(&browser.client).await;
    until("a delivery", async || (site.ids().len() == 1).then_some(())).await;
    browser.client.goto(&site.url).await.expect("the page again");
    send(&browser.client).await;
    done(&browser.client).await;
    let ids = site.ids();
    assert_eq!(ids[0], ids[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_javascript_the_plain_post_arrives() {
    let Some(browser) = browser::start(false).await else { return };
    let site = Site::start(&[]).await;
    browser.client.goto(&site.url).await.expect("the page");
    send(&browser.client).await;
    until("a delivery", async || {
        let bodies = site.bodies.lock().expect("bodies").clone();
        (bodies == ["name=Anna"]).then_some(())
    })
    .await;
}

/// The demo as a process.
struct Demo {
    child: Child,
    page: String,
}

impl Demo {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leadonce"))
            .args(["demo", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the demo starts");
        let stdout = child.stdout.take().expect("its output");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let page = lines
            .find_map(|line| line.trim().strip_prefix("form page").map(|url| url.trim().to_owned()))
            .expect("the demo tells its page");
        // What else it tells is read too: a closed pipe would end it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, page }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // SIGTERM, so that it takes its own gateway with it.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

async fn deals_and_states(client: &Client) -> (String, Vec<String>) {
    // The page may be on its way to another: the next look sees that one.
    let Ok(count) = client.find(Locator::Id("count")).await else { return Default::default() };
    let deals = count.text().await.unwrap_or_default();
    let mut states = Vec::new();
    for cell in client.find_all(Locator::Css("#operations td:first-child")).await.unwrap_or_default() {
        // A row may be replaced while it is read; the next look sees the new one.
        states.push(cell.text().await.unwrap_or_default());
    }
    (deals, states)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_keeps_its_promise_before_the_visitors_eyes() {
    let Some(browser) = browser::start(true).await else { return };
    let demo = Demo::start();
    let client = &browser.client;
    client.goto(&demo.page).await.expect("the form page");

    // Submitted twice: a double click, and once more after the thanks.
    let button = "const b=document.querySelector('form.lead button');b.click();b.click()";
    client.execute(button, vec![]).await.expect("a double click");
    until("one completed operation", async || {
        let (deals, states) = deals_and_states(client).await;
        (deals == "1" && states == ["completed"]).then_some(())
    })
    .await;
    client.execute(button, vec![]).await.expect("sent again");
    client
        .find(Locator::XPath("//button[contains(.,'once more')]"))
        .await
        .expect("redeliver")
        .click()
        .await
        .expect("clicked");
    until("still one deal", async || {
        let (deals, states) = deals_and_states(client).await;
        (deals == "1" && states == ["completed"]).then_some(())
    })
    .await;

    // A lost answer of the CRM is found again.
    client
        .find(Locator::XPath("//button[contains(.,'lose')]"))
        .await
        .expect("the fault")
        .click()
        .await
        .expect("clicked");
    let message = client.find(Locator::Css("form.lead textarea")).await.expect("the message");
    message.send_keys(" Another question.").await.expect("typed");
    client.execute("document.querySelector('form.lead button').click()", vec![]).await.expect("sent");
    until("the second operation found again", async || {
        let (deals, states) = deals_and_states(client).await;
        (deals == "2" && states == ["completed", "completed"]).then_some(())
    })
    .await;
}
