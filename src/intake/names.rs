//! The usual spellings of field names, in the languages of the forms we meet.

/// A field that a lead has a place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    Name,
    FirstName,
    LastName,
    Phone,
    Email,
    Message,
    Utm(Utm),
    Page,
    Referrer,
    ClickId(&'static str),
}

/// The five UTM tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Utm {
    Source,
    Medium,
    Campaign,
    Content,
    Term,
}

/// Click ids of advertising systems, by the names under which they stand in addresses.
pub(super) const CLICK_IDS: [&str; 14] = [
    "gclid",
    "wbraid",
    "gbraid",
    "dclid",
    "yclid",
    "ymclid",
    "fbclid",
    "msclkid",
    "ttclid",
    "twclid",
    "li_fat_id",
    "rb_clickid",
    "vk_click_id",
    "igshid",
];

/// What a field of that name is. Case, blanks, dashes, underscores, dots and brackets in the name do not matter.
pub(super) fn known(name: &str) -> Option<Known> {
    let plain = plain(inner(name));
    if let Some(id) = CLICK_IDS.iter().find(|id| self::plain(id) == plain) {
        return Some(Known::ClickId(id));
    }
    Some(match plain.as_str() {
        "name"
        | "fullname"
        | "yourname"
        | "contactname"
        | "clientname"
        | "customername"
        | "fio"
        | "имя"
        | "фио"
        | "вашеимя"
        | "имяифамилия"
        | "полноеимя" => Known::Name,
        "firstname" | "fname" | "givenname" | "yourfirstname" => Known::FirstName,
        "lastname" | "lname" | "surname" | "familyname" | "secondname" | "yourlastname" | "фамилия" | "вашафамилия" => {
            Known::LastName
        }
        "phone"
        | "phones"
        | "tel"
        | "telephone"
        | "phonenumber"
        | "yourphone"
        | "yourtel"
        | "contactphone"
        | "clientphone"
        | "customerphone"
        | "mobile"
        | "mobilephone"
        | "mobilenumber"
        | "cellphone"
        | "телефон"
        | "ваштелефон"
        | "номертелефона"
        | "мобильный"
        | "мобильныйтелефон"
        | "контактныйтелефон" => Known::Phone,
        "email"
        | "emails"
        | "mail"
        | "emailaddress"
        | "youremail"
        | "yourmail"
        | "contactemail"
        | "clientemail"
        | "customeremail"
        | "почта"
        | "вашапочта"
        | "электроннаяпочта"
        | "элпочта"
        | "емейл"
        | "имейл"
        | "емайл"
        | "вашemail" => Known::Email,
        "message"
        | "msg"
        | "comment"
        | "comments"
        | "yourmessage"
        | "yourcomment"
        | "сообщение"
        | "вашесообщение"
        | "комментарий"
        | "комментарии"
        | "вашкомментарий" => Known::Message,
        "utmsource" => Known::Utm(Utm::Source),
        "utmmedium" => Known::Utm(Utm::Medium),
        "utmcampaign" => Known::Utm(Utm::Campaign),
        "utmcontent" => Known::Utm(Utm::Content),
        "utmterm" => Known::Utm(Utm::Term),
        "page" | "url" | "pageurl" | "страница" | "адресстраницы" => Known::Page,
        "referer" | "referrer" | "httpreferer" | "httpreferrer" => Known::Referrer,
        _ => return None,
    })
}

/// The name inside the usual wrappings of webhook bodies, one level deep: `data[phone]` is a phone, `payment[phone]` is not.
fn inner(name: &str) -> &str {
    let unwrapped = ["data", "lead", "contact"].iter().find_map(|outer| name.strip_prefix(outer)?.strip_prefix('['));
    match unwrapped.and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) if !inner.is_empty() && !inner.contains(['[', ']']) => inner,
        _ => name,
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_spellings_are_known() {
        for (name, field) in [
            ("Name", Known::Name),
            ("full_name", Known::Name),
            ("your-name", Known::Name),
            ("Имя", Known::Name),
            ("First Name", Known::FirstName),
            ("Фамилия", Known::LastName),
            ("Phone", Known::Phone),
            ("phone[]", Known::Phone),
            ("Телефон", Known::Phone),
            ("your-tel", Known::Phone),
            ("E-mail", Known::Email),
            ("e_mail", Known::Email),
            ("Почта", Known::Email),
            ("Комментарий", Known::Message),
            ("utm_source", Known::Utm(Utm::Source)),
            ("utm[medium]", Known::Utm(Utm::Medium)),
            ("UTM-Term", Known::Utm(Utm::Term)),
            ("HTTP_REFERER", Known::Referrer),
            ("GCLID", Known::ClickId("gclid")),
            ("li_fat_id", Known::ClickId("li_fat_id")),
            ("data[full_name]", Known::Name),
            ("contact[phone]", Known::Phone),
            ("lead[email]", Known::Email),
        ] {
            assert_eq!(known(name), Some(field), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_taken_for_known_ones() {
        for name in [
            "payment[phone]",
            "company_name",
            "data[a][phone]",
            "data[]",
            "data",
            "",
            "order",
            "username",
            "phone2call",
        ] {
            assert_eq!(known(name), None, "{name}");
        }
    }
}
