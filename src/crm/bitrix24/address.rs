//! The inbound webhook's address: `https://PORTAL/rest/USER/SECRET/`. The secret is the password, so it never shows.

use url::Url;

use crate::crm::host::check_scheme;

/// A checked webhook address.
#[derive(Clone)]
pub(super) struct Address {
    base: String,
    portal: String,
    secret: String,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/rest/***/", self.portal)
    }
}

impl Address {
    /// Reads the address; the fault does not repeat it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const SHAPE: &str = "must look like https://PORTAL/rest/USER/SECRET/ (an inbound webhook of the portal)";
        let url = Url::parse(text.trim()).map_err(|_| SHAPE.to_owned())?;
        check_scheme(&url)?;
        let plain = url.username().is_empty() && url.password().is_none();
        if !plain || url.query().is_some() || url.fragment().is_some() {
            return Err(SHAPE.to_owned());
        }
        let path = url.path();
        let parts: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        let ["", "rest", user, secret] = parts.as_slice() else {
            return Err(match parts.as_slice() {
                ["", "rest", _, _, _] => format!("{SHAPE}, without a method at its end"),
                _ => SHAPE.to_owned(),
            });
        };
        if user.is_empty() || !user.bytes().all(|b| b.is_ascii_digit()) || secret.is_empty() {
            return Err(SHAPE.to_owned());
        }
        let portal = url.origin().ascii_serialization();
        Ok(Self { base: format!("{portal}/rest/{user}/{secret}/"), portal, secret: (*secret).to_owned() })
    }

    /// The address of a method.
    pub(super) fn of(&self, method: &str) -> String {
        format!("{}{method}", self.base)
    }

    /// The address of a method, as logs may show it.
    pub(super) fn masked(&self, method: &str) -> String {
        format!("{}/rest/***/{method}", self.portal)
    }

    /// Scheme and host, without a slash at the end.
    pub(super) fn portal(&self) -> &str {
        &self.portal
    }

    /// The text without the secret. One that is too short to be a portal's (a sandbox's) is looked for in addresses only.
    pub(super) fn scrub(&self, text: &str) -> String {
        let text = text.replace(&format!("/{}/", self.secret), "/***/");
        if self.secret.len() < 6 { text } else { text.replace(&self.secret, "***") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhooks_address_is_taken_with_and_without_its_last_slash() {
        for text in [
            "https://example.bitrix24.ru/rest/1/abc123/",
            "https://example.bitrix24.ru/rest/1/abc123",
            " https://example.bitrix24.ru:8443/rest/42/abc123/ ",
            "http://127.0.0.1:9090/rest/1/SECRET/",
            "http://localhost/rest/1/SECRET/",
            "http://[::1]:1/rest/1/SECRET/",
            "http://10.1.2.3/rest/1/SECRET/",
            "http://sandbox:9090/rest/1/SECRET/",
        ] {
            let address = Address::parse(text).expect(text);
            assert!(address.of("crm.item.add").ends_with("/crm.item.add"), "{text}");
        }
        let address = Address::parse("http://127.0.0.1:9090/rest/1/SECRET/").expect("an address");
        assert_eq!(address.of("crm.item.add"), "http://127.0.0.1:9090/rest/1/SECRET/crm.item.add");
        assert_eq!(address.masked("crm.item.add"), "http://127.0.0.1:9090/rest/***/crm.item.add");
        assert_eq!(format!("{address:?}"), "http://127.0.0.1:9090/rest/***/");
        assert_eq!(address.scrub("at /rest/1/SECRET/x, SECRET"), "at /rest/1/***/x, ***");
        let short = Address::parse("http://127.0.0.1/rest/1/s/").expect("an address");
        assert_eq!(short.scrub("is at /rest/1/s/x"), "is at /rest/1/***/x");
    }

    #[test]
    fn other_addresses_are_refused_without_repeating_them() {
        for text in [
            "SECRET",
            "https://example.bitrix24.ru/",
            "https://example.bitrix24.ru/rest/",
            "https://example.bitrix24.ru/rest/SECRET/",
            "https://example.bitrix24.ru/rest/me/SECRET/",
            "https://example.bitrix24.ru/rest/1/SECRET/profile.json",
            "https://example.bitrix24.ru/rest/1//",
            "https://example.bitrix24.ru/rest/1/SECRET/?a=b",
            "https://u:SECRET@example.bitrix24.ru/rest/1/SECRET/",
            "http://example.bitrix24.ru/rest/1/SECRET/",
            "http://8.8.8.8/rest/1/SECRET/",
            "ftp://localhost/rest/1/SECRET/",
        ] {
            let fault = Address::parse(text).expect_err(text);
            assert!(!fault.contains("/SECRET/p") && !fault.contains("example.bitrix24"), "{text}: {fault}");
        }
    }
}
