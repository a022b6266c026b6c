//! The lead as text for people: what has no field of its own in a CRM goes into its comment, so that nothing is lost.

use crate::operation::Lead;

/// The message as it is, then one line for each further thing the sender sent: page, referrer, click ids, other fields,
/// files. Name, phones, e-mails and UTM tags have fields of their own in every CRM and are not repeated.
pub fn describe(lead: &Lead) -> String {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("{label}: {text}"));
        }
    };
    for (label, text) in [("Page", &lead.page), ("Referrer", &lead.referrer)] {
        line(label, text.as_deref().unwrap_or_default());
    }
    for (name, value) in lead.click_ids.iter().chain(&lead.fields) {
        line(name, value);
    }
    for file in &lead.files {
        line(&file.field, &format!("{} ({} bytes)", file.name, file.size));
    }
    match &lead.message {
        Some(message) if lines.is_empty() => message.clone(),
        Some(message) => format!("{message}\n\n{}", lines.join("\n")),
        None => lines.join("\n"),
    }
}

/// The first characters of a text, at most so many; whole where it fits.
pub fn cut(text: &str, longest: usize) -> &str {
    text.char_indices().nth(longest).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::lead::File;

    #[test]
    fn everything_without_a_field_of_its_own_is_told() {
        let lead = Lead {
            name: Some("Anna".into()),
            message: Some("Call me\nat five".into()),
            page: Some("https://example.com/promo".into()),
            click_ids: vec![("yclid".into(), "77".into())],
            fields: vec![("Service".into(), "x".into()), ("Service".into(), "y".into()), ("empty".into(), "".into())],
            files: vec![File { field: "cv".into(), name: "Резюме.pdf".into(), size: 12 }],
            ..Lead::default()
        };
        assert_eq!(
            describe(&lead),
            "Call me\nat five\n\nPage: https://example.com/promo\nyclid: 77\nService: x\nService: y\ncv: Резюме.pdf (12 bytes)"
        );
        assert_eq!(describe(&Lead::default()), "");
    }

    #[test]
    fn a_cut_never_goes_through_a_character() {
        assert_eq!(cut("Йёй", 2), "Йё");
        assert_eq!(cut("Йёй", 3), "Йёй");
        assert_eq!(cut("", 3), "");
    }
}
