//! The configuration as a tree of plain values, each with its place: the file, the environment laid over it, and every
//! `env:NAME` and `file:PATH` replaced by what it names. What the values mean is not known here.

use std::collections::BTreeMap;

use toml_edit::{Document, Item, TableLike, Value};

use super::Outside;
use super::fault::{Fault, Place};

/// Tables whose scalar keys an environment variable `LEADONCE__TABLE__KEY` may set.
const OVERRIDABLE: [&str; 5] = ["server", "store", "retention", "alerts", "admin"];
const PREFIX: &str = "LEADONCE__";

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    /// `env:NAME` or `file:PATH`, where the text came from there. Such a text is never shown: it may be a secret.
    pub(super) origin: Option<String>,
    pub(super) data: Data,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    Text(String),
    Whole(i64),
    Number(f64),
    Flag(bool),
    Date,
    List(Vec<Node>),
    Table(Table),
    /// Named by `env:` or `file:` and not to be had. The fault is told already; whoever meets this adds none.
    Lost,
}

/// Keys and values in the order of the file.
pub(super) type Table = Vec<(String, Node)>;

impl Node {
    /// What was found, for "found …" in a fault; hides what came from elsewhere.
    pub(super) fn found(&self) -> String {
        if let Some(origin) = &self.origin {
            return format!("the value of {origin}");
        }
        match &self.data {
            Data::Text(text) if text.chars().count() > 60 => {
                format!("\"{}…\"", text.chars().take(60).collect::<String>().escape_debug())
            }
            Data::Text(text) => format!("\"{}\"", text.escape_debug()),
            Data::Whole(number) => number.to_string(),
            Data::Number(number) => number.to_string(),
            Data::Flag(flag) => flag.to_string(),
            Data::Date => "a date".to_owned(),
            Data::List(_) => "a list".to_owned(),
            Data::Table(_) => "a table".to_owned(),
            Data::Lost => "nothing".to_owned(),
        }
    }

    /// The same for a value that is or may hold a secret: says what it is, not what it says.
    pub(super) fn found_secret(&self) -> String {
        match &self.data {
            Data::Text(text) if self.origin.is_none() && !text.is_empty() => "another text".to_owned(),
            Data::Whole(_) | Data::Number(_) => "a number".to_owned(),
            _ => self.found(),
        }
    }

    /// Whether the text came from where there are only texts, so that `8` may stand for a number.
    pub(super) fn is_loose(&self) -> bool {
        self.origin.is_some() || matches!(self.place, Place::Environment(_))
    }
}

/// Builds the tree. A file that is not TOML gives one fault: beyond it nothing can be said.
pub(super) fn build(text: &str, outside: &Outside<'_>, faults: &mut Vec<Fault>) -> Option<Table> {
    let lines = Lines(text);
    let mut root = match Document::parse(text) {
        Ok(document) => lines.table(document.as_table()),
        Err(error) => {
            let place = error.span().map_or(Place::File, |span| Place::Line(lines.of(span.start)));
            // The library's text may have several lines; a fault has one.
            let message = error.message().lines().collect::<Vec<_>>().join("; ");
            faults.push(Fault { place, key: String::new(), message: format!("this is not TOML: {message}") });
            return None;
        }
    };
    lay_over(&mut root, outside, faults);
    for (key, node) in &mut root {
        resolve(node, key, outside, faults);
    }
    Some(root)
}

/// Calls `see` with every value below a table and its full name (`destination[0].retry.jitter`), outer ones first.
fn visit<'a>(table: &'a Table, see: &mut dyn FnMut(&str, &'a Node)) {
    fn one<'a>(path: &str, node: &'a Node, see: &mut dyn FnMut(&str, &'a Node)) {
        see(path, node);
        match &node.data {
            Data::Table(table) => {
                for (key, child) in table {
                    one(&format!("{path}.{key}"), child, see);
                }
            }
            Data::List(list) => {
                for (n, child) in list.iter().enumerate() {
                    one(&format!("{path}[{n}]"), child, see);
                }
            }
            Data::Text(_) | Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Date | Data::Lost => {}
        }
    }
    for (key, node) in table {
        one(key, node, see);
    }
}

/// The line of every key that stands in the file, by its full name.
pub(super) fn lines_of(root: &Table) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    visit(root, &mut |path, node| {
        if let Place::Line(line) = node.place {
            lines.insert(path.to_owned(), line);
        }
    });
    lines
}

/// `env:NAME` or `file:PATH` of every text that came from there, by its key's full name.
pub(super) fn origins_of(root: &Table) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    visit(root, &mut |path, node| {
        if let Some(origin) = &node.origin {
            origins.insert(path.to_owned(), origin.clone());
        }
    });
    origins
}

/// Turns byte offsets of a text into its lines.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn of(&self, offset: usize) -> usize {
        1 + self.0.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }

    fn table(&self, table: &dyn TableLike) -> Table {
        table
            .iter()
            .map(|(name, item)| {
                // The key tells the line better than its value: a table's own span may begin elsewhere.
                let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
                let place = span.map_or(Place::File, |span| Place::Line(self.of(span.start)));
                (name.to_owned(), Node { place, origin: None, data: self.item(item) })
            })
            .collect()
    }

    fn item(&self, item: &Item) -> Data {
        match item {
            Item::None => Data::Lost,
            Item::Value(value) => self.value(value),
            Item::Table(table) => Data::Table(self.table(table)),
            Item::ArrayOfTables(tables) => Data::List(
                tables.iter().map(|table| self.element(table.span(), Data::Table(self.table(table)))).collect(),
            ),
        }
    }

    fn value(&self, value: &Value) -> Data {
        match value {
            Value::String(text) => Data::Text(text.value().clone()),
            Value::Integer(number) => Data::Whole(*number.value()),
            Value::Float(number) => Data::Number(*number.value()),
            Value::Boolean(flag) => Data::Flag(*flag.value()),
            Value::Datetime(_) => Data::Date,
            Value::Array(list) => {
                Data::List(list.iter().map(|value| self.element(value.span(), self.value(value))).collect())
            }
            Value::InlineTable(table) => Data::Table(self.table(table)),
        }
    }

    fn element(&self, span: Option<std::ops::Range<usize>>, data: Data) -> Node {
        Node { place: span.map_or(Place::File, |span| Place::Line(self.of(span.start))), origin: None, data }
    }
}

/// Lays the environment's `LEADONCE__TABLE__KEY` over the file.
fn lay_over(root: &mut Table, outside: &Outside<'_>, faults: &mut Vec<Fault>) {
    for name in outside.names {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let Some(value) = (outside.variable)(name) else { continue };
        let place = Place::Environment(name.clone());
        let parts = rest.to_lowercase();
        let target = parts.split_once("__").filter(|(table, key)| OVERRIDABLE.contains(table) && !key.contains("__"));
        let Some((section, key)) = target else {
            faults.push(Fault {
                place,
                key: String::new(),
                message: format!(
                    "sets nothing: a variable {PREFIX}TABLE__KEY may set one key of [{}]; destinations and sources \
                     name variables of their own choice (\"env:NAME\")",
                    OVERRIDABLE.join("], [")
                ),
            });
            continue;
        };
        let node = Node { place: place.clone(), origin: None, data: Data::Text(value) };
        match root.iter_mut().find(|(name, _)| name == section) {
            Some((_, Node { data: Data::Table(table), .. })) => match table.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = node,
                None => table.push((key.to_owned(), node)),
            },
            // A section that is no table has its own fault later.
            Some(_) => {}
            None => {
                let data = Data::Table(vec![(key.to_owned(), node)]);
                root.push((section.to_owned(), Node { place, origin: None, data }));
            }
        }
    }
}

/// Replaces `env:NAME` and `file:PATH` by what they name, in every text of the tree.
fn resolve(node: &mut Node, path: &str, outside: &Outside<'_>, faults: &mut Vec<Fault>) {
    let text = match &mut node.data {
        Data::Table(table) => {
            for (key, child) in table {
                resolve(child, &format!("{path}.{key}"), outside, faults);
            }
            return;
        }
        Data::List(list) => {
            for (n, child) in list.iter_mut().enumerate() {
                resolve(child, &format!("{path}[{n}]"), outside, faults);
            }
            return;
        }
        Data::Text(text) => text,
        Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Date | Data::Lost => return,
    };
    let found = if let Some(name) = text.strip_prefix("env:") {
        (outside.variable)(name).ok_or_else(|| format!("the environment variable {name} is not set"))
    } else if let Some(file) = text.strip_prefix("file:") {
        // Editors and `echo` end a file with a newline; no secret does.
        (outside.file)(file)
            .map(|content| content.trim_end_matches(['\n', '\r']).to_owned())
            .map_err(|why| format!("the file {file} cannot be read: {why}"))
    } else {
        return;
    };
    node.data = match found {
        Ok(found) => {
            node.origin = Some(text.clone());
            Data::Text(found)
        }
        Err(message) => {
            faults.push(Fault { place: node.place.clone(), key: path.to_owned(), message });
            Data::Lost
        }
    };
}
