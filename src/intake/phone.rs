//! Phones and e-mail addresses in the form that matching uses. The text as sent is never replaced by it.

use phonenumber::country::Id as Region;
use phonenumber::metadata::DATABASE;
use phonenumber::{Metadata, Type};

use crate::operation::lead::Contact;

/// No phone or e-mail address is longer than this, in bytes; what is longer stays a text.
const LONGEST: usize = 254;
/// Fewer digits are an extension or an emergency number, more are no E.164.
const FEWEST_DIGITS: usize = 6;
const MOST_DIGITS: usize = 15;
/// Bare digits beyond the usual length at home are tried as a number of another country.
const LONGEST_NATIONAL: usize = 10;

/// The kinds of numbers that a person may give as a contact.
const KINDS: [Type; 9] = [
    Type::Mobile,
    Type::FixedLine,
    Type::TollFree,
    Type::SharedCost,
    Type::Voip,
    Type::PersonalNumber,
    Type::Uan,
    Type::Pager,
    Type::PremiumRate,
];

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

/// E.164, by the number plans of libphonenumber's metadata.
///
/// The crate's own parser is not asked: it takes a national prefix off twice, so that +7 812 … loses its 8.
fn e164(text: &str, region: Option<Region>) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    let lower = text.to_lowercase();
    let extension = ["доб", "ext", "#", ";", ",", " x"].iter().filter_map(|mark| lower.find(mark)).min();
    let (number, rest) = lower.split_at_checked(extension.unwrap_or(lower.len()))?;
    // Two numbers in one field are not one number.
    if digits_of(rest).len() >= FEWEST_DIGITS || number.matches('+').count() > 1 {
        return None;
    }
    let digits = digits_of(number);
    if !(FEWEST_DIGITS..=MOST_DIGITS).contains(&digits.len()) {
        return None;
    }
    if number.trim_start_matches(|c: char| c != '+' && !c.is_numeric()).starts_with('+') {
        // Its country is told; a range that the number plan does not know yet is a number all the same.
        return international(&digits).or_else(|| country_of(&digits).map(|_| format!("+{digits}")));
    }
    // Without a region every reading of a bare number would be a guess, and a wrong guess merges strangers.
    let plan = DATABASE.by_id(region?.as_ref())?;
    let code = plan.country_code().to_string();
    national(&[plan], &digits)
        .or_else(|| national(&[plan], digits.strip_prefix(&code)?))
        .map(|significant| format!("+{code}{significant}"))
        .or_else(|| international(after_exit_code(plan, &digits)?))
        .or_else(|| (digits.len() > LONGEST_NATIONAL).then(|| international(&digits))?)
}

fn digits_of(text: &str) -> String {
    let digit = |c: char| match u32::from(c) {
        code @ 0x30..=0x39 => char::from_digit(code - 0x30, 10),
        // Arabic, Persian and full-width digits.
        code @ 0x660..=0x669 => char::from_digit(code - 0x660, 10),
        code @ 0x6f0..=0x6f9 => char::from_digit(code - 0x6f0, 10),
        code @ 0xff10..=0xff19 => char::from_digit(code - 0xff10, 10),
        _ => None,
    };
    text.chars().filter_map(digit).collect()
}

/// The country code that these digits begin with: its number plans, and what follows.
fn country_of(digits: &str) -> Option<(Vec<&'static Metadata>, &str)> {
    (1..=3).find_map(|length| {
        let (code, rest) = digits.split_at_checked(length)?;
        DATABASE.by_code(&code.parse::<u16>().ok()?).map(|plans| (plans, rest))
    })
}

/// Digits that begin with a country code, if the rest is a number there.
fn international(digits: &str) -> Option<String> {
    let (plans, rest) = country_of(digits)?;
    let code = digits.strip_suffix(rest)?;
    national(&plans, rest).map(|significant| format!("+{code}{significant}"))
}

/// The national significant number: the digits themselves where they are one, else without the national prefix, as in
/// 8 916 … at home or +44 (0)20 … on a visiting card.
fn national(plans: &[&Metadata], digits: &str) -> Option<String> {
    if plans.iter().any(|plan| is_number(plan, digits)) {
        return Some(digits.to_owned());
    }
    plans.iter().find_map(|plan| {
        let prefix = plan.national_prefix().filter(|prefix| digits.starts_with(prefix)).map(str::len);
        let parsed = || plan.national_prefix_for_parsing()?.find(digits).filter(|m| m.start() == 0).map(|m| m.end());
        let rest = digits.get(prefix.or_else(parsed)?..)?;
        is_number(plan, rest).then(|| rest.to_owned())
    })
}

fn is_number(plan: &Metadata, digits: &str) -> bool {
    let kinds = plan.descriptors();
    kinds.general().is_match(digits)
        && KINDS.iter().any(|kind| kinds.get(*kind).is_some_and(|descriptor| descriptor.is_match(digits)))
}

/// What follows the code for dialling abroad: that of the region, or the 00 that most of the world writes.
fn after_exit_code<'d>(plan: &Metadata, digits: &'d str) -> Option<&'d str> {
    let own = plan.international_prefix().and_then(|prefix| prefix.find(digits)).filter(|m| m.start() == 0);
    own.and_then(|m| digits.get(m.end()..)).or_else(|| digits.strip_prefix("00"))
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
        assert_eq!(normal("8~10 49 30 123456", Some(Region::RU)).as_deref(), Some("+4930123456"));
        assert_eq!(normal("+39 06 698 12345", None).as_deref(), Some("+390669812345"));
    }

    #[test]
    fn a_national_prefix_and_an_extension_are_no_part_of_the_number() {
        assert_eq!(normal("+44 (0)20 7946 0018", None).as_deref(), Some("+442079460018"));
        assert_eq!(normal("8 612 34567", Some(Region::LT)).as_deref(), Some("+37061234567"));
        assert_eq!(normal("8 800 555-35-35", Some(Region::RU)).as_deref(), Some("+78005553535"));
        assert_eq!(normal("+7 495 123-45-67 доб. 12", None).as_deref(), Some("+74951234567"));
        assert_eq!(normal("+1 415 555 2671 ext. 5", None).as_deref(), Some("+14155552671"));
        assert_eq!(normal("٠٥٠ ١٢٣ ٤٥٦٧", Some(Region::AE)).as_deref(), Some("+971501234567"));
    }

    #[test]
    fn a_number_with_its_country_is_kept_though_the_plan_does_not_know_its_range() {
        assert_eq!(normal("+1 555 010 0001", None).as_deref(), Some("+15550100001"));
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
