//! Which pages may send to a source across origins.

use url::Url;

use super::Settings;

/// Whether a page of this origin (the `Origin` header's text) may send to the source: `allow_origins` holds exactly it.
pub fn allows_origin(settings: &Settings, origin: &str) -> bool {
    settings.allow_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
}

/// What is wrong with an entry of `allow_origins`; `None` where nothing is.
pub(super) fn fault(origin: &str) -> Option<String> {
    let should = |what: &str| Some(format!("allow_origins: {origin:?} {what}, as in \"https://example.com\""));
    let Ok(url) = Url::parse(origin) else { return should("should be a scheme, a host and perhaps a port") };
    if !matches!(url.scheme(), "http" | "https") {
        return should("should begin with https:// or http://");
    }
    // Browsers send the origin in exactly this spelling: lower case, no default port, no path.
    if url.origin().ascii_serialization() != origin.to_ascii_lowercase() {
        return should("should be written as browsers send it: scheme, host and only an unusual port");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::tests::settings;

    #[test]
    fn an_origin_is_allowed_only_in_full() {
        let mut settings = settings("form");
        settings.allow_origins = vec!["https://shop.example.com".into(), "http://localhost:3000".into()];
        assert!(allows_origin(&settings, "https://shop.example.com"));
        assert!(allows_origin(&settings, "http://localhost:3000"));
        for foreign in [
            "http://shop.example.com",
            "https://shop.example.com:8443",
            "https://shop.example.com.evil.org",
            "https://evil.org",
            "http://localhost",
            "null",
            "",
            "*",
        ] {
            assert!(!allows_origin(&settings, foreign), "{foreign}");
        }
        settings.allow_origins.clear();
        assert!(!allows_origin(&settings, "https://shop.example.com"));
    }

    #[test]
    fn entries_that_no_browser_sends_are_faults() {
        for good in ["https://example.com", "http://127.0.0.1:8080", "https://xn--e1afmkfd.xn--p1ai"] {
            assert_eq!(fault(good), None, "{good}");
        }
        for bad in [
            "*",
            "example.com",
            "https://example.com/",
            "https://example.com/page",
            "https://example.com:443",
            "null",
            "ftp://a",
        ] {
            assert!(fault(bad).is_some(), "{bad}");
        }
    }
}
