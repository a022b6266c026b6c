//! The demo in a real browser, as its first visitor sees it.

#[path = "support/browser.rs"]
mod browser;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use browser::until;
use fantoccini::{Client, Locator};

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

/// Presses a button that leads to the page again, and waits until that page has come.
async fn press(client: &Client, label: &str) {
    client.execute("window.before = true", vec![]).await.expect("the old page is marked");
    let button = client.find(Locator::XPath(&format!("//button[contains(.,'{label}')]"))).await.expect(label);
    button.click().await.expect("clicked");
    until("the page again", async || {
        let fresh = "return window.before === undefined && document.readyState === 'complete'";
        client.execute(fresh, vec![]).await.ok()?.as_bool()?.then_some(())
    })
    .await;
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
    press(client, "once more").await;
    until("still one deal", async || {
        let (deals, states) = deals_and_states(client).await;
        (deals == "1" && states == ["completed"]).then_some(())
    })
    .await;

    // A lost answer of the CRM is found again.
    press(client, "lose").await;
    let message = client.find(Locator::Css("form.lead textarea")).await.expect("the message");
    message.send_keys(" Another question.").await.expect("typed");
    client.execute("document.querySelector('form.lead button').click()", vec![]).await.expect("sent");
    until("the second operation found again", async || {
        let (deals, states) = deals_and_states(client).await;
        (deals == "2" && states == ["completed", "completed"]).then_some(())
    })
    .await;
}
