//! `docs/CASES.md` tells the truth: what it names exists, and no test of a case is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file under the folder.
fn sources(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(fs::read_to_string(path).expect("a text"));
        }
    }
}

/// The names of all tests: functions under an attribute that ends in `test`, and the stories that a macro plays on both stores.
fn tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    files.iter().flat_map(|text| tests_of(text)).collect()
}

fn tests_of(text: &str) -> Vec<String> {
    let name = |line: &str| -> Option<String> {
        let (_, rest) = line.split_once("fn ")?;
        Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
    };
    let (mut names, mut awaited) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        let attribute = line.strip_prefix("#[").and_then(|rest| rest.split(['(', ']']).next());
        awaited |= attribute.is_some_and(|path| path.rsplit("::").next() == Some("test")) || line == "both! {";
        names.extend(line.strip_prefix("on_both!(").and_then(|rest| rest.split(',').next()).map(str::to_owned));
        if awaited && let Some(name) = name(line) {
            names.push(name);
            awaited = false;
        }
    }
    names
}

/// The cases of the table, with what proves each.
fn table() -> BTreeMap<String, Vec<String>> {
    let page = fs::read_to_string(root().join("docs/CASES.md")).expect("the page");
    let mut cases = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| C")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, proof] = cells[..] else { panic!("three columns are expected: {line}") };
        let named = proof.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(cases.insert(number.to_owned(), named).is_none(), "{number} stands twice");
    }
    cases
}

/// The numbers of the cases that a test's name begins with (`c17_c30_…`).
fn numbers(test: &str) -> impl Iterator<Item = String> {
    let digits = |part: &&str| part.strip_prefix('c').is_some_and(|n| n.len() == 2 && n.parse::<u8>().is_ok());
    test.split('_').take_while(digits).map(str::to_uppercase)
}

#[test]
fn what_the_table_names_exists() {
    let tests = tests();
    for (number, named) in table() {
        for name in named {
            if name.contains('/') {
                let path = root().join("fixtures").join(&name);
                assert!(path.is_dir() || path.with_extension("json").is_file(), "{number}: no fixture {name}");
            } else {
                assert!(tests.contains(&name), "{number}: no test {name}");
            }
        }
    }
}

#[test]
fn every_test_of_a_case_stands_in_its_row() {
    let table = table();
    for test in tests() {
        for number in numbers(&test) {
            let row =
                table.get(&number).unwrap_or_else(|| panic!("docs/CASES.md has no {number}, which {test} proves"));
            assert!(row.contains(&test), "docs/CASES.md does not name {test} in the row of {number}");
        }
    }
}

#[test]
fn tests_are_found_in_all_their_forms() {
    let text = "#[test]\nfn a() {}\nfn helper() {}\n#[tokio::test(flavor = \"x\")]\n#[expect(y)]\nasync fn b() {}\n\
                both! {\n    /// Why.\n    fn c(stage) {\n    }\n}\non_both!(d, super::story);\n";
    assert_eq!(tests_of(text), ["a", "b", "c", "d"]);
    assert_eq!(numbers("c17_c30_what_it_says").collect::<Vec<_>>(), ["C17", "C30"]);
    assert_eq!(numbers("c4_cut_in_two").count() + numbers("cases").count(), 0);
}
