//! The tables that stand once: `[server]`, `[store]`, `[retention]`, `[alerts]`, `[admin]`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::reader::Section;
use super::units::show_duration;
use super::{Admin, Alerts, Retention, Server, value};
use crate::store;

/// Default of `server.max_body` (contract 6.1).
pub(super) const MAX_BODY: usize = 1 << 20;
const DAY: Duration = Duration::from_secs(86_400);
/// Senders retry for up to 20 days; a tombstone that stood shorter would let such a retry create again (contract 8).
const SHORTEST_TOMBSTONE: Duration = Duration::from_secs(30 * 86_400);

pub(super) fn server(section: &Section<'_>) -> Option<Server> {
    let listen = section.take("listen", value::listen);
    let public_url = section.take("public_url", value::public_url);
    let max_body = section.take("max_body", max_body);
    let workers = section.take("workers", value::whole(1..=256));
    Some(Server {
        listen: listen.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080)),
        public_url,
        max_body: max_body.unwrap_or(MAX_BODY),
        workers: workers.and_then(|workers| usize::try_from(workers).ok()),
    })
}

/// A body of at most 64 MiB: each request may hold so much memory at once.
pub(super) fn max_body(node: &super::tree::Node) -> Result<usize, String> {
    value::size(1024..=64 << 20)(node)
}

pub(super) fn store(section: &Section<'_>) -> Option<store::Settings> {
    let url = section.take_secret("url", value::store_url);
    let queue = section.take("queue", value::whole(1..=1_000_000)).unwrap_or(4_096);
    let batch = section.take("batch", value::whole(1..=10_000)).unwrap_or(256);
    let readers = section.take("readers", value::whole(1..=64)).unwrap_or(4);
    if batch > queue {
        section.fault("batch", &format!("must not be larger than queue ({queue}), found {batch}"));
    }
    Some(store::Settings {
        url: url.unwrap_or_else(|| "sqlite://leadonce.db".to_owned()),
        queue: usize::try_from(queue).ok()?,
        batch: usize::try_from(batch).ok()?,
        readers,
    })
}

pub(super) fn retention(section: &Section<'_>) -> Option<Retention> {
    let payload = section.take("payload", value::duration).unwrap_or(90 * DAY);
    let tombstone = section.take("tombstone", value::duration).unwrap_or(400 * DAY);
    if tombstone < SHORTEST_TOMBSTONE {
        let found = show_duration(tombstone);
        section.fault("tombstone", &format!("must be at least 30d (senders retry for up to 20 days), found {found}"));
    } else if tombstone < payload {
        let (found, least) = (show_duration(tombstone), show_duration(payload));
        section.fault("tombstone", &format!("must be at least as long as payload ({least}), found {found}"));
    }
    let redelivery = section.take("redelivery", value::duration).unwrap_or(30 * DAY);
    Some(Retention { payload, tombstone, redelivery })
}

pub(super) fn alerts(section: &Section<'_>) -> Alerts {
    let webhook_url = section.take_secret("webhook_url", value::web_address);
    let webhook_secret = section.take_secret("webhook_secret", value::webhook_secret);
    match (section.has("webhook_url"), section.has("webhook_secret")) {
        (true, false) => section.fault("webhook_secret", "is missing: alerts to webhook_url are signed with it"),
        (false, true) => section.fault("webhook_url", "is missing: webhook_secret signs what is sent there"),
        (true, true) | (false, false) => {}
    }
    Alerts { webhook_url, webhook_secret }
}

pub(super) fn admin(section: &Section<'_>, server: Option<&Server>) -> Admin {
    const HOUR: Duration = Duration::from_secs(3_600);
    let listen = section.take("listen", value::listen);
    let url = section.take("url", value::public_url);
    let idle = section.take("session_idle", value::duration).unwrap_or(HOUR);
    let longest = section.take("session_longest", value::duration).unwrap_or(12 * HOUR);
    if listen.is_some_and(|listen| listen.port() != 0 && server.is_some_and(|server| server.listen == listen)) {
        section
            .fault("listen", "is the address of [server]; leave it out to serve the console there, or choose another");
    }
    if longest < idle {
        let (found, most) = (show_duration(idle), show_duration(longest));
        section.fault("session_idle", &format!("must not be longer than session_longest ({most}), found {found}"));
    }
    Admin { listen, url, session: store::SessionTerms { idle, longest } }
}
