//! Hosts that nobody reaches from outside, where HTTPS cannot be asked for.

use url::{Host, Url};

/// Whether leads may go to this address: HTTPS, or HTTP to a private host (loopback, private networks, names without a dot as
/// containers have them, and the names reserved for such use). The fault does not repeat the address.
pub fn check_scheme(url: &Url) -> Result<(), String> {
    match (url.scheme(), url.host()) {
        (_, None) => Err("has no host".to_owned()),
        ("https", Some(_)) => Ok(()),
        ("http", Some(host)) if is_private(&host) => Ok(()),
        _ => Err("must begin with https:// (http:// is taken for private hosts only)".to_owned()),
    }
}

fn is_private(host: &Host<&str>) -> bool {
    match host {
        Host::Ipv4(ip) => ip.is_loopback() || ip.is_private(),
        Host::Ipv6(ip) => ip.is_loopback() || ip.is_unique_local(),
        Host::Domain(name) => {
            let local = ["localhost", "test", "internal", "local", "lan"];
            !name.contains('.') || name.rsplit('.').next().is_some_and(|end| local.contains(&end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leads_go_over_plain_http_to_private_hosts_only() {
        for (url, good) in [
            ("https://example.com/", true),
            ("http://127.0.0.1:1/", true),
            ("http://10.0.0.1/", true),
            ("http://[fd00::1]/", true),
            ("http://localhost/", true),
            ("http://crm/", true),
            ("http://crm.internal/", true),
            ("http://example.com/", false),
            ("http://8.8.8.8/", false),
            ("ftp://localhost/", false),
            ("mailto:a@b", false),
        ] {
            assert_eq!(check_scheme(&Url::parse(url).expect("a URL")).is_ok(), good, "{url}");
        }
    }
}
