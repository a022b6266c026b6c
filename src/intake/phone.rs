//! Phones and e-mail addresses in the form that matching uses. The text as sent is never replaced by it.

use phonenumber::country::Id as Region;
use phonenumber::{Mode, PhoneNumber};

use crate::operation::lead::Contact;

/// No phone or e-mail address is longer than this, in bytes; what is longer stays a text.
const LONGEST: usize = 254;

/// The phone as sent, and in E.164 where it can be read as one.
pub(super) fn phone(text: &str, region: Option<Region>) -> Contact {
    let text = visible(text);
    let normal = e164(&text, region);
    Contact { text, normal }
}

/// The e-mail address as sent, and in lower case where it can be one.
pub(super) fn email(text: &str) -> Contact {
    let text = visible(text);
    let looks_right = text.len() <= LONGEST
        && !text.contains(char::is_whitespace)
        && text
            .split_once('@')
            .is_some_and(|(local, host)| !local.is_empty() && !host.is_empty() && !host.contains('@'));
    let normal = looks_right.then(|| text.to_lowercase());
    Contact { text, normal }
}

/// The E.164 form of a phone number in any spelling; `region` (two letters) reads numbers without a country code.
pub fn normal_phone(text: &str, region: Option<&str>) -> Option<String> {
    let region = region.and_then(|region| region.to_ascii_uppercase().parse::<Region>().ok());
    phone(text, region).normal
}

/// The form of an e-mail address that matching uses.
pub fn normal_email(text: &str) -> Option<String> {
    email(text).normal
}

/// A text without the characters that nobody sees: those of direction, width zero and control, which copying from
/// messengers and office programs leaves in contacts. Blanks of every kind become plain ones, none at the ends.
fn visible(text: &str) -> String {
    let seen = |c: char| match c {
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' => None,
        '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => None,
        blank if blank.is_whitespace() => Some(' '),
        control if control.is_control() => None,
        other => Some(other),
    };
    text.chars().filter_map(seen).collect::<String>().trim().to_owned()
}

fn e164(text: &str, region: Option<Region>) -> Option<String> {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if text.len() > LONGEST || digits.len() < 5 {
        return None;
    }
    let parsed = |region: Option<Region>, text: &str| phonenumber::parse(region, text).ok();
    let valid = |number: &PhoneNumber| phonenumber::is_valid(number);
    let number = if text.starts_with('+') {
        // Its country is told; a range that the number plan does not know yet is a number all the same.
        parsed(None, text)
    } else {
        // Without a region every reading of a bare number would be a guess, and a wrong guess merges strangers.
        let region = region?;
        parsed(Some(region), text).filter(valid).or_else(|| {
            let international = digits.strip_prefix("00").unwrap_or(&digits);
            (international.len() > 10).then(|| parsed(None, &format!("+{international}"))).flatten().filter(valid)
        })
    }?;
    let normal = number.format().mode(Mode::E164).to_string();
    // E.164 has at most 15 digits; a text of two numbers is not one.
    (normal.len() <= 16).then_some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str, region: Option<Region>) -> Option<String> {
        phone(text, region).normal
    }

    #[test]
    fn one_phone_in_many_spellings_is_one_number() {
        for spelling in [
            "+7 (916) 123-45-67",
            "8 916 123 45 67",
            "79161234567",
            "9161234567",
            "8(916)123-45-67",
            "+79161234567",
            "8-916-123-45-67",
            "tel:+7-916-123-45-67",
        ] {
            assert_eq!(normal(spelling, Some(Region::RU)).as_deref(), Some("+79161234567"), "{spelling}");
        }
    }

    #[test]
    fn an_area_code_that_begins_with_8_keeps_it() {
        assert_eq!(normal("+7 812 123 45 67", Some(Region::RU)).as_deref(), Some("+78121234567"));
        assert_eq!(normal("8 812 123 45 67", Some(Region::RU)).as_deref(), Some("+78121234567"));
        assert_eq!(normal("8121234567", Some(Region::RU)).as_deref(), Some("+78121234567"));
        assert_eq!(normal("+370 800 12345", Some(Region::RU)).as_deref(), Some("+37080012345"));
        assert_eq!(normal("+370 800 12345", Some(Region::LT)).as_deref(), Some("+37080012345"));
        assert_eq!(normal("+370 800 12345", None).as_deref(), Some("+37080012345"));
    }

    #[test]
    fn numbers_of_other_countries_are_read_without_their_plus() {
        assert_eq!(normal("380441234567", Some(Region::RU)).as_deref(), Some("+380441234567"));
        assert_eq!(normal("0049 30 123456", Some(Region::FR)).as_deref(), Some("+4930123456"));
        assert_eq!(normal("030 123456", Some(Region::DE)).as_deref(), Some("+4930123456"));
        assert_eq!(normal("(415) 555-2671", Some(Region::US)).as_deref(), Some("+14155552671"));
    }

    #[test]
    fn what_cannot_be_read_as_a_phone_stays_a_text() {
        for text in
            ["", "call me", "12", "+", "++7", "123", "8 916", "+7 916 123-45-67, +7 916 765-43-21", &"9".repeat(1000)]
        {
            let contact = phone(text, Some(Region::RU));
            assert_eq!((contact.text.as_str(), contact.normal), (text, None));
        }
        assert_eq!(normal("9161234567", None), None);
    }

    #[test]
    fn invisible_characters_are_cleaned_from_contacts() {
        let copied = phone("\u{202a}+7 916\u{a0}123-45-67\u{202c}", None);
        assert_eq!((copied.text.as_str(), copied.normal.as_deref()), ("+7 916 123-45-67", Some("+79161234567")));
        let copied = email("\u{200b}Anna@Example.com ");
        assert_eq!((copied.text.as_str(), copied.normal.as_deref()), ("Anna@Example.com", Some("anna@example.com")));
        assert_eq!(email("no mail").normal, None);
        assert_eq!(email("a@b@c").normal, None);
        assert_eq!(email("a\0@b.c").text, "a@b.c");
    }
}
