//! One request of the configuration: address, headers and body by templates, and what of it is secret.

use minijinja::value::Value as Any;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;
use url::Url;

use crate::crm::Call;
use crate::crm::host::check_scheme;
use crate::crm::settings::Table;
use crate::crm::template::{Json, Place, Scope, Template, sample_context};

/// Headers that hold no secret.
const PLAIN: &[&str] = &["accept", "accept-language", "content-type", "user-agent", "prefer", "x-requested-with"];
/// Headers that belong to the transport.
const TRANSPORTS: &[&str] = &["host", "content-length", "transfer-encoding", "connection", "te", "upgrade", "expect"];
/// The shortest text that is treated as a secret; shorter ones are part of ordinary words.
const SHORTEST: usize = 6;
/// From this length on a part of a path that holds a digit is taken for a token.
const TOKEN: usize = 16;

/// A request by templates.
pub(super) struct Request {
    method: &'static str,
    url: Template,
    headers: Vec<(String, Template)>,
    body: Body,
    secrets: Vec<String>,
}

#[derive(Debug)]
enum Body {
    None,
    Json(Box<Json>),
    Form(Vec<(String, Template)>),
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({}, {} headers, {:?})", self.method, self.headers.len(), self.body)
    }
}

/// What a request of the configuration may be.
pub(super) struct Shape {
    /// Allowed methods; the first is the default.
    pub(super) methods: &'static [&'static str],
    /// Names that address and headers may use.
    pub(super) scope: Scope,
    /// Names that the body may use; `None`: no body.
    pub(super) body: Option<Scope>,
}

impl Request {
    /// Reads a request's table (or, where it has no body, its address alone). `common` are the headers of all requests.
    pub(super) fn read(outer: &mut Table, key: &str, shape: &Shape, common: &[(String, String)]) -> Option<Self> {
        let value = match outer.value(key)? {
            Value::String(url) if shape.body.is_none() => serde_json::json!({"url": url}),
            value => value,
        };
        let mut table = outer.open(key, value)?;
        let request = Self::of(&mut table, shape, common);
        outer.close(table);
        request
    }

    /// Reads the request's keys out of a table that may hold others too.
    pub(super) fn of(table: &mut Table, shape: &Shape, common: &[(String, String)]) -> Option<Self> {
        let method = table.text("method").map_or(shape.methods.first().copied(), |text| {
            let known = shape.methods.iter().find(|method| text.eq_ignore_ascii_case(method)).copied();
            if known.is_none() {
                table.fault("method", format!("must be one of {}", shape.methods.join(", ")));
            }
            known
        });
        let url = table.required_text("url");
        let mut secrets = Vec::new();
        let url = url.and_then(|text| {
            secrets.extend(secrets_of_address(&text));
            let checked = checked_address(&text, shape.scope);
            table.checked("url", checked)
        });
        let headers = read_headers(table, shape.scope, common, &mut secrets);
        let body = read_body(table, shape.body);
        Some(Self { method: method?, url: url?, headers: headers?, body: body?, secrets })
    }

    /// The call. An error means that these values do not fit the templates.
    pub(super) fn call(&self, keys: &Any, values: &Any) -> Result<Call, String> {
        let url = self.url.render(keys)?;
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        for (name, value) in &self.headers {
            headers.push((name.clone(), value.render(keys)?));
        }
        let (kind, body) = match &self.body {
            Body::None => ("", Vec::new()),
            Body::Json(json) => {
                let value = json.render(values)?.unwrap_or_default();
                ("application/json", value.to_string().into_bytes())
            }
            Body::Form(fields) => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                for (name, value) in fields {
                    form.append_pair(name, &value.render(values)?);
                }
                ("application/x-www-form-urlencoded", form.finish().into_bytes())
            }
        };
        if !kind.is_empty() && !headers.iter().any(|(name, _)| name == "content-type") {
            headers.push(("content-type".into(), kind.into()));
        }
        let masked_url = self.scrub(&masked(&url));
        Ok(Call { method: self.method, url, masked_url, headers, body })
    }

    /// The text without this request's secrets.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

/// A template for an address, tried with sample values.
pub(super) fn checked_address(text: &str, scope: Scope) -> Result<Template, String> {
    let template = Template::new(text.trim(), Place::Address, scope)?;
    let sample = template.render(&sample_context(scope))?;
    let url = Url::parse(&sample).map_err(|error| format!("is no address: {error}"))?;
    check_scheme(&url)?;
    Ok(template)
}

/// The headers of all requests.
pub(super) fn common_headers(table: &mut Table) -> Vec<(String, String)> {
    let Some(value) = table.value("headers") else { return Vec::new() };
    let mut headers = header_texts(table, value);
    headers.retain(|(name, text)| {
        let checked = checked_header(&name.to_lowercase(), text, Scope::Keys);
        table.checked(&format!("headers.{name}"), checked).is_some()
    });
    headers
}

fn header_texts(table: &mut Table, value: Value) -> Vec<(String, String)> {
    let Value::Object(entries) = value else {
        table.fault("headers", "must be a table");
        return Vec::new();
    };
    let mut headers = Vec::new();
    for (name, value) in entries {
        match value {
            Value::String(text) => headers.push((name, text)),
            _ => table.fault(&format!("headers.{name}"), "must be a text"),
        }
    }
    headers
}

fn read_headers(
    table: &mut Table,
    scope: Scope,
    common: &[(String, String)],
    secrets: &mut Vec<String>,
) -> Option<Vec<(String, Template)>> {
    let own = table.value("headers").map(|value| header_texts(table, value)).unwrap_or_default();
    let overridden = |name: &str| own.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
    // A common header that speaks of the operation is left out of a request that knows none.
    let fits = |name: &str, text: &str| checked_header(name, text, scope).is_ok();
    let common = common.iter().filter(|(name, text)| !overridden(name) && fits(&name.to_lowercase(), text));
    let all: Vec<_> = common.chain(&own).cloned().collect();
    let mut headers = Vec::new();
    let mut good = true;
    for (name, text) in all {
        let lower = name.to_lowercase();
        if !PLAIN.contains(&lower.as_str()) && !text.contains("{{") {
            secrets.extend(text.split_whitespace().filter(|word| is_secret(word)).map(str::to_owned));
        }
        match table.checked(&format!("headers.{name}"), checked_header(&lower, &text, scope)) {
            Some(template) => headers.push((lower, template)),
            None => good = false,
        }
    }
    good.then_some(headers)
}

fn checked_header(name: &str, text: &str, scope: Scope) -> Result<Template, String> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| "is no name of a header".to_owned())?;
    if TRANSPORTS.contains(&name) {
        return Err("is set by the transport".to_owned());
    }
    let template = Template::new(text, Place::Text, scope)?;
    let sample = template.render(&sample_context(scope))?;
    HeaderValue::from_str(&sample).map_err(|_| "holds a character that a header cannot".to_owned())?;
    Ok(template)
}

fn read_body(table: &mut Table, scope: Option<Scope>) -> Option<Body> {
    let Some(scope) = scope else { return Some(Body::None) };
    match (table.value("body"), table.value("form")) {
        (None, None) => Some(Body::None),
        (Some(_), Some(_)) => {
            table.fault("form", "cannot stand beside body");
            None
        }
        (Some(body), None) => {
            // JSON given as text is read first and its texts are templates then: no value can break the JSON.
            let body = match body {
                Value::String(text) => serde_json::from_str(&text).unwrap_or_default(),
                body => body,
            };
            if !body.is_object() && !body.is_array() {
                table.fault("body", "must be a table, a list, or one of them as JSON text");
                return None;
            }
            match Json::new(&body, scope) {
                Ok(json) => Some(Body::Json(Box::new(json))),
                Err(faults) => {
                    faults.into_iter().for_each(|(inside, fault)| table.fault(&format!("body{inside}"), fault));
                    None
                }
            }
        }
        (None, Some(Value::Object(entries))) => {
            let mut fields = Vec::new();
            let mut good = true;
            for (name, value) in entries {
                let key = format!("form.{name}");
                let text = value.as_str().ok_or_else(|| "must be a text".to_owned());
                let template = text.and_then(|text| Template::new(text, Place::Text, scope));
                match table.checked(&key, template) {
                    Some(template) => fields.push((name, template)),
                    None => good = false,
                }
            }
            good.then_some(Body::Form(fields))
        }
        (None, Some(_)) => {
            table.fault("form", "must be a table of texts");
            None
        }
    }
}

fn is_secret(word: &str) -> bool {
    let schemes = ["bearer", "basic", "digest", "token", "apikey", "api-key"];
    word.len() >= SHORTEST && !schemes.contains(&word.to_lowercase().as_str())
}

/// Literal parts of an address that look like secrets: password, values of the query, long parts of the path.
fn secrets_of_address(text: &str) -> Vec<String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = before_query.split_once('/').unwrap_or((before_query, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let values = query.split('&').map(|pair| pair.split_once('=').map_or("", |(_, value)| value));
    let is_token = |part: &&str| part.len() >= TOKEN && part.bytes().any(|b| b.is_ascii_digit());
    let secrets = user.split(':').chain(values).filter(|word| is_secret(word)).chain(path.split('/').filter(is_token));
    secrets.filter(|part| !part.contains("{{")).map(str::to_owned).collect()
}

/// An address as logs may show it: without user and password, and without the values of its query.
fn masked(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else { return "***".to_owned() };
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let names: Vec<String> = url.query_pairs().map(|(name, _)| format!("{name}=***")).collect();
    url.set_query(None);
    if names.is_empty() { url.to_string() } else { format!("{url}?{}", names.join("&")) }
}
