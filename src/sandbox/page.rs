//! The page for people: what the CRM holds, what called it, and what will go wrong. Every value on it is escaped.

use std::fmt::Write;

use serde_json::Value;

use super::wire::Reply;
use super::world::{CallKind, World};

/// So many rows of each table are shown, the latest first.
const ROWS: usize = 50;

const STYLE: &str = "body{font:15px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1c2733}\
h1{font-size:1.3rem}h2{font-size:1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}\
td,th{border-bottom:1px solid #d8dee4;padding:.35rem .6rem .35rem 0;text-align:left;vertical-align:top}\
td{overflow-wrap:anywhere}th{font-weight:600;color:#57606a}code{font-size:.85em}.none{color:#57606a}";

pub(super) fn render(world: &World) -> Reply {
    let (entities, calls, faults) = (world.entities(), world.calls(), world.faults());
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Sandbox CRM</title><style>{STYLE}</style></head>\
         <body><h1>Sandbox CRM</h1><p>A CRM to rehearse with: nothing here is real, and nothing is kept after it stops.</p>"
    );

    table(&mut html, &format!("Entities ({})", entities.len()), &["id", "type", "key", "created", "fields"], |html| {
        for entity in entities.iter().rev().take(ROWS) {
            let fields: Vec<String> =
                entity.fields.iter().filter(|(_, v)| !v.is_null()).map(|(n, v)| format!("{n}: {}", plain(v))).collect();
            row(
                html,
                &[
                    &entity.id.to_string(),
                    entity.entity_type,
                    entity.key.as_deref().unwrap_or("none"),
                    &entity.created_at.rfc3339(),
                    &fields.join(" · "),
                ],
            );
        }
        !entities.is_empty()
    });

    let total: u64 = world.counts().values().sum();
    table(&mut html, &format!("Calls ({total})"), &["no.", "time", "call", "key", "made", "status", "fault"], |html| {
        for call in calls.iter().rev().take(ROWS) {
            let kind = match call.call {
                CallKind::Create => "create",
                CallKind::Lookup => "look-up",
                CallKind::Other => "other",
            };
            row(
                html,
                &[
                    &call.number.to_string(),
                    &call.at.rfc3339(),
                    &format!("{} ({kind})", call.method),
                    call.key.as_deref().unwrap_or(""),
                    &call.created.map(|id| id.to_string()).unwrap_or_default(),
                    &call.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string()),
                    call.fault.unwrap_or(""),
                ],
            );
        }
        !calls.is_empty()
    });

    table(&mut html, &format!("Faults to come ({})", faults.len()), &["kind", "at", "times", "as JSON"], |html| {
        for fault in &faults {
            let json = fault.to_json();
            let times = if fault.times == u32::MAX { "until cleared".to_owned() } else { fault.times.to_string() };
            let calls = json.get("call").map(plain).unwrap_or_default();
            row(html, &[fault.kind.name(), &calls, &times, &json.to_string()]);
        }
        !faults.is_empty()
    });
    html.push_str(
        "<p>Order a fault: <code>curl -X POST /_sandbox/faults -d '[{\"kind\":\"commit_then_hang\"}]'</code>; \
         clear them: <code>curl -X DELETE /_sandbox/faults</code>; as JSON: <a href=\"/_sandbox/entities\">entities</a>, \
         <a href=\"/_sandbox/calls\">calls</a>, <a href=\"/_sandbox/faults\">faults</a>.</p></body></html>",
    );

    Reply::html(200, html)
        .with("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
        .with("X-Content-Type-Options", "nosniff")
        .with("Referrer-Policy", "no-referrer")
        .with("Cache-Control", "no-store")
}

/// A table under a heading; `rows` writes the rows and says whether there were any.
fn table(html: &mut String, title: &str, columns: &[&str], rows: impl FnOnce(&mut String) -> bool) {
    let _ = write!(html, "<h2>{}</h2>", escaped(title));
    let mut inner = String::new();
    if !rows(&mut inner) {
        html.push_str("<p class=\"none\">None yet.</p>");
        return;
    }
    let heads: String = columns.iter().map(|column| format!("<th>{}</th>", escaped(column))).collect();
    let _ = write!(html, "<table><thead><tr>{heads}</tr></thead><tbody>{inner}</tbody></table>");
}

fn row(html: &mut String, cells: &[&str]) {
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(&shortened(cell)))).collect();
    let _ = write!(html, "<tr>{cells}</tr>");
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(600).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Direction overrides and other invisible controls must not rearrange what is read.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(safe, "[U+{:04X}]", u32::from(c));
            }
            other => safe.push(other),
        }
    }
    safe
}
