//! Reading the keys of a destination that belong to its kind: every fault is collected, with the key it stands under.
//!
//! The configuration hands over the kind's own keys of `[[destination]]` as a JSON table, `env:` and `file:` already
//! resolved. Nested keys are named with dots, entries of lists by their number: `create.url`, `rules.0.class`.

use serde_json::{Map, Value};

/// Faults of a configuration: the key, and what is wrong with it. Never the value, which may be a secret.
pub type Faults = Vec<(String, String)>;

/// A table that is being read; what is not taken by the end is an unknown key.
#[derive(Debug)]
pub struct Table {
    path: String,
    keys: Map<String, Value>,
    faults: Faults,
}

impl Table {
    /// The kind's own keys.
    pub fn new(keys: Map<String, Value>) -> Self {
        Self { path: String::new(), keys, faults: Vec::new() }
    }

    /// The whole name of a key of this table.
    pub fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Notes a fault under a key of this table.
    pub fn fault(&mut self, key: &str, fault: impl Into<String>) {
        let name = self.name(key);
        self.faults.push((name, fault.into()));
    }

    /// Notes a value's fault under a key, or gives the value.
    pub fn checked<T>(&mut self, key: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|fault| self.fault(key, fault)).ok()
    }

    /// Takes a value as it is.
    pub fn value(&mut self, key: &str) -> Option<Value> {
        self.keys.remove(key)
    }

    /// Looks at a value that was not taken yet.
    pub fn peek(&self, key: &str) -> Option<&Value> {
        self.keys.get(key)
    }

    /// Whether the key is there and was not taken yet.
    pub fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Takes a text; an empty one is a fault.
    pub fn text(&mut self, key: &str) -> Option<String> {
        match self.keys.remove(key)? {
            Value::String(text) if text.trim().is_empty() => self.fault(key, "is empty"),
            Value::String(text) => return Some(text),
            _ => self.fault(key, "must be a text"),
        }
        None
    }

    /// Takes a text that must be there.
    pub fn required_text(&mut self, key: &str) -> Option<String> {
        if !self.has(key) {
            self.fault(key, "is missing");
        }
        self.text(key)
    }

    /// Takes a whole number, also from a text (`env:` gives texts).
    pub fn number(&mut self, key: &str) -> Option<u64> {
        let number = match self.keys.remove(key)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            self.fault(key, "must be a whole number");
        }
        number
    }

    /// Takes true or false; false where the key is not there.
    pub fn flag(&mut self, key: &str) -> bool {
        match self.keys.remove(key) {
            None => return false,
            Some(Value::Bool(flag)) => return flag,
            Some(_) => self.fault(key, "must be true or false"),
        }
        false
    }

    /// Takes a list; empty where the key is not there.
    pub fn list(&mut self, key: &str) -> Vec<Value> {
        match self.keys.remove(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.fault(key, "must be a list");
                Vec::new()
            }
        }
    }

    /// Takes a table; it is given back with [`Table::close`].
    pub fn table(&mut self, key: &str) -> Option<Self> {
        let value = self.keys.remove(key)?;
        self.open(key, value)
    }

    /// Opens a value as a table under a name.
    pub fn open(&mut self, key: &str, value: Value) -> Option<Self> {
        match value {
            Value::Object(keys) => Some(Self { path: self.name(key), keys, faults: Vec::new() }),
            _ => {
                self.fault(key, "must be a table");
                None
            }
        }
    }

    /// Takes over the faults of a table inside this one, unknown keys among them.
    pub fn close(&mut self, inner: Self) {
        self.faults.extend(inner.finish());
    }

    /// Every fault; a key that nobody took is one.
    pub fn finish(mut self) -> Faults {
        let unknown: Vec<String> = self.keys.keys().cloned().collect();
        for key in unknown {
            self.fault(&key, "is not known here");
        }
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(value: Value) -> Table {
        match value {
            Value::Object(keys) => Table::new(keys),
            other => panic!("{other} is not a table"),
        }
    }

    #[test]
    fn all_faults_are_told_at_once_with_their_keys() {
        let mut outer = table(json!({"a": 1, "n": "x", "t": {"b": "", "c": 1}, "odd": true}));
        assert_eq!((outer.text("a"), outer.required_text("z"), outer.number("n")), (None, None, None));
        let mut inner = outer.table("t").expect("a table");
        assert_eq!(inner.text("b"), None);
        outer.close(inner);
        let keys: Vec<String> = outer.finish().into_iter().map(|(key, fault)| format!("{key} {fault}")).collect();
        assert_eq!(
            keys,
            [
                "a must be a text",
                "z is missing",
                "n must be a whole number",
                "t.b is empty",
                "t.c is not known here",
                "odd is not known here"
            ]
        );
    }

    #[test]
    fn a_number_may_come_as_text() {
        assert_eq!(table(json!({"n": "7"})).number("n"), Some(7));
        assert_eq!(table(json!({"n": 7})).number("n"), Some(7));
    }
}
