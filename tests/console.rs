//! The console in a real browser, over a real gateway and the sandbox CRM.

#[path = "support/browser.rs"]
mod browser;
#[path = "support/gateway.rs"]
mod gateway;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use browser::{Browser, until};
use fantoccini::key::Key;
use fantoccini::{Client, Locator};
use gateway::{Gateway, Setup, lead};
use serde_json::{Value, json};

/// A gateway whose empty look-ups are not believed: what is uncertain goes to a person.
fn setup() -> Setup {
    Setup {
        destination_tables: "[destination.retry]\ninitial_interval = \"100ms\"\n[destination.lookup]\nfirst_after = \"100ms\"\nsettle = \"1s\"\ntrusted = false\n"
            .into(),
        ..Setup::default()
    }
}

struct Stage {
    gateway: Gateway,
    browser: Browser,
}

impl Stage {
    /// Starts everything and signs in; `None` where there is no browser.
    async fn open(setup: Setup) -> Option<Self> {
        let browser = browser::start(true).await?;
        let stage = Self { gateway: Gateway::start(setup).await, browser };
        stage.sign_in().await;
        Some(stage)
    }

    fn client(&self) -> &Client {
        &self.browser.client
    }

    async fn sign_in(&self) {
        self.client().goto(&format!("{}/console", self.gateway.url)).await.expect("the console opens");
        self.click("details summary").await;
        self.fill("#by-token input", &self.gateway.token).await;
        self.click("#by-token button").await;
        self.see("#destinations").await;
    }

    /// Goes to a page of the console.
    async fn go(&self, hash: &str) {
        self.script(&format!("location.hash = {hash:?}")).await;
        until("the page is there", async || {
            let busy =
                self.script("return document.getElementById('main').hasAttribute('aria-busy') || location.hash").await;
            (busy == json!(hash)).then_some(())
        })
        .await;
    }

    async fn script(&self, script: &str) -> Value {
        self.client().execute(script, vec![]).await.expect("the script runs")
    }

    /// Waits for an element that is shown.
    async fn see(&self, css: &str) -> String {
        until(css, async || {
            let element = self.client().find(Locator::Css(css)).await.ok()?;
            element.is_displayed().await.ok()?.then_some(())?;
            element.text().await.ok()
        })
        .await
    }

    async fn see_text(&self, css: &str, text: &str) {
        until(&format!("{text:?} in {css}"), async || {
            let element = self.client().find(Locator::Css(css)).await.ok()?;
            element.text().await.ok()?.contains(text).then_some(())
        })
        .await;
    }

    async fn click(&self, css: &str) {
        until(&format!("{css} can be pressed"), async || {
            let element = self.client().find(Locator::Css(css)).await.ok()?;
            element.click().await.map_err(|error| eprintln!("{css}: {error}")).ok()
        })
        .await;
    }

    async fn fill(&self, css: &str, text: &str) {
        self.see(css).await;
        let element = self.client().find(Locator::Css(css)).await.expect("the field");
        element.clear().await.expect("cleared");
        element.send_keys(text).await.expect("typed");
    }

    /// A key, where the focus is.
    async fn press(&self, key: &str) {
        let element = self.client().active_element().await.expect("a focus");
        element.send_keys(key).await.expect("pressed");
    }

    /// Nothing of it was run, and the page has not complained.
    async fn no_script_ran(&self) {
        assert_eq!(self.script("return window.pwned ?? null").await, Value::Null);
    }

    async fn end(self) {
        self.browser.client.close().await.expect("the browser ends");
        self.gateway.end().await;
    }

    /// A lead whose outcome nobody knows: the CRM made its entity, the answer was lost, and for so long the CRM finds nothing.
    async fn uncertain(&self, key: &str, name: &str, blind: u32) -> String {
        self.gateway.faults(json!([
            {"call": "create", "kind": "commit_then_cut"},
            {"call": "lookup", "kind": "lookup_blind", "seconds": blind, "times": 100},
        ]));
        self.gateway.deliver(key, &lead(name), 0).await;
        let operation = self.gateway.in_state(key, "needs_review").await;
        operation["operation_id"].as_str().expect("an id").to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_an_uncertain_case_is_looked_up_and_linked_by_keyboard() {
    let Some(stage) = Stage::open(setup()).await else { return };
    let id = stage.uncertain("u1", "Анна", 3).await;
    stage.see_text("#needs", "uncertain outcome").await;
    stage.go("#/reviews").await;
    stage.see(&format!("tr[data-id='{id}']")).await;
    stage.press("j").await;
    stage.press(&Key::Enter).await;
    stage.see_text("#case", "no clear answer came back").await;
    stage.see_text("#case", "Whether crm made a record of it").await;
    // Creating again asks for the statement and a note before it does anything.
    stage.press("s").await;
    let form = stage.see("form[data-decision=retry]").await;
    assert!(form.contains("I checked, it is not there") && form.contains("duplicate"), "{form}");
    let required = stage.script("return [...document.querySelectorAll('form[data-decision=retry] [name=statement], form[data-decision=retry] [name=note]')].every((field) => field.required)").await;
    assert_eq!(required, json!(true));
    stage.click("form[data-decision=retry] button[type=submit]").await;
    assert_eq!(stage.gateway.creates(), 1, "nothing is sent without the statement");
    until("the CRM finds it", async || {
        stage.click("button[data-action=look_up]").await;
        let found = stage.see("#candidates").await;
        found.contains("1 record").then_some(())
    })
    .await;
    let found = stage.see("#candidates").await;
    assert!(found.contains("Анна"), "the lead stands beside what was found: {found}");
    stage.click("#candidates button[data-link]").await;
    stage.click("form[data-decision=complete] button[type=submit]").await;
    let operation = stage.gateway.in_state("u1", "completed").await;
    assert!(operation["crm_id"].is_string());
    stage.see_text(".summary", "completed").await;
    let line = stage.see("#timeline").await;
    for told in ["Delivery", "Create call 1", "uncertain", "looked up", "linked", "story-"] {
        assert!(line.contains(told), "{told} is not in the time line:\n{line}");
    }
    assert_eq!(stage.gateway.entities(), 1);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_shown_side_by_side_and_forwarded() {
    let Some(stage) = Stage::open(setup()).await else { return };
    stage.gateway.deliver("k1", &lead("Anna"), 5).await;
    let changed = json!({"name": "Anna", "phone": "+79160000002", "message": "a story"});
    let conflict = stage.gateway.deliver("k1", &changed, 0).await;
    assert_eq!(conflict.status, 422);
    stage.go("#/reviews?reason=payload_conflict").await;
    stage.click("tr[data-id] a").await;
    stage.see_text("#conflict", "+79160000002").await;
    let marked = stage.script("return [...document.querySelectorAll('#conflict tr.differs td:first-child')].map((cell) => cell.textContent)").await;
    assert_eq!(marked, json!(["≠ Phone"]), "exactly what differs is marked");
    stage.click("button[data-action=retry]").await;
    stage.click("form[data-decision=retry] button[type=submit]").await;
    stage.see_text("#told", "Sent again").await;
    until("both are in the CRM", async || (stage.gateway.entities() == 2).then_some(())).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lead_that_the_crm_refused_is_corrected_and_sent_again() {
    let Some(stage) = Stage::open(setup()).await else { return };
    stage.gateway.faults(json!([{"call": "create", "kind": "validation_error"}]));
    stage.gateway.deliver("r1", &lead("Ann"), 5).await;
    let refused = stage.gateway.in_state("r1", "failed_terminal").await;
    stage.go(&format!("#/operations/{}", refused["operation_id"].as_str().expect("an id"))).await;
    stage.see_text("#case", "refused this lead").await;
    stage.click("button[data-action=retry]").await;
    stage.click("form[data-decision=retry] details.edit summary").await;
    stage.fill("form[data-decision=retry] details.edit input", "Anna Corrected").await;
    stage.click("form[data-decision=retry] button[type=submit]").await;
    stage.gateway.in_state("r1", "completed").await;
    stage.see_text(".columns", "Anna Corrected").await;
    let entities = stage.gateway.sandbox.world().entities();
    assert_eq!(entities.len(), 1);
    assert!(format!("{:?}", entities[0]).contains("Anna Corrected"), "{:?}", entities[0]);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_is_suspended_and_resumed() {
    let Some(stage) = Stage::open(setup()).await else { return };
    stage.see_text("#needs", "Nothing needs you now").await;
    stage.click("summary[data-action=suspend]").await;
    stage.fill("#destinations input[name=note]", "the CRM is being moved").await;
    stage.click("button[data-action=suspend-now]").await;
    stage.see_text("#needs", "the CRM is being moved").await;
    stage.gateway.deliver("s1", &lead("Anna"), 0).await;
    assert_eq!(stage.gateway.until("s1", |operation| operation["status"] == "received").await["attempts"], 0);
    stage.click("button[data-action=resume]").await;
    stage.gateway.in_state("s1", "completed").await;
    stage.see_text("#needs", "Nothing needs you now").await;
    stage.go("#/audit").await;
    stage.see_text("table", "suspended").await;
    stage.see_text("table", "the CRM is being moved").await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_page_decides_nothing_and_is_told_who_was_faster() {
    let Some(stage) = Stage::open(setup()).await else { return };
    let id = stage.uncertain("o1", "Anna", 60).await;
    stage.go(&format!("#/operations/{id}")).await;
    stage.click("button[data-action=reject]").await;
    stage.fill("form[data-decision=reject] input[name=note]", "by the old page").await;
    let other = stage.gateway.resolve(&id, &json!({"action": "reject", "note": "I was faster"})).await;
    assert_eq!(other.status, 200, "{other:?}");
    stage.click("form[data-decision=reject] button[type=submit]").await;
    stage.see_text(".case .fault", "story-").await;
    let operation = stage.gateway.get(&format!("/v1/admin/operations/{id}")).await.body;
    assert_eq!(
        (&operation["status"], operation["audit"].as_array().map(Vec::len)),
        (&json!("failed_terminal"), Some(1))
    );
    stage.end().await;
}

/// What a stranger writes into every field.
const SCRIPT: &str = "\"><img src=/x onerror=window.pwned=1></script><script>window.pwned=1</script>\u{202e}";

#[tokio::test(flavor = "multi_thread")]
async fn c67_a_script_in_every_field_is_text_everywhere() {
    let Some(stage) = Stage::open(setup()).await else { return };
    let refusal = json!({"error": "CRM_FIELD_ERROR_VALUE_NOT_VALID", "error_description": SCRIPT}).to_string();
    stage.gateway.faults(json!([{"call": "create", "kind": "body", "status": 400, "body": refusal}]));
    let hostile = json!({
        "name": SCRIPT, "phone": SCRIPT, "email": SCRIPT, "message": SCRIPT, "page": "javascript:window.pwned=1", "utm_source": SCRIPT,
        SCRIPT: SCRIPT,
    });
    let answer = stage.gateway.deliver("<script>window.pwned=1</script>", &hostile, 5).await;
    let id = answer.body["operation_id"].as_str().expect("an id").to_owned();
    stage.gateway.deliver("<script>window.pwned=1</script>", &json!({"name": format!("{SCRIPT}2")}), 0).await;
    let refused = stage
        .gateway
        .client
        .post(format!("{}/v1/intake/shop", stage.gateway.url))
        .bearer_auth("shop-token")
        .body(SCRIPT);
    assert_eq!(gateway::Answer::of(refused).await.status, 400);
    for hash in ["#/", "#/reviews", "#/operations", &format!("#/operations/{id}"), "#/deliveries", "#/audit"] {
        stage.go(hash).await;
        stage.no_script_ran().await;
        assert_eq!(
            stage.script("return document.querySelectorAll('main img, main script').length").await,
            json!(0),
            "{hash}"
        );
    }
    stage.go(&format!("#/operations/{id}")).await;
    let lead = stage.see(".columns").await;
    assert!(lead.contains("<img src=/x onerror=window.pwned=1>") && lead.contains("U+202E"), "{lead}");
    let links = stage.script("return [...document.querySelectorAll('main a')].map((a) => a.protocol).filter((p) => p !== 'http:' && p !== 'https:')").await;
    assert_eq!(links, json!([]));
    stage.go("#/reviews").await;
    stage.click("tr[data-id] a").await;
    stage.see("#conflict").await;
    stage.no_script_ran().await;
    let asked = stage.script("return performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => name.endsWith('/x'))").await;
    assert_eq!(asked, json!([]), "nothing asked for what a stranger named");
    stage.end().await;
}

/// A page of somebody else, on another origin.
fn foreign_page(html: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{html}", html.len());
        }
    });
    format!("http://localhost:{port}/")
}

#[tokio::test(flavor = "multi_thread")]
async fn c82_a_foreign_page_presses_no_button_and_frames_nothing() {
    let Some(stage) = Stage::open(setup()).await else { return };
    let url = &stage.gateway.url;
    let suspend = format!("{url}/v1/admin/destinations/crm/suspend");
    let page = foreign_page(format!(
        "<img src='{suspend}'><iframe name=f id=f src='{url}/console'></iframe>\
         <form id=form method=post target=g action='{suspend}' enctype='text/plain'><input name='{{\"note\":\"' value='\"}}'></form><iframe name=g></iframe>\
         <script>Promise.allSettled([fetch('{suspend}',{{method:'POST',credentials:'include',mode:'no-cors',body:'{{}}'}}),\
         fetch('{suspend}',{{method:'POST',credentials:'include',headers:{{'x-csrf-token':''}},body:'{{}}'}})]).then(()=>document.title='done');form.submit()</script>"
    ));
    stage.client().goto(&page).await.expect("the foreign page opens");
    until("the foreign page has tried all", async || (stage.client().title().await.ok()? == "done").then_some(()))
        .await;
    let framed = stage.script("try { return document.getElementById('f').contentDocument !== null && f.document.querySelector('#by-token') !== null } catch { return false }").await;
    assert_eq!(framed, json!(false));
    let destinations = stage.gateway.get("/v1/admin/destinations").await.body;
    assert_eq!(destinations["items"][0]["state"], "active", "{destinations}");
    stage.client().goto(&format!("{url}/console")).await.expect("the console opens");
    stage.see("#destinations").await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_cases_are_decided_after_a_preview() {
    let Some(stage) = Stage::open(setup()).await else { return };
    for key in ["b1", "b2", "b3"] {
        stage.gateway.deliver(key, &lead("Anna"), 5).await;
        stage.gateway.deliver(key, &lead("Boris"), 0).await;
    }
    stage.go("#/reviews").await;
    stage.see("tr[data-id]").await;
    stage.script("document.querySelectorAll('tr[data-id] input[type=checkbox]').forEach((box) => box.click())").await;
    stage.click("button[data-action=bulk-reject]").await;
    stage.see_text("form[data-preview]", "3 will be rejected").await;
    stage.fill("form[data-preview] input[name=note]", "test data").await;
    stage.click("form[data-preview] button[type=submit]").await;
    stage.see_text("#bulk-done", "3 decided").await;
    let left = stage.gateway.get("/v1/admin/operations?status=needs_review").await.body;
    assert_eq!(left["items"], json!([]));
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_and_tokens_are_made_and_customers_are_found_by_any_spelling() {
    let Some(stage) = Stage::open(setup()).await else { return };
    stage.go("#/people").await;
    stage.fill("#new-person input[name=name]", "Анна").await;
    stage.fill("#new-person input[name=password]", "a few quiet words").await;
    stage.click("#new-person button").await;
    stage.see_text("table", "Анна").await;
    stage.fill("#new-token input[name=name]", "reports").await;
    stage.click("#new-token button").await;
    let token = stage.see("#token").await;
    assert!(token.starts_with("lo_"), "{token}");
    let found = stage.gateway.deliver("p1", &lead("Борис"), 5).await;
    let id = found.body["operation_id"].as_str().expect("an id").to_owned();
    until("the index has it", async || {
        let found = stage.gateway.post("/v1/admin/operations/search", &json!({"phone": "+79160000001"})).await;
        (found.body["items"].as_array()?.len() == 1).then_some(())
    })
    .await;
    stage.go("#/operations").await;
    stage.fill("input[type=search]", "8 (916) 000-00-01").await;
    stage.press(&Key::Enter).await;
    stage.see_text(".columns", "Борис").await;
    assert_eq!(stage.script("return location.hash").await, json!(format!("#/operations/{id}")));
    stage.click(".me summary").await;
    stage.click("#sign-out").await;
    stage.fill("#by-password input[name=name]", "Анна").await;
    stage.fill("#by-password input[name=password]", "a few quiet words").await;
    stage.click("#by-password button").await;
    stage.see_text(".columns", "Борис").await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_nobody_sends_again_while_a_worker_holds_the_lead() {
    let gateway = Gateway::start(setup()).await;
    gateway.faults(json!([{"call": "create", "kind": "delay", "ms": 1500}]));
    gateway.deliver("h1", &lead("Anna"), 0).await;
    // Not only claimed: the version that is read next is the one that stands while the call is out.
    let called = gateway.until("h1", |o| o["status"] == "in_progress" && o["attempts"] == 1).await;
    let id = called["operation_id"].as_str().expect("an id");
    let refused = gateway.resolve(id, &json!({"action": "retry", "note": "I cannot wait"})).await;
    assert_eq!(
        (refused.status, &refused.body["type"]),
        (409, &json!("urn:leadonce:problem:state-forbids")),
        "{refused:?}"
    );
    let detail = refused.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("node-") && detail.contains("until 20"), "who holds it, and until when: {detail}");
    gateway.in_state("h1", "completed").await;
    assert_eq!((gateway.entities(), gateway.creates()), (1, 1));
    gateway.end().await;
}

/// A CRM that repeats its own address, which is a password, in an error.
#[tokio::test(flavor = "multi_thread")]
async fn c41_no_secret_of_a_crm_is_shown_to_anybody() {
    let gateway = Gateway::start(setup()).await;
    let address = gateway.sandbox.bitrix_url();
    let secret = address.trim_end_matches('/').rsplit('/').next().expect("the secret part").to_owned();
    let refusal =
        json!({"error": "ERROR_CORE", "error_description": format!("cannot serve {address}crm.item.add")}).to_string();
    gateway.faults(json!([{"call": "create", "kind": "body", "status": 400, "body": refusal}]));
    let answer = gateway.deliver("c1", &lead("Anna"), 5).await;
    let id = answer.body["operation_id"].as_str().expect("an id").to_owned();
    gateway.in_state("c1", "failed_terminal").await;
    gateway.post(&format!("/v1/admin/operations/{id}/lookup"), &json!({})).await;
    let detail = gateway.get(&format!("/v1/admin/operations/{id}")).await;
    assert!(detail.text.contains("cannot serve"), "the CRM's words are shown: {}", detail.text);
    for path in [
        &format!("/v1/admin/operations/{id}"),
        "/v1/admin/overview",
        "/v1/admin/audit",
        "/v1/admin/events",
        "/v1/admin/operations.csv",
        "/v1/admin/destinations",
    ] {
        let shown = gateway.get(path).await.text;
        assert!(!shown.contains(&secret), "{path} shows {secret}: {shown}");
    }
    gateway.end().await;
}

/// No browser is needed to see who answers where.
#[tokio::test(flavor = "multi_thread")]
async fn the_console_may_have_an_address_of_its_own_and_the_first_start_tells_how_to_get_in() {
    let gateway = Gateway::start(Setup { more: "[admin]\nlisten = \"127.0.0.1:0\"\n".into(), ..setup() }).await;
    let log = gateway.log();
    let link = log.split_whitespace().find(|word| word.contains("/console#/first/")).expect("a link for the first");
    let (console, secret) = link.split_once("/console#/first/").expect("its parts");
    let status = async |base: &str, path: &str| {
        let request = gateway.client.get(format!("{base}{path}")).bearer_auth(&gateway.token);
        gateway::Answer::of(request).await.status
    };
    for path in ["/console", "/v1/admin/operations", "/openapi.json"] {
        assert_eq!((status(console, path).await, status(&gateway.url, path).await), (200, 404), "{path}");
    }
    assert_eq!((status(console, "/v1/intake/shop").await, status(console, "/readyz").await), (404, 200));
    // A token was made meanwhile: the link is over.
    let body = json!({"secret": secret, "name": "Eve", "password": "a few quiet words"});
    let first = gateway::Answer::of(gateway.client.post(format!("{console}/console/first")).json(&body)).await;
    assert_eq!(first.status, 401, "{first:?}");
    gateway.end().await;
}

/// Texts whose contrast is below AA (WCAG 2.2, 1.4.3): 4.5, and 3 for large ones; what is disabled does not count.
const TOO_PALE: &str = r"
    const channels = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
    const light = (text) => {
        const [r, g, b] = channels(text).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const back = getComputedStyle(at).backgroundColor;
            if ((channels(back)[3] ?? 1) > 0) return back;
        }
        return 'rgb(255, 255, 255)';
    };
    return [...document.querySelectorAll('body *')].filter((element) => {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim() !== '');
        if (!own || element.closest('svg, :disabled, noscript, .unseen, .skip') || element.getClientRects().length === 0) return false;
        const style = getComputedStyle(element);
        const size = parseFloat(style.fontSize);
        const [a, b] = [light(style.color), light(behind(element))].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05) < (size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5);
    }).map((element) => `${element.tagName} ${element.className}: ${element.textContent.slice(0, 40)}`);
";

/// Each page, light and dark, in both languages, wide and at a phone's width, into `target/console`; none is wider than its
/// screen, all can be read, and every field says what it is.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_pictured_and_fits_its_screen() {
    let Some(stage) = Stage::open(setup()).await else { return };
    stage.gateway.deliver("k1", &lead("Анна"), 5).await;
    stage.gateway.deliver("k1", &lead("Борис"), 0).await;
    let id = stage.uncertain("u1", "Вера", 60).await;
    let refused =
        stage.gateway.client.post(format!("{}/v1/intake/shop", stage.gateway.url)).bearer_auth("wrong").body("{}");
    assert_eq!(gateway::Answer::of(refused).await.status, 401);
    let conflict =
        stage.gateway.get("/v1/admin/operations?reason=payload_conflict").await.body["items"][0]["operation_id"]
            .clone();
    let conflict = conflict.as_str().expect("an id").to_owned();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").join("console");
    std::fs::create_dir_all(&folder).expect("the folder");
    let pages = [
        ("overview", "#/".to_owned()),
        ("reviews", "#/reviews".to_owned()),
        ("case", format!("#/operations/{id}")),
        ("conflict", format!("#/operations/{conflict}")),
        ("operations", "#/operations".to_owned()),
        ("deliveries", "#/deliveries".to_owned()),
        ("audit", "#/audit".to_owned()),
        ("people", "#/people".to_owned()),
        ("api", "#/api".to_owned()),
    ];
    for language in ["en", "ru"] {
        for theme in ["light", "dark"] {
            for (width, screen) in [(1280, "wide"), (390, "phone")] {
                stage.client().set_window_size(width, 900).await.expect("the size");
                stage.script(&format!("localStorage.language = {language:?}; localStorage.theme = {theme:?}; location.hash = ''; location.reload()")).await;
                stage.see("#destinations").await;
                for (name, hash) in &pages {
                    stage.go(hash).await;
                    let over = stage
                        .script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                        .await;
                    assert_eq!(over, json!(0), "{name} is too wide ({language}, {screen})");
                    let pale = stage.script(TOO_PALE).await;
                    assert_eq!(pale, json!([]), "{name}: hard to read ({theme})");
                    let spoken = stage.script("return [...document.querySelectorAll('input, select, textarea')].filter((field) => !field.labels?.length && !field.getAttribute('aria-label')).length").await;
                    assert_eq!(spoken, json!(0), "{name}: a field without a label");
                    let picture = stage.client().screenshot().await.expect("a picture");
                    assert!(picture.len() > 5_000, "{name} is empty");
                    std::fs::write(folder.join(format!("{name}-{language}-{theme}-{screen}.png")), picture)
                        .expect("written");
                }
            }
        }
    }
    stage.end().await;
}
