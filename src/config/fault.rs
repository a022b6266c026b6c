//! Faults: what is wrong with a configuration, all of it at once, each with its line and key.

use std::fmt;

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the file, at this line, counted from 1.
    Line(usize),
    /// In this environment variable (`LEADONCE__SERVER__LISTEN`).
    Environment(String),
    /// Nowhere: what is wrong is that it is missing from the whole file, or the file itself.
    File,
}

/// One thing that is wrong. The message holds no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// Which key, in full (`destination[0].retry.max_attempts`); empty where the file as a whole is meant.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Fault {
    /// The line, where it stands in the file.
    pub const fn line(&self) -> Option<usize> {
        match self.place {
            Place::Line(line) => Some(line),
            Place::Environment(_) | Place::File => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(line) => write!(f, "line {line}: ")?,
            Place::Environment(name) => write!(f, "environment {name}: ")?,
            Place::File => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with a configuration; never empty. Shown one fault a line, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Sorts the faults into the order in which a person meets them: down the file, then the environment, then what is
    /// missing altogether.
    pub fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| match &fault.place {
            Place::Line(line) => (0, *line),
            Place::Environment(_) => (1, 0),
            Place::File => (2, 0),
        });
        Self(faults)
    }

    /// The faults, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none; never, where [`super::parse`] returned it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
