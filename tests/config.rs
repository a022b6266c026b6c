//! The configuration as its users meet it: a text goes in, a lawful configuration or every fault at once comes out.

use std::collections::BTreeMap;
use std::time::Duration;

use leadonce::config::{self, Complaints, Config, Destination, Faults, Kinds, Outside};
use leadonce::crm::Defaults;
use leadonce::intake::{MissingKey, Settings};

/// A destination and a source that are right, to put one wrong line into.
const RIGHT: &str = r#"
[[destination]]
name = "crm"
kind = "bitrix24"
webhook_url = "https://portal.example/rest/1/secret/"

[[source]]
name = "site"
kind = "form"
destination = "crm"
"#;

fn advice(kind: &str) -> Option<Defaults> {
    let advice = |rate_per_second, trusted| Defaults {
        rate_per_second,
        burst: 40,
        first_after: Duration::from_secs(5),
        settle: Duration::from_secs(90),
        trusted,
    };
    match kind {
        "bitrix24" => Some(advice(2.0, true)),
        "http" => Some(advice(10.0, false)),
        _ => None,
    }
}

/// As the registry of CRMs will: a kind knows its own keys.
fn check_destination(destination: &Destination) -> Complaints {
    let mut complaints = Vec::new();
    let mut complain = |key: &str, message: &str| complaints.push((key.into(), message.into()));
    let known: &[&str] =
        if destination.kind == "bitrix24" { &["webhook_url", "entity"] } else { &["create", "lookup"] };
    for key in destination.connector.keys().filter(|key| !known.contains(&key.as_str())) {
        complain(key, "is not known here");
    }
    match destination.connector.get("create").and_then(|create| create.get("path")) {
        None if destination.kind == "http" => complain("create.path", "is missing"),
        _ => {}
    }
    if let Some(rules) = destination.connector.get("create").and_then(|create| create.get("rules")) {
        for (n, _) in rules.as_array().into_iter().flatten().enumerate().filter(|(_, rule)| rule.get("class").is_none())
        {
            complain(&format!("create.rules.{n}.class"), "is missing");
        }
    }
    if destination.kind == "bitrix24" && !destination.connector.contains_key("webhook_url") {
        complain("webhook_url", "is missing");
    }
    complaints
}

fn source_keys(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "any" => Some(ALL_KEYS),
        "form" => Some(FORM_KEYS),
        "api" => Some(&["token", "key", "missing_key", "resubmit_window", "likely_copy"]),
        "standard-webhooks" => Some(&["secret", "secrets", "expired_secrets", "signed", "tolerance"]),
        _ => None,
    }
}

const ALL_KEYS: &[&str] = &[
    "token",
    "secret",
    "secrets",
    "expired_secrets",
    "allow_origins",
    "thank_you_url",
    "key",
    "volatile",
    "default_region",
    "missing_key",
    "resubmit_window",
    "likely_copy",
    "honeypot",
    "signed",
    "tolerance",
];

const FORM_KEYS: &[&str] = &[
    "allow_origins",
    "thank_you_url",
    "key",
    "volatile",
    "default_region",
    "missing_key",
    "resubmit_window",
    "honeypot",
];

fn check_source(settings: &Settings) -> Complaints {
    let missing = settings.kind == "api" && settings.token.is_none();
    missing.then(|| ("token".into(), "is missing".into())).into_iter().collect()
}

fn parse(text: &str, env: &[(&str, &str)], files: &[(&str, &str)]) -> Result<Config, Faults> {
    let names: Vec<String> = env.iter().map(|(name, _)| (*name).to_owned()).collect();
    let env: BTreeMap<&str, &str> = env.iter().copied().collect();
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let outside = Outside {
        names: &names,
        variable: &|name| env.get(name).map(|value| (*value).to_owned()),
        file: &|path| files.get(path).map(|text| (*text).to_owned()).ok_or_else(|| "no such file".to_owned()),
    };
    let kinds = Kinds {
        crms: &["bitrix24", "http"],
        crm_defaults: &advice,
        check_destination: &check_destination,
        sources: &["form", "api", "standard-webhooks", "any"],
        source_keys: &source_keys,
        check_source: &check_source,
    };
    config::parse(text, &outside, &kinds)
}

fn faults_with(text: &str, env: &[(&str, &str)]) -> Vec<String> {
    match parse(text, env, &[]) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

fn faults(text: &str) -> Vec<String> {
    faults_with(text, &[])
}

fn read(text: &str) -> Config {
    parse(text, &[], &[]).unwrap_or_else(|faults| panic!("{faults}\nin\n{text}"))
}

const ENVIRONMENT: [(&str, &str); 5] = [
    ("DATABASE_URL", "postgres://gate:p4ssw0rd@db.example/leads?sslmode=require"),
    ("BITRIX24_WEBHOOK_URL", "https://portal.example/rest/1/s3cret/"),
    ("SHOP_TOKEN", "shop-t0ken"),
    ("HOOK_OLD", "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk"),
    ("ALERT_SECRET", "whsec_YWxlcnRhbGVydGFsZXJ0YWxlcnRhbGVydGFsZXJ0"),
];

fn full() -> Config {
    let files = [("/run/secrets/warehouse", "w4rehouse\n")];
    parse(include_str!("../fixtures/config/full.toml"), &ENVIRONMENT, &files)
        .unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn every_key_is_read_into_its_place() {
    let config = full();
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:9000");
    assert_eq!(config.server.public_url.as_deref(), Some("https://leads.example.com"));
    assert_eq!((config.server.max_body, config.server.workers), (2 << 20, Some(3)));
    assert_eq!(config.store.url, "postgres://gate:p4ssw0rd@db.example/leads?sslmode=require");
    assert_eq!((config.store.queue, config.store.batch, config.store.readers), (1000, 100, 2));

    let bitrix = &config.destinations[0];
    assert_eq!((bitrix.name.as_str(), bitrix.kind.as_str()), ("bitrix", "bitrix24"));
    assert_eq!(bitrix.connector["webhook_url"], "https://portal.example/rest/1/s3cret/");
    assert_eq!(bitrix.connector.len(), 1);
    assert_eq!(bitrix.rate_group, "portal");
    let delivery = &bitrix.delivery;
    assert_eq!((delivery.timeout, delivery.lease), (Duration::from_secs(10), Duration::from_secs(45)));
    assert_eq!((delivery.concurrency, delivery.rate_per_second, delivery.burst), (2, 4.5, 200));
    assert_eq!((delivery.retry.max_attempts, delivery.retry.multiplier, delivery.retry.jitter), (5, 3.0, 0.25));
    assert_eq!(delivery.retry.initial_interval, Duration::from_secs(2));
    assert_eq!(delivery.retry.max_interval, Duration::from_secs(600));
    assert_eq!(delivery.retry.max_elapsed, Duration::from_secs(43_200));
    assert_eq!(delivery.lookup.first_after, Duration::from_secs(7));
    assert_eq!(delivery.lookup.settle, Duration::from_secs(180));
    assert_eq!(delivery.lookup.give_up, Duration::from_secs(21_600));
    assert!(!delivery.lookup.trusted);
    let create = &config.destinations[1].connector["create"];
    assert_eq!(create["headers"]["X-Token"], "w4rehouse", "the newline that ends the file is not part of the secret");
    assert_eq!(create["limits"].to_string(), "[1,2.5]");

    let [site, shop, events] = &config.sources[..] else { panic!("three sources") };
    assert_eq!(site.allow_origins, ["https://example.com", "https://www.example.com:8443"]);
    assert_eq!(site.thank_you_url.as_deref(), Some("https://example.com/thanks"));
    assert_eq!(site.key.as_deref(), Some("submission_id"));
    assert_eq!(site.volatile, ["page_time", "nonce"]);
    assert_eq!(site.default_region.as_deref(), Some("RU"));
    assert_eq!((site.missing_key, site.resubmit_window), (Some(MissingKey::ResubmitWindow), Duration::from_secs(300)));
    assert_eq!((site.honeypot.as_str(), site.rate_per_second, site.max_body), ("fax", Some(20.0), 4 << 20));
    assert_eq!(shop.token.as_deref(), Some("shop-t0ken"));
    assert_eq!((shop.missing_key, shop.max_wait), (Some(MissingKey::Generate), Duration::ZERO));
    assert_eq!(shop.max_body, 2 << 20, "the server's limit is every source's");
    assert_eq!((events.secrets.len(), events.expired_secrets.len()), (2, 1));
    assert!(shop.hold_copies && !site.hold_copies);
    assert_eq!(events.tolerance, Duration::from_secs(60));

    assert_eq!(config.retention.payload, Duration::from_secs(30 * 86_400));
    assert_eq!(config.retention.tombstone, Duration::from_secs(730 * 86_400));
    assert_eq!(config.alerts.webhook_url.as_deref(), Some("https://hooks.example.com/T0/B0/XXXX"));
}

#[test]
fn what_the_file_leaves_out_has_its_documented_default() {
    let config = read(RIGHT);
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!((config.server.public_url, config.server.max_body, config.server.workers), (None, 1 << 20, None));
    assert_eq!(config.store.url, "sqlite://leadonce.db");
    assert_eq!((config.store.queue, config.store.batch, config.store.readers), (4096, 256, 4));
    let delivery = config.destinations[0].delivery;
    assert_eq!((delivery.timeout, delivery.concurrency), (Duration::from_secs(15), 4));
    assert_eq!((delivery.lease, delivery.rate_per_second, delivery.burst), (Duration::from_secs(60), 2.0, 40));
    let retry = delivery.retry;
    assert_eq!((retry.max_attempts, retry.multiplier, retry.jitter), (8, 2.0, 0.5));
    assert_eq!((retry.initial_interval, retry.max_interval), (Duration::from_secs(1), Duration::from_secs(300)));
    assert_eq!(retry.max_elapsed, Duration::from_secs(86_400));
    let lookup = delivery.lookup;
    assert_eq!((lookup.first_after, lookup.settle), (Duration::from_secs(5), Duration::from_secs(90)));
    assert_eq!((lookup.give_up, lookup.trusted), (Duration::from_secs(86_400), true));
    let source = &config.sources[0];
    assert_eq!((source.honeypot.as_str(), source.missing_key), ("", None));
    assert_eq!((source.resubmit_window, source.tolerance), (Duration::from_secs(120), Duration::from_secs(300)));
    assert_eq!((source.max_wait, source.max_body), (Duration::from_secs(10), 1 << 20));
    assert_eq!((source.rate_per_second, source.token.as_deref()), (None, None));
    assert_eq!(config.retention.payload, Duration::from_secs(90 * 86_400));
    assert_eq!(config.retention.tombstone, Duration::from_secs(400 * 86_400));
    assert_eq!(config.alerts.webhook_url.as_deref(), None);
}

#[test]
fn policies_are_read_from_inline_tables_and_dotted_keys_as_well() {
    let inline = r#"
destination = [{ name = "crm", kind = "http", create = { path = "/" }, retry = { max_attempts = 3 }, lookup.settle = "7m" }]
source = [{ name = "site", kind = "form", destination = "crm" }]
"#;
    let delivery = read(inline).destinations[0].delivery;
    assert_eq!((delivery.retry.max_attempts, delivery.lookup.settle), (3, Duration::from_secs(420)));
}

#[test]
fn an_empty_file_is_told_what_a_gateway_needs() {
    assert_eq!(
        faults("# nothing yet\n"),
        [
            "destination: at least one [[destination]] is needed: the CRM that leads go to",
            "source: at least one [[source]] is needed: the sender that leads come from",
        ]
    );
}

#[test]
fn each_fault_has_its_line_and_key() {
    // The line that is wrong is number 1 of the text, before or inside the right rest.
    for (wrong, fault) in [
        ("server = 3", "line 1: server: must be a table, found 3"),
        ("[[server]]", "line 1: server: must be a table, found a list"),
        ("sever.listen = \"x\"", "line 1: sever: unknown key; did you mean \"server\"?"),
        ("server.colour = 1", "line 1: server.colour: unknown key"),
        ("server.listn = 1", "line 1: server.listn: unknown key; did you mean \"listen\"?"),
        (
            "server.listen = \"localhost:8080\"",
            "line 1: server.listen: must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\", \
             found \"localhost:8080\"",
        ),
        ("server.listen = 8080", "line 1: server.listen: must be a text in quotes, found 8080"),
        ("server.listen = \" \"", "line 1: server.listen: must not be empty, found \" \""),
        (
            "server.public_url = \"leads.example.com\"",
            "line 1: server.public_url: must be an address that begins with https:// (or http://), found \
             \"leads.example.com\"",
        ),
        (
            "server.public_url = \"https://e.com/?a=1\"",
            "line 1: server.public_url: must be an address without user, ? or #, found \"https://e.com/?a=1\"",
        ),
        (
            "server.max_body = 1048576",
            "line 1: server.max_body: must be a size: a whole number and one of the units KiB, MiB, B, such as \
             \"1MiB\", found 1048576",
        ),
        ("server.max_body = \"1B\"", "line 1: server.max_body: must be from 1KiB to 64MiB, found \"1B\""),
        ("server.workers = 0", "line 1: server.workers: must be a whole number from 1 to 256, found 0"),
        ("server.workers = 1.5", "line 1: server.workers: must be a whole number from 1 to 256, found 1.5"),
        ("server.workers = [1]", "line 1: server.workers: must be a whole number from 1 to 256, found a list"),
        ("server.workers = 2026-01-01", "line 1: server.workers: must be a whole number from 1 to 256, found a date"),
        (
            "store.url = \"mysql://me:word@db/x\"",
            "line 1: store.url: must begin with sqlite:// or postgres://, found another text",
        ),
        ("store.url = \"sqlite://\"", "line 1: store.url: must name a file or a server after ://, found another text"),
        ("store.queue = -1", "line 1: store.queue: must be a whole number from 1 to 1000000, found -1"),
        ("store = { queue = 10 }", "line 1: store.batch: must not be larger than queue (10), found 256"),
        (
            "retention.payload = 90",
            "line 1: retention.payload: must be a duration: a whole number and one of the units ms, s, m, h, d, such \
             as \"15s\", found 90",
        ),
        ("retention.payload = \"0d\"", "line 1: retention.payload: must be longer than nothing, found \"0d\""),
        ("retention.payload = \"9999d\"", "line 1: retention.payload: must be at most 3650d, found \"9999d\""),
        (
            "retention.tombstone = \"29d\"",
            "line 1: retention.tombstone: must be at least 30d (senders retry for up to 20 days), found 29d",
        ),
        (
            "retention = { payload = \"60d\", tombstone = \"40d\" }",
            "line 1: retention.tombstone: must be at least as long as payload (60d), found 40d",
        ),
        (
            "alerts.webhook_url = \"https://a.example\"",
            "line 1: alerts.webhook_secret: is missing: alerts to webhook_url are signed with it",
        ),
        (
            "alerts.webhook_secret = \"whsec_YWxlcnRhbGVydGFsZXJ0YWxlcnRhbGVydGFsZXJ0\"",
            "line 1: alerts.webhook_url: is missing: webhook_secret signs what is sent there",
        ),
        (
            "alerts = { webhook_url = \"https://a.example\", webhook_secret = \"hush\" }",
            "line 1: alerts.webhook_secret: must be whsec_ and 24 to 64 bytes in base64 (make one: echo \
             whsec_$(openssl rand -base64 32)), found another text",
        ),
        ("admin.port = 9", "line 1: admin.port: unknown key"),
        (
            "admin.listen = \"8081\"",
            "line 1: admin.listen: must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\", found \"8081\"",
        ),
        (
            "admin.listen = \"127.0.0.1:8080\"",
            "line 1: admin.listen: is the address of [server]; leave it out to serve the console there, or choose another",
        ),
        (
            "admin.session_idle = \"13h\"",
            "line 1: admin.session_idle: must not be longer than session_longest (12h), found 13h",
        ),
        ("operator.port = 9", "line 1: operator: unknown key"),
    ] {
        assert_eq!(faults(&format!("{wrong}{RIGHT}")), [fault], "{wrong}");
    }
}

#[test]
fn each_fault_of_a_destination_has_its_line_and_key() {
    for (wrong, fault) in [
        (
            "name = \"two words\"",
            "destination[0].name: is not a name: a name has 1 to 64 letters, digits, dashes, \
          underscores or dots, found \"two words\"",
        ),
        ("name = \"\"", "destination[0].name: must not be empty, found \"\""),
        (
            "kind = \"bitrix\"",
            "destination[0].kind: must be one of bitrix24, http (did you mean \"bitrix24\"?), found \
          \"bitrix\"",
        ),
        ("timeout = \"11m\"", "destination[0].timeout: must be at most 10m, found \"11m\""),
        ("timeout = \"0s\"", "destination[0].timeout: must be at least 1ms, found \"0s\""),
        (
            "timeout = \"15 s\"",
            "destination[0].timeout: must be a duration: a whole number and one of the units ms, s, \
          m, h, d, such as \"15s\", found \"15 s\"",
        ),
        ("concurrency = 0", "destination[0].concurrency: must be a whole number from 1 to 1000, found 0"),
        ("rate = 2", "destination[0].rate: must be a table, found 2"),
        ("rate = { per_second = 0 }", "destination[0].rate.per_second: must be a number greater than 0, found 0"),
        ("rate = { per_second = inf }", "destination[0].rate.per_second: must be a number greater than 0, found inf"),
        ("rate = { per_second = nan }", "destination[0].rate.per_second: must be a number greater than 0, found NaN"),
        ("rate = { burst = 0 }", "destination[0].rate.burst: must be a whole number of at least 1, found 0"),
        ("rate = { pre_second = 1 }", "destination[0].rate.pre_second: unknown key; did you mean \"per_second\"?"),
        ("lease = \"15s\"", "destination[0].lease: must be at least 18750ms for a timeout of 15s, found 15s"),
        (
            "retry.max_attempts = \"eight\"",
            "destination[0].retry.max_attempts: must be a whole number of at least 1, \
          found \"eight\"",
        ),
        (
            "retry.max_attempts = \"8\"",
            "destination[0].retry.max_attempts: must be a whole number of at least 1, found \
          \"8\"",
        ),
        ("retry.multiplier = 0.5", "destination[0].retry.multiplier: must be a number from 1 to 100, found 0.5"),
        ("retry.jitter = 1.1", "destination[0].retry.jitter: must be a number from 0 to 1, found 1.1"),
        (
            "retry.max_interval = \"1ms\"",
            "destination[0].retry.max_interval: must not be shorter than \
          initial_interval (1s), found 1ms",
        ),
        (
            "retry.max_elapsed = \"1ms\"",
            "destination[0].retry.max_elapsed: must not be shorter than initial_interval \
          (1s), found 1ms",
        ),
        ("retry.tries = 3", "destination[0].retry.tries: unknown key"),
        ("lookup.settle = \"25h\"", "destination[0].lookup.give_up: must not be shorter than settle (25h), found 1d"),
        ("lookup.give_up = \"60s\"", "destination[0].lookup.give_up: must not be shorter than settle (90s), found 1m"),
        ("lookup.trusted = \"yes\"", "destination[0].lookup.trusted: must be true or false, found \"yes\""),
        ("lookup.setle = \"1s\"", "destination[0].lookup.setle: is not known here; did you mean \"settle\"?"),
        ("lookup = \"1s\"", "destination[0].lookup: must be a table, found \"1s\""),
        ("timout = \"1s\"", "destination[0].timout: is not known here; did you mean \"timeout\"?"),
        ("flavour = 1", "destination[0].flavour: is not known here"),
        (
            "born = 2026-01-01",
            "destination[0].born: must be a text, number, list or table, found a date; put it in \
          quotes",
        ),
        ("weight = nan", "destination[0].weight: must be a finite number, found NaN"),
        ("webhook_url = \"env:NO_SUCH\"", "destination[0].webhook_url: the environment variable NO_SUCH is not set"),
        ("webhook_url = \"file:/none\"", "destination[0].webhook_url: the file /none cannot be read: no such file"),
    ] {
        let key = wrong.split([' ', '.']).next().unwrap_or_default();
        let rest = ["name = \"crm\"", "kind = \"bitrix24\"", "webhook_url = \"https://p.example/\""];
        let rest: Vec<&str> = rest.into_iter().filter(|line| !line.starts_with(key)).collect();
        let source = "[[source]]\nname = \"site\"\nkind = \"form\"\n";
        // Where the name itself is wrong no source can name it.
        let destination = if key == "name" { "destination = \"\"" } else { "destination = \"crm\"" };
        let text = format!("\n[[destination]]\n{wrong}\n{}\n{source}{destination}", rest.join("\n"));
        let found: Vec<String> =
            faults(&text).into_iter().filter(|f| !(key == "name" && f.contains("source[0]"))).collect();
        assert_eq!(found, [format!("line 3: {fault}")], "{text}");
    }
}

#[test]
fn each_fault_of_a_source_has_its_line_and_key() {
    for (wrong, fault) in [
        ("name = 5", "source[0].name: must be a text in quotes, found 5"),
        (
            "kind = \"from\"",
            "source[0].kind: must be one of form, api, standard-webhooks, any (did you mean \"form\"?), \
          found \"from\"",
        ),
        ("kind = \"api\"", "source[0].token: is missing"),
        (
            "destination = \"crn\"",
            "source[0].destination: there is no destination named \"crn\"; did you mean \"crm\"?",
        ),
        ("destination = \"elsewhere\"", "source[0].destination: there is no destination named \"elsewhere\""),
        ("token = 123456", "source[0].token: must be a text in quotes, found a number"),
        ("token = \"\"", "source[0].token: must not be empty, found \"\""),
        ("secret = \"\"", "source[0].secret: must not be empty, found \"\""),
        ("secrets = \"one\"", "source[0].secrets: must be a list such as [\"…\"], found another text"),
        ("secrets = [\"one\", \"\"]", "source[0].secrets[1]: must not be empty, found \"\""),
        ("secrets = [\"env:NONE\"]", "source[0].secrets[0]: the environment variable NONE is not set"),
        (
            "allow_origins = \"https://e.com\"",
            "source[0].allow_origins: must be a list such as [\"…\"], found \
          \"https://e.com\"",
        ),
        (
            "allow_origins = [\"*\"]",
            "source[0].allow_origins[0]: must be an origin as browsers send it, scheme and \
          host without a path, such as \"https://example.com\", found \"*\"",
        ),
        (
            "allow_origins = [\"https://E.com/\"]",
            "source[0].allow_origins[0]: must be an origin as browsers send it, \
          scheme and host without a path, such as \"https://example.com\" (here \"https://e.com\"), found \
          \"https://E.com/\"",
        ),
        (
            "thank_you_url = \"/thanks\"",
            "source[0].thank_you_url: must be an address that begins with https:// (or \
          http://), found \"/thanks\"",
        ),
        ("key = \"\"", "source[0].key: must not be empty, found \"\""),
        ("volatile = [1]", "source[0].volatile[0]: must be a text in quotes, found 1"),
        (
            "default_region = \"ru\"",
            "source[0].default_region: must be the two capital letters of a country, such as \
          \"RU\", found \"ru\"",
        ),
        (
            "missing_key = \"ask\"",
            "source[0].missing_key: must be one of reject, resubmit_window, generate, found \"ask\"",
        ),
        ("resubmit_window = \"8d\"", "source[0].resubmit_window: must be at most 7d, found \"8d\""),
        ("likely_copy = \"drop\"", "source[0].likely_copy: must be one of create, hold, found \"drop\""),
        ("expired_secrets = [\"\"]", "source[0].expired_secrets[0]: must not be empty, found \"\""),
        ("signed = \"body\"", "source[0].signed: must be one of received, decoded, found \"body\""),
        (
            "tolerance = \"-1s\"",
            "source[0].tolerance: must be a duration: a whole number and one of the units ms, s, m, \
          h, d, such as \"15s\", found \"-1s\"",
        ),
        ("max_wait = \"2m\"", "source[0].max_wait: must be at most 1m, found \"2m\""),
        ("rate_per_second = -2", "source[0].rate_per_second: must be a number greater than 0, found -2"),
        (
            "max_body = \"1GiB\"",
            "source[0].max_body: must be a size: a whole number and one of the units KiB, MiB, B, \
          such as \"1MiB\", found \"1GiB\"",
        ),
        ("alow_origins = []", "source[0].alow_origins: unknown key; did you mean \"allow_origins\"?"),
    ] {
        let key = wrong.split(' ').next().unwrap_or_default();
        let rest = ["name = \"site\"", "kind = \"any\"", "destination = \"crm\""];
        let rest: Vec<&str> = rest.into_iter().filter(|line| !line.starts_with(key)).collect();
        let destination = "[[destination]]\nname = \"crm\"\nkind = \"http\"\ncreate.path = \"/\"";
        let text = format!("[[source]]\n{wrong}\n{}\n{destination}", rest.join("\n"));
        // What is missing is told at the head of the table.
        let line = if fault.ends_with("is missing") { 1 } else { 2 };
        assert_eq!(faults(&text), [format!("line {line}: {fault}")], "{text}");
    }
}

#[test]
fn destinations_of_one_group_name_one_rate() {
    let two = |first: &str, second: &str| {
        let destination = |name: &str, more: &str| {
            format!("[[destination]]\nname = \"{name}\"\nkind = \"bitrix24\"\nwebhook_url = \"x\"\n{more}\n")
        };
        let source = "[[source]]\nname = \"site\"\nkind = \"form\"\ndestination = \"deals\"\n";
        format!("{}{}{source}", destination("leads", first), destination("deals", second))
    };
    let group = "rate_group = \"portal\"\n";
    let groups = |text: &str| read(text).destinations.iter().map(|one| one.rate_group.clone()).collect::<Vec<_>>();
    assert_eq!(groups(&two("", "")), ["leads", "deals"]);
    assert_eq!(groups(&two(group, group)), ["portal", "portal"]);
    assert_eq!(groups(&two("", "rate_group = \"leads\"")), ["leads", "leads"], "the group of another's own");
    let rate = "rate = { per_second = 7, burst = 7 }";
    assert_eq!(groups(&two(&format!("{group}{rate}"), &format!("{group}{rate}"))), ["portal", "portal"]);
    assert_eq!(
        faults(&two(group, &format!("{group}{rate}"))),
        ["line 12: destination[1].rate: must be that of \"leads\" in the same rate_group \"portal\" \
          ({ per_second = 2, burst = 40 }), is { per_second = 7, burst = 7 }"]
    );
    assert_eq!(
        faults(&two("rate_group = \"\"", "")),
        ["line 5: destination[0].rate_group: must not be empty, found \"\""]
    );
}

#[test]
fn a_key_is_refused_where_the_kind_does_not_take_it() {
    let source = "[[source]]\nname = \"api\"\nkind = \"api\"\ndestination = \"crm\"\ntoken = \"x\"";
    assert_eq!(
        faults(&format!("{RIGHT}\n{source}\nhoneypot = \"fax\"\ntolerance = \"1m\"\nresubmit_window = \"1m\"")),
        ["line 17: source[1].honeypot: is not for kind api", "line 18: source[1].tolerance: is not for kind api"],
        "a key with a default too, which the kind cannot see in its settings"
    );
}

#[test]
fn a_kinds_own_look_up_stands_beside_its_policy() {
    let text = RIGHT.replace("bitrix24", "http").replace("webhook_url", "create.path");
    let look_up = "lookup = { url = \"https://crm.example/leads\", settle = \"5m\", trusted = true }";
    let config = read(&text.replace("[[source]]", &format!("{look_up}\n[[source]]")));
    let destination = &config.destinations[0];
    assert_eq!(
        (destination.delivery.lookup.settle, destination.delivery.lookup.trusted),
        (Duration::from_secs(300), true)
    );
    assert_eq!(destination.connector["lookup"].to_string(), "{\"url\":\"https://crm.example/leads\"}");
    let policy = read(&text.replace("[[source]]", "lookup.settle = \"5m\"\n[[source]]"));
    assert!(!policy.destinations[0].connector.contains_key("lookup"), "the policy alone is no look-up");
    assert!(config::effective(&config).contains("url = \"https://crm.example/leads\""));
}

#[test]
fn what_is_missing_is_told_at_the_table_it_is_missing_from() {
    assert_eq!(
        faults("\n[[destination]]\n\n[[source]]\nname = \"site\"\n[[destination]]\nname = \"a\"\nkind = \"bitrix24\""),
        [
            "line 2: destination[0].name: is missing",
            "line 2: destination[0].kind: is missing",
            "line 4: source[0].kind: is missing",
            "line 4: source[0].destination: is missing",
            "line 6: destination[1].webhook_url: is missing",
        ]
    );
}

#[test]
fn what_a_kind_finds_wrong_far_below_is_told_at_its_line() {
    let text = r#"
[[destination]]
name = "crm"
kind = "http"
[destination.create]
path = "/"
[[destination.create.rules]]
class = "rejected"
[[destination.create.rules]]
status = 409
[[source]]
name = "site"
kind = "form"
destination = "crm"
"#;
    assert_eq!(faults(text), ["line 9: destination[0].create.rules[1].class: is missing"]);
    let list = "rules = [\n  { class = \"rejected\" },\n  { status = 409 },\n]\n[[source]]";
    let (before, after) = text.split_once("[[destination.create").expect("rules");
    let after = after.split_once("[[source]]").expect("source").1;
    let text = format!("{before}{list}{after}");
    assert_eq!(faults(&text), ["line 9: destination[0].create.rules[1].class: is missing"]);
}

#[test]
fn every_fault_is_reported_at_once_in_the_order_of_the_file() {
    let text = r#"[server]
listen = "nowhere"
max_bdy = "1MiB"

[[destination]]
name = "crm"
kind = "bitrix24"
webhook_url = "env:PORTAL"
lease = "5s"
[destination.retry]
max_attempts = "eight"
jitter = 7

[[destination]]
name = "crm"
kind = "bitrix24"
webhook_url = "https://p.example/rest/1/x/"
burst = 3

[[source]]
name = "site"
kind = "form"
destination = "bitrix"

[[source]]
name = "site"
kind = "api"
destination = "crm"

[retention]
tombstone = "20d"

[colours]
"#;
    assert_eq!(
        faults_with(text, &[("LEADONCE__STORE__URL", "oracle://x"), ("LEADONCE__SERVER__LISTN", "127.0.0.1:1")]),
        [
            "line 2: server.listen: must be an IP address and a port, such as \"127.0.0.1:8080\" or \"[::]:8080\", \
             found \"nowhere\"",
            "line 3: server.max_bdy: unknown key; did you mean \"max_body\"?",
            "line 8: destination[0].webhook_url: the environment variable PORTAL is not set",
            "line 9: destination[0].lease: must be at least 18750ms for a timeout of 15s, found 5s",
            "line 11: destination[0].retry.max_attempts: must be a whole number of at least 1, found \"eight\"",
            "line 12: destination[0].retry.jitter: must be a number from 0 to 1, found 7",
            "line 15: destination[1].name: must be unique; destination[0] (line 5) is named \"crm\" too",
            "line 18: destination[1].burst: is not known here",
            "line 23: source[0].destination: there is no destination named \"bitrix\"",
            "line 25: source[1].token: is missing",
            "line 26: source[1].name: must be unique; source[0] (line 20) is named \"site\" too",
            "line 31: retention.tombstone: must be at least 30d (senders retry for up to 20 days), found 20d",
            "line 33: colours: unknown key",
            "environment LEADONCE__STORE__URL: store.url: must begin with sqlite:// or postgres://, found another text",
            "environment LEADONCE__SERVER__LISTN: server.listn: unknown key; did you mean \"listen\"?",
        ]
    );
}

#[test]
fn a_file_that_is_not_toml_is_told_the_line() {
    for (text, line) in [
        ("[server\nlisten = 1", 1),
        ("[server]\nlisten = \n", 2),
        ("[server]\n\nlisten = \"a\"\nlisten = \"b\"\n", 4),
        ("[store]\r\nurl = \"x\r\n", 2),
        ("[server]\n[server]\n", 2),
        ("a = 99999999999999999999", 1),
    ] {
        let found = faults(text);
        assert!(found.len() == 1 && found[0].starts_with(&format!("line {line}: this is not TOML: ")), "{found:?}");
    }
}

#[test]
fn one_bracket_too_few_is_explained() {
    assert_eq!(
        faults("[destination]\nname = \"crm\"\n[source]\nname = \"site\"\n"),
        [
            "line 1: destination: write [[destination]] in two brackets (there may be several), found [destination]",
            "line 3: source: write [[source]] in two brackets (there may be several), found [source]",
        ]
    );
}

#[test]
fn any_text_may_come_from_the_environment_or_a_file() {
    let text = r#"
[server]
workers = "env:WORKERS"
listen = "env:LISTEN"
[[destination]]
name = "env:NAME"
kind = "bitrix24"
webhook_url = "file:secrets/portal"
retry.max_attempts = "env:TRIES"
lookup.trusted = "env:TRUSTED"
rate.per_second = "env:RATE"
[[source]]
name = "site"
kind = "api"
destination = "crm"
token = "file:token"
"#;
    let env = [
        ("WORKERS", "6"),
        ("LISTEN", "[::1]:81"),
        ("NAME", "crm"),
        ("TRIES", "3"),
        ("TRUSTED", "false"),
        ("RATE", "0.5"),
    ];
    let files = [("secrets/portal", "https://p.example/rest/1/x/\r\n"), ("token", " blanks stay \n\n")];
    let config = parse(text, &env, &files).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((config.server.workers, config.server.listen.port()), (Some(6), 81));
    let destination = &config.destinations[0];
    assert_eq!((destination.name.as_str(), destination.delivery.retry.max_attempts), ("crm", 3));
    assert_eq!((destination.delivery.lookup.trusted, destination.delivery.rate_per_second), (false, 0.5));
    assert_eq!(destination.connector["webhook_url"], "https://p.example/rest/1/x/");
    assert_eq!(config.sources[0].token.as_deref(), Some(" blanks stay "));
}

#[test]
fn the_environment_overrides_single_keys_of_the_tables_that_stand_once() {
    let text = format!("[server]\nlisten = \"127.0.0.1:1\"\nmax_body = \"2MiB\"\n{RIGHT}");
    let env = [
        ("LEADONCE__SERVER__LISTEN", "0.0.0.0:80"),
        ("LEADONCE__SERVER__WORKERS", "2"),
        ("LEADONCE__STORE__URL", "env:DATABASE_URL"),
        ("DATABASE_URL", "postgres://db/x"),
        ("LEADONCE__RETENTION__PAYLOAD", "10d"),
        ("LEADONCE_TEST_PG", "not ours"),
    ];
    let config = parse(&text, &env, &[]).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((config.server.listen.to_string().as_str(), config.server.workers), ("0.0.0.0:80", Some(2)));
    assert_eq!(config.server.max_body, 2 << 20, "what is not overridden stays");
    assert_eq!(config.store.url, "postgres://db/x");
    assert_eq!(config.retention.payload, Duration::from_secs(10 * 86_400));

    for name in ["LEADONCE__DESTINATION__NAME", "LEADONCE__SERVER", "LEADONCE__SERVER__A__B", "LEADONCE__"] {
        let found = faults_with(RIGHT, &[(name, "x")]);
        assert!(found.len() == 1 && found[0].starts_with(&format!("environment {name}: sets nothing")), "{found:?}");
    }
    assert_eq!(
        faults_with(RIGHT, &[("LEADONCE__SERVER__WORKERS", "many")]),
        ["environment LEADONCE__SERVER__WORKERS: server.workers: must be a whole number from 1 to 256, found \"many\""]
    );
}

#[test]
fn no_secret_appears_in_a_fault() {
    let text = r#"
[store]
url = "postgre://gate:hunter2@db/x"
[alerts]
webhook_url = "hunter2"
webhook_secret = "hunter2"
[[destination]]
name = "crm"
kind = "env:SECRET"
webhook_url = "hunter2"
timeout = "env:SECRET"
[[source]]
name = "env:SECRET"
kind = "api"
destination = "crm"
token = ["hunter2"]
secrets = "hunter2"
max_wait = "file:secret"
"#;
    let faults = parse(text, &[("SECRET", "hunter2 ")], &[("secret", "hunter2")]).expect_err("faults");
    assert_eq!(faults.len(), 9, "{faults}");
    assert!(!faults.to_string().contains("hunter2"), "{faults}");
    assert!(faults.to_string().contains("found the value of env:SECRET"), "{faults}");
}

#[test]
fn the_effective_configuration_shows_every_value_and_no_secret() {
    let shown = config::effective(&full());
    for secret in ["p4ssw0rd", "s3cret", "shop-t0ken", "w4rehouse", "whsec_", "XXXX"] {
        assert!(!shown.contains(secret), "{secret} in\n{shown}");
    }
    for line in [
        "listen = \"0.0.0.0:9000\"",
        "max_body = \"2MiB\"",
        "url = \"env:DATABASE_URL\"",
        "webhook_url = \"env:BITRIX24_WEBHOOK_URL\"",
        "rate = { per_second = 4.5, burst = 200 }",
        "rate_group = \"portal\"",
        "max_interval = \"10m\"",
        "settle = \"3m\"",
        "token = \"env:SHOP_TOKEN\"",
        "webhook_url = \"https://hooks.example.com/***\"",
        "tombstone = \"730d\"",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} not in\n{shown}");
    }
    let literal = config::effective(&read(&format!(
        "store.url = \"postgres://gate:p4ss@db/x?sslpassword=s3cret\"\n{}token = \"t0ken\"\n",
        RIGHT.replace("\"form\"", "\"any\"").replace(
            "webhook_url",
            "entity = { api_key = 1234, title = \"Hi\", more = [{ auth = \"s3cret\" }] }\nwebhook_url"
        )
    )));
    for secret in ["p4ss", "s3cret", "1234", "t0ken", "rest/1"] {
        assert!(!literal.contains(secret), "{secret} in\n{literal}");
    }
    assert!(literal.contains("webhook_url = \"https://portal.example/***\""), "{literal}");
    assert!(literal.contains("title = \"Hi\""), "{literal}");
}

#[test]
fn the_effective_configuration_is_a_configuration_with_the_same_effect() {
    let config = full();
    let files = [("/run/secrets/warehouse", "w4rehouse")];
    // Masked secrets are no secrets; those that the file spelled out are put back.
    let shown = config::effective(&config)
        .replace("https://hooks.example.com/***", "https://hooks.example.com/T0/B0/XXXX")
        .replace("secrets = [\"***\", \"***\"]", "secrets = [\"env:HOOK_OLD\", \"whsec_bmV3\"]")
        .replace("expired_secrets = [\"***\"]", "expired_secrets = [\"whsec_b2xk\"]");
    let again = parse(&shown, &ENVIRONMENT, &files).unwrap_or_else(|faults| panic!("{faults}\nin\n{shown}"));
    assert!(again.server == config.server && again.store == config.store && again.retention == config.retention);
    assert!(again.destinations == config.destinations && again.alerts == config.alerts);
    assert_eq!(config::effective(&again).lines().count(), shown.lines().count());
}

#[test]
fn later_checks_find_the_line_of_a_key() {
    let config = read(RIGHT);
    assert_eq!(config.locate("destination[0].webhook_url"), Some(5));
    assert_eq!(config.locate("destination[0].retry.jitter"), Some(2), "not in the file: the table around it");
    assert_eq!(config.locate("source[0]"), Some(7));
    assert_eq!(config.locate("server.listen"), None);
    let fault = config.fault("destination[0].webhook_url", "the CRM says that the webhook is revoked");
    assert_eq!(fault.to_string(), "line 5: destination[0].webhook_url: the CRM says that the webhook is revoked");
}

#[test]
fn a_real_file_is_loaded_with_the_secrets_beside_it() {
    let kinds = Kinds {
        crms: &["bitrix24"],
        crm_defaults: &advice,
        check_destination: &check_destination,
        sources: &["form"],
        source_keys: &source_keys,
        check_source: &check_source,
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("leadonce.toml");
    let load = || config::load(&path, &kinds);
    assert!(load().expect_err("no file").to_string().contains("cannot be read"));

    std::fs::write(folder.path().join("portal"), "https://p.example/rest/1/x/\n").expect("written");
    std::fs::write(&path, RIGHT.replace("https://portal.example/rest/1/secret/", "file:portal")).expect("written");
    let config = load().unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(config.destinations[0].connector["webhook_url"], "https://p.example/rest/1/x/");

    std::fs::write(folder.path().join("portal"), "x".repeat(65 * 1024)).expect("written");
    assert_eq!(
        load().expect_err("too large").to_string(),
        "line 5: destination[0].webhook_url: the file portal cannot be read: it is larger than 64KiB"
    );
    std::fs::write(&path, b"# fine\n# caf\xe9\n").expect("written");
    assert_eq!(load().expect_err("latin-1").to_string(), "line 2: this is not UTF-8 text");
}

#[test]
fn the_configurations_of_the_documents_are_lawful() {
    let source = "\n[[source]]\nname = \"site\"\nkind = \"form\"\ndestination = \"crm\"\n";
    for (document, more) in [(include_str!("../README.md"), ""), (include_str!("../docs/CONFIGURATION.md"), source)] {
        let (_, example) = document.split_once("```toml\n").expect("an example");
        let (example, _) = example.split_once("```").expect("its end");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("leadonce.toml");
        std::fs::write(&path, format!("{example}{more}")).expect("written");
        let checked = std::process::Command::new(env!("CARGO_BIN_EXE_leadonce"))
            .args(["check", "--config"])
            .arg(&path)
            .env("BITRIX24_WEBHOOK_URL", "https://portal.example/rest/1/s3cret-webhook/")
            .env("CRM_AUTHORIZATION", "Bearer s3cret-token")
            .output()
            .expect("the program runs");
        let shown = String::from_utf8_lossy(&checked.stdout).into_owned();
        let faults = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{faults}\nin\n{example}");
        assert!(shown.contains("kind = \"form\"") && !shown.contains("s3cret"), "{shown}");
    }
}
