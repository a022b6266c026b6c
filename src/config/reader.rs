//! Reading a tree into typed values: each key is taken once, by name and with a reader of its value; what is wrong is noted
//! and reading goes on; at the end the keys that nobody took are the unknown ones.
//!
//! Every function that gives `None` has noted a fault, or found that the key is simply not there.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::fault::{Fault, Place};
use super::near::nearest;
use super::tree::{Data, Node, Table};

/// Reads one value; an error says what it must be (`must be true or false`).
pub(super) trait Read<T>: Fn(&Node) -> Result<T, String> {}
impl<T, F: Fn(&Node) -> Result<T, String>> Read<T> for F {}

/// Collects faults, and which keys are known in which table.
#[derive(Debug, Default)]
pub(super) struct Reader {
    faults: RefCell<Vec<Fault>>,
    known: RefCell<BTreeMap<String, Vec<&'static str>>>,
}

impl Reader {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Self { faults: RefCell::new(faults), known: RefCell::default() }
    }

    /// The whole file.
    pub(super) fn root<'a>(&'a self, table: &'a Table) -> Section<'a> {
        Section { reader: self, path: String::new(), place: Place::File, table }
    }

    fn note(&self, place: Place, key: String, message: String) {
        self.faults.borrow_mut().push(Fault { place, key, message });
    }

    /// Reports the keys of visited tables that nobody took, and gives all faults.
    pub(super) fn finish(self, root: &Table) -> Vec<Fault> {
        let known = self.known.take();
        let mut faults = self.faults.take();
        unknown_keys(root, "", &known, &mut faults);
        faults
    }
}

/// One table of the file, or the absence of one.
#[derive(Debug)]
pub(super) struct Section<'a> {
    reader: &'a Reader,
    path: String,
    place: Place,
    table: &'a [(String, Node)],
}

impl<'a> Section<'a> {
    /// Takes a key that may be left out.
    pub(super) fn take<T>(&self, key: &'static str, read: impl Read<T>) -> Option<T> {
        self.read(key, read, Node::found)
    }

    /// Takes a secret that may be left out: its text appears in no fault.
    pub(super) fn take_secret<T>(&self, key: &'static str, read: impl Read<T>) -> Option<T> {
        self.read(key, read, Node::found_secret)
    }

    /// Takes a key that must be there.
    pub(super) fn need<T>(&self, key: &'static str, read: impl Read<T>) -> Option<T> {
        if self.node(key).is_none() {
            self.fault(key, "is missing");
        }
        self.take(key, read)
    }

    /// Takes a list, each element by the same reader; empty where the key is not there. Elements with faults are left out.
    pub(super) fn list<T>(&self, key: &'static str, read: impl Read<T>) -> Vec<T> {
        self.elements(key, read, Node::found)
    }

    /// Takes a list of secrets.
    pub(super) fn secrets<T>(&self, key: &'static str, read: impl Read<T>) -> Vec<T> {
        self.elements(key, read, Node::found_secret)
    }

    /// Takes a table; one without keys where it is not there.
    pub(super) fn section(&self, key: &'static str) -> Section<'a> {
        let empty = Section { reader: self.reader, path: self.path_of(key), place: self.place.clone(), table: &[] };
        let Some(node) = self.node(key) else { return empty };
        match &node.data {
            Data::Table(table) => Section { place: node.place.clone(), table, ..empty },
            Data::Lost => empty,
            _ => {
                self.fault(key, &format!("must be a table, found {}", node.found()));
                empty
            }
        }
    }

    /// The same table as if it had no keys.
    pub(super) fn nothing(&self) -> Section<'a> {
        Section { reader: self.reader, path: self.path.clone(), place: self.place.clone(), table: &[] }
    }

    /// Takes an array of tables (`[[key]]`).
    pub(super) fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let Some(node) = self.node(key) else { return Vec::new() };
        let Data::List(list) = &node.data else {
            let shown = match node.data {
                Data::Table(_) => format!("[{key}]"),
                _ => node.found(),
            };
            self.fault(key, &format!("write [[{key}]] in two brackets (there may be several), found {shown}"));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (n, node) in list.iter().enumerate() {
            let path = format!("{}[{n}]", self.path_of(key));
            match &node.data {
                Data::Table(table) => {
                    sections.push(Section { reader: self.reader, path, place: node.place.clone(), table });
                }
                _ => self.reader.note(node.place.clone(), path, format!("must be a table, found {}", node.found())),
            }
        }
        sections
    }

    /// Takes every key that nobody took so far, as JSON.
    pub(super) fn rest(&self) -> serde_json::Map<String, serde_json::Value> {
        let taken = self.reader.known.borrow().get(&self.path).cloned().unwrap_or_default();
        let mut rest = serde_json::Map::new();
        for (key, node) in self.table.iter().filter(|(key, _)| !taken.contains(&key.as_str())) {
            let path = self.path_of(key);
            if let Some(value) = self.json(&path, node) {
                rest.insert(key.clone(), value);
            }
        }
        self.reader.known.borrow_mut().entry(self.path.clone()).or_default().push(ANY_KEY);
        rest
    }

    /// Whether the key is there.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.node(key).is_some()
    }

    /// The table's full name (`destination[0]`).
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Notes a fault of a key, at its place, or at the table's where the key is not there.
    pub(super) fn fault(&self, key: &str, message: &str) {
        let place = self.table.iter().find(|(name, _)| name == key).map_or(&self.place, |(_, node)| &node.place);
        self.reader.note(place.clone(), self.path_of(key), message.to_owned());
    }

    /// Notes what somebody else found wrong with a key of this table, or below one (`create.url`, `rules.0.class`); not where
    /// the key has a fault already: a value that could not be read looks missing to those who were not told of it. An empty
    /// key means the table; then nothing is noted where any of its values is lost.
    pub(super) fn fault_below(&self, key: &str, message: &str) {
        if key.is_empty() && self.table.iter().any(|(_, node)| is_lost(node)) {
            return;
        }
        let (mut place, mut path) = (&self.place, self.path.clone());
        let mut inside = Some(Inside::Table(self.table));
        for part in key.split('.').filter(|part| !part.is_empty()) {
            let number = part.parse::<usize>().ok();
            let found = match (inside, number) {
                (Some(Inside::Table(table)), _) => table.iter().find(|(name, _)| name == part).map(|(_, node)| node),
                (Some(Inside::List(list)), Some(n)) => list.get(n),
                (Some(Inside::List(_)), None) | (None, _) => None,
            };
            path = match (inside, number) {
                (Some(Inside::List(_)), Some(n)) => format!("{path}[{n}]"),
                _ => format!("{path}.{part}"),
            };
            place = found.map_or(place, |node| &node.place);
            inside = found.and_then(Inside::of);
        }
        let told = !key.is_empty() && self.reader.faults.borrow().iter().any(|fault| is_at_or_below(&fault.key, &path));
        if !told {
            self.reader.note(place.clone(), path, message.to_owned());
        }
    }

    /// The text of a key, without taking it.
    pub(super) fn peek(&self, key: &str) -> Option<&'a str> {
        text_of(self.table, key)
    }

    /// The texts of a key in each table of an array of tables, without taking anything.
    pub(super) fn peek_all(&self, tables: &str, key: &str) -> Vec<&'a str> {
        let list = match self.table.iter().find(|(name, _)| name == tables) {
            Some((_, Node { data: Data::List(list), .. })) => list.as_slice(),
            _ => &[],
        };
        list.iter()
            .filter_map(|node| match &node.data {
                Data::Table(table) => text_of(table, key),
                _ => None,
            })
            .collect()
    }

    /// The table for people: its full name and line.
    pub(super) fn described(&self) -> String {
        match self.place {
            Place::Line(line) => format!("{} (line {line})", self.path),
            Place::Environment(_) | Place::File => self.path.clone(),
        }
    }

    fn read<T>(&self, key: &'static str, read: impl Read<T>, found: impl Fn(&Node) -> String) -> Option<T> {
        let node = self.node(key)?;
        self.value(node, || self.path_of(key), read, found)
    }

    fn elements<T>(&self, key: &'static str, read: impl Read<T>, found: impl Fn(&Node) -> String) -> Vec<T> {
        let Some(node) = self.node(key) else { return Vec::new() };
        let Data::List(list) = &node.data else {
            if node.data != Data::Lost {
                self.fault(key, &format!("must be a list such as [\"…\"], found {}", found(node)));
            }
            return Vec::new();
        };
        let path = self.path_of(key);
        list.iter()
            .enumerate()
            .filter_map(|(n, node)| self.value(node, || format!("{path}[{n}]"), &read, &found))
            .collect()
    }

    fn value<T>(
        &self,
        node: &Node,
        path: impl Fn() -> String,
        read: impl Read<T>,
        found: impl Fn(&Node) -> String,
    ) -> Option<T> {
        if node.data == Data::Lost {
            return None;
        }
        match read(node) {
            Ok(value) => Some(value),
            Err(must) => {
                self.reader.note(node.place.clone(), path(), format!("{must}, found {}", found(node)));
                None
            }
        }
    }

    /// The key's value; from now on the key is known in this table.
    fn node(&self, key: &'static str) -> Option<&'a Node> {
        self.reader.known.borrow_mut().entry(self.path.clone()).or_default().push(key);
        self.table.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn json(&self, path: &str, node: &Node) -> Option<serde_json::Value> {
        match &node.data {
            Data::Text(text) => Some(text.clone().into()),
            Data::Whole(number) => Some((*number).into()),
            Data::Flag(flag) => Some((*flag).into()),
            Data::Number(number) => {
                let number = serde_json::Number::from_f64(*number);
                if number.is_none() {
                    let message = format!("must be a finite number, found {}", node.found());
                    self.reader.note(node.place.clone(), path.to_owned(), message);
                }
                number.map(Into::into)
            }
            Data::Date => {
                let message = "must be a text, number, list or table, found a date; put it in quotes".to_owned();
                self.reader.note(node.place.clone(), path.to_owned(), message);
                None
            }
            Data::List(list) => Some(serde_json::Value::Array(
                list.iter().enumerate().filter_map(|(n, node)| self.json(&format!("{path}[{n}]"), node)).collect(),
            )),
            Data::Table(table) => Some(serde_json::Value::Object(
                table
                    .iter()
                    .filter_map(|(key, node)| Some((key.clone(), self.json(&format!("{path}.{key}"), node)?)))
                    .collect(),
            )),
            Data::Lost => None,
        }
    }
}

/// What has keys or numbers to go further down by.
#[derive(Clone, Copy)]
enum Inside<'a> {
    Table(&'a [(String, Node)]),
    List(&'a [Node]),
}

impl<'a> Inside<'a> {
    fn of(node: &'a Node) -> Option<Self> {
        match &node.data {
            Data::Table(table) => Some(Self::Table(table)),
            Data::List(list) => Some(Self::List(list)),
            Data::Text(_) | Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Date | Data::Lost => None,
        }
    }
}

/// Whether a value, or one in a list, was named by `env:` or `file:` and not to be had.
fn is_lost(node: &Node) -> bool {
    match &node.data {
        Data::Lost => true,
        Data::List(list) => list.iter().any(is_lost),
        Data::Text(_) | Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Date | Data::Table(_) => false,
    }
}

fn text_of<'a>(table: &'a [(String, Node)], key: &str) -> Option<&'a str> {
    match &table.iter().find(|(name, _)| name == key)?.1.data {
        Data::Text(text) => Some(text),
        _ => None,
    }
}

fn is_at_or_below(key: &str, path: &str) -> bool {
    key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Stands among a table's known keys where all are welcome. No key of a file can be it: readers name keys in lower case.
const ANY_KEY: &str = "*";

fn unknown_keys(table: &Table, path: &str, known: &BTreeMap<String, Vec<&'static str>>, faults: &mut Vec<Fault>) {
    let Some(keys) = known.get(path) else { return };
    for (key, node) in table {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if !keys.contains(&key.as_str()) && !keys.contains(&ANY_KEY) {
            let hint = nearest(key, keys.iter().copied()).map_or_else(String::new, did_you_mean);
            faults.push(Fault { place: node.place.clone(), key: path, message: format!("unknown key{hint}") });
            continue;
        }
        match &node.data {
            Data::Table(table) => unknown_keys(table, &path, known, faults),
            Data::List(list) => {
                for (n, node) in list.iter().enumerate() {
                    if let Data::Table(table) = &node.data {
                        unknown_keys(table, &format!("{path}[{n}]"), known, faults);
                    }
                }
            }
            Data::Text(_) | Data::Whole(_) | Data::Number(_) | Data::Flag(_) | Data::Date | Data::Lost => {}
        }
    }
}

/// The end of a message that offers another word.
pub(super) fn did_you_mean(word: &str) -> String {
    format!("; did you mean \"{word}\"?")
}
