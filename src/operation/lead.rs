//! The lead: what a person asked for, in one shape for every source and every CRM.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A lead. Everything the sender sent is in it: what has no field of its own stands in `fields`, in its order.
///
/// Personal data: `Debug` prints no value, and logs never show a lead.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lead {
    /// The whole name as sent; composed from its parts where only parts came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Given name, where the sender splits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_name: Option<String>,
    /// Family name, where the sender splits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_name: Option<String>,
    /// Phones, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phones: Vec<Contact>,
    /// E-mail addresses, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emails: Vec<Contact>,
    /// The message text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The five UTM tags.
    #[serde(skip_serializing_if = "Utm::is_empty")]
    pub utm: Utm,
    /// Address of the page with the form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Address the visitor came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referrer: Option<String>,
    /// Click ids of advertising systems (gclid, yclid, fbclid …), by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub click_ids: Vec<(String, String)>,
    /// Every other field, by the sender's name for it; equal names repeat.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
    /// Files: name and size are recorded; the content stays in the delivery log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
}

/// A phone or an e-mail address: the text as sent, and the form that matching uses.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// The text as sent, less invisible characters.
    pub text: String,
    /// Phone in E.164, e-mail in lower case; `None` where the text cannot be read as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normal: Option<String>,
}

/// The five UTM tags.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Utm {
    /// utm_source
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// utm_medium
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<String>,
    /// utm_campaign
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    /// utm_content
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// utm_term
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<String>,
}

impl Utm {
    /// Whether no tag is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A file that came with a form.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Name of the form field.
    pub field: String,
    /// File name as sent; a label, never a path.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

impl std::fmt::Debug for Lead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lead({} phones, {} e-mails, {} fields)", self.phones.len(), self.emails.len(), self.fields.len())
    }
}
