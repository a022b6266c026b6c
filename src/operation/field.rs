//! Names of fields, as a configuration writes them.

use super::json::Json;

/// The place of a field, as `key` and `volatile` in the configuration name it: a JSON pointer (`/a/b`, RFC 6901) or a form
/// field (`a`, `a[b]`). Both name the same field in either kind of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    segments: Vec<String>,
    form_name: String,
}

impl FieldPath {
    /// Reads a pointer or a field name; `None` where it names nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let segments: Vec<String> = match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(|s| s.replace("~1", "/").replace("~0", "~")).collect(),
            None => bracket_segments(text),
        };
        let form_name = match (text.strip_prefix('/'), segments.split_first()) {
            (None, _) => text.to_owned(),
            (Some(_), Some((first, rest))) => rest.iter().fold(first.clone(), |name, s| format!("{name}[{s}]")),
            (Some(_), None) => String::new(),
        };
        if text.trim().is_empty() || form_name.trim().is_empty() {
            return None;
        }
        Some(Self { segments, form_name })
    }

    /// The field's name in a form.
    pub fn form_name(&self) -> &str {
        &self.form_name
    }

    /// The names of the objects' members on the way to the field, and its own.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The value there, in a JSON text.
    pub fn in_json<'j, 'a>(&self, json: &'j Json<'a>) -> Option<&'j Json<'a>> {
        self.segments.iter().try_fold(json, |value, segment| value.get(segment))
    }

    /// Whether a form field of that name is this field, one of its items (`a[]`) or inside it (`a[b]`).
    pub fn covers(&self, name: &str) -> bool {
        name.strip_prefix(&self.form_name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
    }
}

/// `a[b][c]` as its parts; a name that is not written so is one part.
fn bracket_segments(name: &str) -> Vec<String> {
    let whole = || vec![name.to_owned()];
    let Some((first, rest)) = name.split_once('[') else { return whole() };
    let Some(rest) = rest.strip_suffix(']') else { return whole() };
    if first.is_empty() {
        return whole();
    }
    std::iter::once(first).chain(rest.split("][")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_field_by_pointer_or_by_form_name() {
        let path = |text| FieldPath::parse(text);
        assert_eq!(path("/a/b").map(|p| p.form_name().to_owned()), Some("a[b]".into()));
        assert_eq!(path("a[b]").map(|p| p.segments), path("/a/b").map(|p| p.segments));
        assert_eq!(path("/x~1y/~0").map(|p| p.segments), Some(vec!["x/y".into(), "~".into()]));
        assert_eq!(path("tags[]").map(|p| p.form_name().to_owned()), Some("tags[]".into()));
        for nothing in ["", " ", "/"] {
            assert_eq!(path(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_pointer_leads_to_its_value() {
        let json = Json::parse(r#"{"a":{"b":[{"c":7}]}}"#).expect("JSON");
        let at = |text: &str| FieldPath::parse(text).and_then(|path| path.in_json(&json)?.text().map(str::to_owned));
        assert_eq!(at("/a/b/0/c").as_deref(), Some("7"));
        assert_eq!(at("a[b][0][c]").as_deref(), Some("7"));
        for nowhere in ["/a/b/1/c", "/a", "/b", "/a/b/c"] {
            assert_eq!(at(nowhere), None, "{nowhere}");
        }
    }
}
