//! The lead, read from pairs: known names find their place, everything else stays in `fields` in its order.
//!
//! It runs when a lead is needed, not when it arrives, and never fails: what cannot be read as a phone stays a text. NUL
//! characters are removed from every text, as PostgreSQL and most CRMs refuse them.

use phonenumber::country::Id as Region;
use url::Url;

use super::names::{CLICK_IDS, Known, Utm, known};
use super::pairs::{Pair, Value};
use super::phone;
use super::{Request, Settings};
use crate::operation::Lead;
use crate::operation::lead::File;

/// The region that phone numbers without a country code belong to.
pub(super) fn region(settings: &Settings) -> Option<Region> {
    settings.default_region.as_deref().and_then(|code| code.to_ascii_uppercase().parse().ok())
}

/// The lead that these pairs hold.
pub(super) fn lead(pairs: &[Pair<'_>], region: Option<Region>) -> Lead {
    let mut lead = Lead::default();
    for pair in pairs {
        let name = without_nul(&pair.name);
        match &pair.value {
            Value::Text(text) => place(&mut lead, name, without_nul(text), region),
            Value::File { name: file, content } => {
                let size = u64::try_from(content.len()).unwrap_or(u64::MAX);
                lead.files.push(File { field: name, name: without_nul(file), size });
            }
        }
    }
    compose_name(&mut lead);
    if let Some(page) = lead.page.clone() {
        tags_of_page(&mut lead, &page);
    }
    lead
}

/// The page with the form, where the form does not name it: the browser does.
pub(super) fn page_from_headers(lead: &mut Lead, request: &Request) {
    if lead.page.is_none() {
        lead.page =
            request.header("referer").or_else(|| request.header("origin")).filter(|p| is_address(p)).map(without_nul);
    }
    if let Some(page) = lead.page.clone() {
        tags_of_page(lead, &page);
    }
}

/// The text less its NUL characters.
pub(super) fn without_nul(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "") } else { text.to_owned() }
}

/// The place of a UTM tag.
pub(super) fn utm(lead: &mut Lead, tag: Utm) -> &mut Option<String> {
    match tag {
        Utm::Source => &mut lead.utm.source,
        Utm::Medium => &mut lead.utm.medium,
        Utm::Campaign => &mut lead.utm.campaign,
        Utm::Content => &mut lead.utm.content,
        Utm::Term => &mut lead.utm.term,
    }
}

fn place(lead: &mut Lead, name: String, text: String, region: Option<Region>) {
    let field = known(&name);
    if field.is_some() && text.trim().is_empty() {
        // An empty input of a known kind says nothing.
        return;
    }
    let slot = match field {
        Some(Known::Phone) => return lead.phones.push(phone::phone(&text, region)),
        Some(Known::Email) => return lead.emails.push(phone::email(&text)),
        Some(Known::ClickId(id)) if lead.click_ids.iter().all(|(known, _)| known != id) => {
            return lead.click_ids.push((id.to_owned(), text));
        }
        Some(Known::Name) => Some(&mut lead.name),
        Some(Known::FirstName) => Some(&mut lead.first_name),
        Some(Known::LastName) => Some(&mut lead.last_name),
        Some(Known::Message) => Some(&mut lead.message),
        Some(Known::Utm(tag)) => Some(utm(lead, tag)),
        // `url` may be the visitor's own site; only an address is taken for the page.
        Some(Known::Page) if is_address(&text) => Some(&mut lead.page),
        Some(Known::Referrer) if is_address(&text) => Some(&mut lead.referrer),
        Some(Known::Page | Known::Referrer | Known::ClickId(_)) | None => None,
    };
    match slot {
        Some(slot) if slot.is_none() => *slot = Some(text),
        // A second one of a kind is a field like any other.
        _ => lead.fields.push((name, text)),
    }
}

fn is_address(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("https://") || text.starts_with("http://") || text.starts_with('/')
}

/// The whole name from its parts; and where a form calls the given name simply `name`, its parts from the whole.
fn compose_name(lead: &mut Lead) {
    match (&lead.name, &lead.first_name, &lead.last_name) {
        (None, None, None) | (Some(_), _, None) | (Some(_), Some(_), Some(_)) => {}
        (None, first, last) => {
            let parts: Vec<&str> = [first, last].into_iter().flatten().map(String::as_str).collect();
            lead.name = Some(parts.join(" "));
        }
        (Some(name), None, Some(last)) if name.contains(last.trim()) => {}
        (Some(name), None, Some(last)) => {
            let whole = format!("{name} {last}");
            lead.first_name = Some(name.clone());
            lead.name = Some(whole);
        }
    }
}

/// UTM tags and click ids that stand in the address of the page, where the form brought none.
fn tags_of_page(lead: &mut Lead, page: &str) {
    let Ok(page) = Url::parse(page) else { return };
    let take_utm = lead.utm.is_empty();
    for (name, value) in page.query_pairs().filter(|(_, value)| !value.trim().is_empty()) {
        match known(&name) {
            Some(Known::Utm(tag)) if take_utm => {
                utm(lead, tag).get_or_insert_with(|| without_nul(&value));
            }
            Some(Known::ClickId(id))
                if CLICK_IDS.contains(&name.as_ref()) && lead.click_ids.iter().all(|(known, _)| known != id) =>
            {
                lead.click_ids.push((id.to_owned(), without_nul(&value)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lead_of(pairs: &[(&str, &str)]) -> Lead {
        let pairs: Vec<Pair<'_>> = pairs.iter().map(|(name, text)| Pair::text(*name, *text)).collect();
        lead(&pairs, Some(Region::RU))
    }

    #[test]
    fn known_names_find_their_place_and_all_others_stay_in_order() {
        let lead = lead_of(&[
            ("Name", "Анна"),
            ("Service", "x"),
            ("Телефон", "8 916 123 45 67"),
            ("Service", "y"),
            ("E-Mail", "Anna@Example.com"),
            ("comment", "Хочу & жду"),
            ("opt[]", "1"),
            ("utm_source", "vk"),
            ("yclid", "77"),
            ("empty", ""),
        ]);
        assert_eq!(lead.name.as_deref(), Some("Анна"));
        assert_eq!(lead.phones.first().and_then(|p| p.normal.as_deref()), Some("+79161234567"));
        assert_eq!(lead.phones.first().map(|p| p.text.as_str()), Some("8 916 123 45 67"));
        assert_eq!(lead.emails.first().and_then(|p| p.normal.as_deref()), Some("anna@example.com"));
        assert_eq!(lead.message.as_deref(), Some("Хочу & жду"));
        assert_eq!(lead.utm.source.as_deref(), Some("vk"));
        assert_eq!(lead.click_ids, [("yclid".to_owned(), "77".to_owned())]);
        let fields = [("Service", "x"), ("Service", "y"), ("opt[]", "1"), ("empty", "")];
        assert_eq!(lead.fields, fields.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn a_name_is_composed_from_its_parts() {
        let name = |pairs: &[(&str, &str)]| {
            let lead = lead_of(pairs);
            (lead.name.unwrap_or_default(), lead.first_name.unwrap_or_default(), lead.last_name.unwrap_or_default())
        };
        let texts = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(name(&[("first_name", "A"), ("last_name", "B")]), texts("A B", "A", "B"));
        assert_eq!(name(&[("имя", "Анна"), ("фамилия", "Ли")]), texts("Анна Ли", "Анна", "Ли"));
        assert_eq!(name(&[("name", "Anna Li"), ("surname", "Li")]), texts("Anna Li", "", "Li"));
        assert_eq!(name(&[("last_name", "B")]), texts("B", "", "B"));
        assert_eq!(name(&[("first_name", "  "), ("name", "A")]), texts("A", "", ""));
    }

    #[test]
    fn a_second_value_of_a_kind_is_kept_as_a_field() {
        let lead = lead_of(&[
            ("name", "A"),
            ("name", "B"),
            ("phone", "1"),
            ("phone", "8 916 123 45 67"),
            ("message", "m"),
            ("comment", "c"),
        ]);
        assert_eq!(lead.name.as_deref(), Some("A"));
        assert_eq!(lead.phones.len(), 2);
        assert_eq!(lead.message.as_deref(), Some("m"));
        let fields = [("name", "B"), ("comment", "c")];
        assert_eq!(lead.fields, fields.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }

    #[test]
    fn nul_is_removed_and_names_are_otherwise_unchanged() {
        let lead = lead_of(&[("name", "Anna 👩‍👩‍👧 \u{202e}evil\0"), ("x\0", "\0y"), ("phone", "\u{0}1")]);
        assert_eq!(lead.name.as_deref(), Some("Anna 👩‍👩‍👧 \u{202e}evil"));
        assert_eq!(lead.fields, [("x".to_owned(), "y".to_owned())]);
        assert_eq!(lead.phones.first().map(|p| p.text.as_str()), Some("1"));
    }

    #[test]
    fn an_address_that_is_none_stays_a_field() {
        let lead = lead_of(&[("url", "my shop"), ("page", "https://a.example/?utm_source=x&gclid=9"), ("referer", "")]);
        assert_eq!(lead.page.as_deref(), Some("https://a.example/?utm_source=x&gclid=9"));
        assert_eq!(lead.fields, [("url".to_owned(), "my shop".to_owned())]);
        assert_eq!(lead.utm.source.as_deref(), Some("x"));
        assert_eq!(lead.click_ids, [("gclid".to_owned(), "9".to_owned())]);
    }

    #[test]
    fn the_forms_own_tags_win_over_those_of_the_page() {
        let lead = lead_of(&[("utm_medium", "cpc"), ("page", "https://a.example/?utm_source=x")]);
        assert_eq!((lead.utm.source, lead.utm.medium.as_deref()), (None, Some("cpc")));
    }
}
