//! `leadonce.js` in a real browser where things go wrong: lost connections, double clicks, refusals, files.

#[path = "support/browser.rs"]
mod browser;

use std::io::Write;
use std::sync::{Arc, Mutex};

use browser::until;
use fantoccini::{Client, Locator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the gateway's part of the site does with a submission.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// Takes it and closes the connection without an answer.
    Drop,
    Answer(u16),
}

/// A website with a form; it remembers each submission's content type and body.
#[derive(Clone)]
struct Site {
    url: String,
    form: &'static str,
    then: Arc<Mutex<Vec<Then>>>,
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl Site {
    async fn start(form: &'static str, then: &[Then]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let site = Self { url, form, then: Arc::new(Mutex::new(then.to_vec())), seen: Arc::default() };
        let serving = site.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        site
    }

    async fn serve(self, mut stream: TcpStream) {
        let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = header(head, "content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
                if body.len() >= length {
                    if let Some(answer) = self.answer(head, body) {
                        let _ = stream.write_all(answer.as_bytes()).await;
                    }
                    return;
                }
            }
            match stream.read(&mut chunk).await {
                Ok(read) if read > 0 => request.extend_from_slice(&chunk[..read]),
                _ => return,
            }
        }
    }

    fn answer(&self, head: &str, body: &str) -> Option<String> {
        let reply = |status: u16, kind: &str, body: &str| {
            let length = body.len();
            Some(format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{body}"
            ))
        };
        if head.starts_with("POST /v1/intake/site") {
            assert!(header(head, "cookie").is_none() || header(head, "sec-fetch-mode").as_deref() == Some("navigate"));
            let kind = header(head, "content-type").unwrap_or_default();
            self.seen.lock().expect("seen").push((kind, body.to_owned()));
            let mut then = self.then.lock().expect("then");
            return match if then.is_empty() { Then::Answer(202) } else { then.remove(0) } {
                Then::Drop => None,
                Then::Answer(status) => reply(status, "application/json", "{}"),
            };
        }
        if head.starts_with("GET /static/leadonce.js") {
            return reply(200, "text/javascript", &leadonce::intake::script());
        }
        if head.starts_with("GET /thanks") {
            return reply(200, "text/html", "<title>thanks</title>");
        }
        if head.starts_with("GET / ") {
            let page =
                format!("<!doctype html><title>form</title>{}<script src=/static/leadonce.js></script>", self.form);
            return reply(200, "text/html", &page);
        }
        reply(404, "text/plain", "")
    }

    fn seen(&self) -> Vec<(String, String)> {
        self.seen.lock().expect("seen").clone()
    }

    fn ids(&self) -> Vec<String> {
        let id = |body: &str| {
            let pairs = form_urlencoded::parse(body.as_bytes());
            pairs.into_iter().find(|(name, _)| name == "_submission_id").map(|(_, id)| id.into_owned())
        };
        self.seen().iter().map(|(_, body)| id(body).unwrap_or_default()).collect()
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
}

async fn title(client: &Client, expected: &str) {
    until(expected, async || (client.title().await.ok()? == expected).then_some(())).await;
}

async fn click(client: &Client) {
    client.find(Locator::Css("button")).await.expect("the button").click().await.expect("clicked");
}

const FORM: &str = "<form method=post action=/v1/intake/site data-thanks=/thanks data-volatile='csrf page_time'>\
    <input name=name value=Anna><input type=hidden name=page_time value=0><button name=which value=first>Send</button></form>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_and_a_double_click_are_one_submission() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(FORM, &[Then::Drop, Then::Drop]).await;
    browser.client.goto(&site.url).await.expect("the page");
    let presses =
        "const f=document.forms[0],b=f.querySelector('button');f.requestSubmit(b);f.requestSubmit();f.requestSubmit()";
    browser.client.execute(presses, vec![]).await.expect("pressed");
    title(&browser.client, "thanks").await;
    let ids = site.ids();
    assert_eq!(ids.len(), 3, "two lost, one answered, none from the further presses: {ids:?}");
    assert!(ids.iter().all(|id| id == &ids[0] && !id.is_empty()), "{ids:?}");
    assert!(
        site.seen().iter().all(|(kind, body)| {
            kind.starts_with("application/x-www-form-urlencoded") && body.contains("which=first")
        })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_submission_goes_the_forms_own_way_with_its_id() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(FORM, &[Then::Answer(403)]).await;
    browser.client.goto(&site.url).await.expect("the page");
    click(&browser.client).await;
    until("the plain POST", async || (site.seen().len() == 2).then_some(())).await;
    let ids = site.ids();
    assert_eq!(ids[0], ids[1]);
    assert!(!ids[0].is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forms_own_way_keeps_the_id_where_a_browser_has_no_formdata_event() {
    let Some(browser) = browser::start(true).await else { return };
    let form = "<script>addEventListener('formdata', event => event.stopImmediatePropagation(), true)</script>
        <form method=post action=/v1/intake/site><input name=name value=Anna><button>Send</button></form>";
    let site = Site::start(form, &[Then::Answer(403)]).await;
    browser.client.goto(&site.url).await.expect("the page");
    click(&browser.client).await;
    until("the plain POST", async || (site.seen().len() == 2).then_some(())).await;
    let ids = site.ids();
    assert!(
        ids[0] == ids[1] && !ids[0].is_empty(),
        "without its id a try that arrived unseen would be made again: {ids:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_prevents_it_keeps_the_script_from_moving_on() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(FORM, &[Then::Answer(403)]).await;
    browser.client.goto(&site.url).await.expect("the page");
    let prevent = "for (const e of ['leadonce:failed','leadonce:done']) addEventListener(e, v => { \
        v.preventDefault(); document.title = v.type + (v.detail.status || '') })";
    browser.client.execute(prevent, vec![]).await.expect("listening");
    click(&browser.client).await;
    title(&browser.client, "leadonce:failed403").await;
    click(&browser.client).await;
    title(&browser.client, "leadonce:done").await;
    assert_eq!(site.seen().len(), 2);
    assert_eq!(site.ids()[0], site.ids()[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_change_by_themselves_make_no_new_submission_and_fields_the_visitor_changes_do() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(FORM, &[]).await;
    browser.client.goto(&site.url).await.expect("the page");
    let stay = "addEventListener('leadonce:done', e => e.preventDefault())";
    browser.client.execute(stay, vec![]).await.expect("listening");
    for (sends, change) in
        [(1, ""), (2, "document.forms[0].page_time.value = 7"), (3, "document.forms[0].elements.name.value = 'Maria'")]
    {
        browser.client.execute(change, vec![]).await.expect("changed");
        until("a press that is taken", async || {
            click(&browser.client).await;
            (site.seen().len() >= sends).then_some(())
        })
        .await;
    }
    let ids = site.ids();
    let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), 2, "{ids:?}");
    assert_eq!(ids.first(), ids.get(1));
    assert_ne!(ids.first(), ids.last());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_with_a_file_is_sent_whole() {
    let Some(browser) = browser::start(true).await else { return };
    let form = "<form method=post action=/v1/intake/site data-thanks=/thanks enctype=multipart/form-data>\
        <input name=name value=Anna><input type=file name=cv><input type=file name=photo><button>Send</button></form>";
    let site = Site::start(form, &[]).await;
    let mut file = tempfile::Builder::new().suffix(".txt").tempfile().expect("a file");
    file.write_all(b"twelve years at sea").expect("written");
    browser.client.goto(&site.url).await.expect("the page");
    let input = browser.client.find(Locator::Css("input[name=cv]")).await.expect("the input");
    input.send_keys(file.path().to_str().expect("a path")).await.expect("chosen");
    click(&browser.client).await;
    title(&browser.client, "thanks").await;
    let (kind, body) = site.seen().remove(0);
    assert!(kind.starts_with("multipart/form-data"), "{kind}");
    assert!(
        body.contains("twelve years at sea") && body.contains("name=\"_submission_id\"") && !body.contains("photo")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_busy_gets_the_same_ordered_id_until_it_takes_it() {
    let Some(browser) = browser::start(true).await else { return };
    let site = Site::start(FORM, &[Then::Answer(503), Then::Answer(503)]).await;
    browser.client.goto(&site.url).await.expect("the page");
    click(&browser.client).await;
    title(&browser.client, "thanks").await;
    let ids = site.ids();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.iter().all(|id| id == &ids[0]), "{ids:?}");
    let id = uuid::Uuid::try_parse(&ids[0]).expect("a UUID");
    assert_eq!(id.get_version_num(), 7, "keys arrive in order only as UUIDv7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_before_success_keeps_the_id() {
    let Some(browser) = browser::start(true).await else { return };
    // A refusal is not tried again by itself: the visitor comes back and sends once more.
    let site = Site::start(FORM, &[Then::Answer(403), Then::Answer(403)]).await;
    browser.client.goto(&site.url).await.expect("the page");
    click(&browser.client).await;
    until("the plain POST", async || (site.seen().len() == 2).then_some(())).await;
    browser.client.goto(&site.url).await.expect("the page again");
    click(&browser.client).await;
    title(&browser.client, "thanks").await;
    let ids = site.ids();
    assert!(ids.iter().all(|id| id == &ids[0] && !id.is_empty()), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_javascript_the_plain_post_arrives() {
    let Some(browser) = browser::start(false).await else { return };
    let site = Site::start(FORM, &[]).await;
    browser.client.goto(&site.url).await.expect("the page");
    click(&browser.client).await;
    until("the plain POST", async || (site.seen().len() == 1).then_some(())).await;
    assert_eq!(site.seen()[0].1, "name=Anna&page_time=0&which=first");
}
