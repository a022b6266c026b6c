//! The walls between the rooms: who may import whom, and which room alone names which third-party crate.
//!
//! A room is a folder (or file) of `src/`. The tables below are the rule; changing one is a decision, not a fix. Paths are
//! found in `use` trees, in expressions and types, in attributes, and among the tokens of macros, where `syn` sees no paths.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Each room and the rooms it may import.
const ROOMS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("operation", &["clock"]),
    ("intake", &["operation", "clock"]),
    ("crm", &["operation", "clock"]),
    ("store", &["operation", "clock"]),
    ("telemetry", &["operation", "clock"]),
    ("delivery", &["operation", "crm", "intake", "store", "telemetry", "clock"]),
    ("http", &["operation", "intake", "store", "telemetry", "clock"]),
    ("sandbox", &["clock"]),
    // Of these only their `Settings` and the types in them; see `SETTINGS_ONLY`.
    ("config", &["operation", "crm", "intake", "store", "telemetry", "delivery", "http", "clock"]),
    ("app", &["clock", "operation", "intake", "crm", "store", "telemetry", "delivery", "http", "sandbox", "config"]),
    ("main", &["app", "config"]),
];

/// Crates (and modules of the standard library) that only these rooms, or these files, may name.
const OWNED: &[(&str, &[&str])] = &[
    ("diesel", &["store"]),
    ("diesel_migrations", &["store"]),
    ("r2d2", &["store"]),
    ("libsqlite3_sys", &["store"]),
    ("pq_sys", &["store"]),
    ("reqwest", &["crm", "app"]),
    ("actix_web", &["http", "sandbox", "app"]),
    ("backoff", &["delivery/retry.rs"]),
    ("prometheus", &["telemetry"]),
    ("tracing_subscriber", &["telemetry"]),
    ("rand", &["clock"]),
    ("rustix", &["clock", "app"]),
    ("phonenumber", &["intake"]),
    ("hmac", &["intake", "store", "app"]),
    ("multer", &["intake"]),
    ("clap", &["app", "config", "main"]),
    ("toml_edit", &["config"]),
    ("minijinja", &["crm", "http"]),
    ("argon2", &["http/password.rs"]),
    ("csv", &["http/admin/export.rs"]),
    ("std::env", &["config"]),
];

/// What a room that composes the others' settings must not reach: the parts that do the work.
const SETTINGS_ONLY: &[(&str, &[&str])] = &[("config", &["Store", "Writer", "Transport", "Metrics"])];

/// Every path that a file names, from the crate's root (`crate::store::Store`) or from another crate's (`diesel::sql_query`).
#[derive(Default)]
struct Paths {
    /// Modules above the present one, from the root: `["crm", "http"]` in `src/crm/http.rs`.
    module: Vec<String>,
    found: BTreeSet<String>,
}

impl Paths {
    fn of(file: &Path, code: &str) -> Result<BTreeSet<String>, String> {
        let parsed = syn::parse_file(code).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut module: Vec<String> = file.with_extension("").iter().map(|p| p.to_string_lossy().into()).collect();
        if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
            module.pop();
        }
        let mut paths = Self { module, found: BTreeSet::new() };
        paths.visit_file(&parsed);
        Ok(paths.found)
    }

    /// Notes a path, `self` and `super` resolved.
    fn note(&mut self, segments: &[String]) {
        let (mut at, mut rest) = (self.module.clone(), segments);
        match segments.first().map(String::as_str) {
            Some("crate") => {
                at.clear();
                rest = &segments[1..];
            }
            Some("self" | "super") => {
                while let Some(first) = rest.first().filter(|s| matches!(s.as_str(), "self" | "super")) {
                    if first == "super" {
                        at.pop();
                    }
                    rest = &rest[1..];
                }
            }
            Some(_) => {
                self.found.insert(segments.join("::"));
                return;
            }
            None => return,
        }
        let path = std::iter::once("crate").chain(at.iter().chain(rest).map(String::as_str));
        self.found.insert(path.collect::<Vec<_>>().join("::"));
    }

    fn tree(&mut self, tree: &syn::UseTree, above: &[String]) {
        let with = |name: &syn::Ident| [above, &[bare(name)]].concat();
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, above)),
            syn::UseTree::Name(name) => self.note(&with(&name.ident)),
            syn::UseTree::Rename(rename) => self.note(&with(&rename.ident)),
            syn::UseTree::Glob(_) => self.note(above),
        }
    }

    /// Paths among the tokens of a macro or an attribute: names joined by `::`.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.several(&path);
                        path.clear();
                    }
                    path.push(bare(&name));
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    let joint = punct.spacing() == Spacing::Joint;
                    if colons > 2 || (colons == 1 && !joint) {
                        self.several(&path);
                        path.clear();
                        colons = 0;
                    }
                }
                TokenTree::Group(group) => {
                    self.several(&path);
                    // `use a::{b, c}` inside a macro: each member continues the path.
                    let members = if colons == 2 { std::mem::take(&mut path) } else { Vec::new() };
                    path.clear();
                    colons = 0;
                    if members.is_empty() {
                        self.tokens(group.stream());
                    } else {
                        self.members(&members, group.stream());
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.several(&path);
                    path.clear();
                    colons = 0;
                }
            }
        }
        self.several(&path);
    }

    fn members(&mut self, above: &[String], tokens: TokenStream) {
        let mut first = true;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if first => {
                    self.note(&[above, &[bare(&name)]].concat());
                    first = false;
                }
                TokenTree::Punct(punct) if punct.as_char() == ',' => first = true,
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) | TokenTree::Group(_) => {}
            }
        }
    }

    /// One name alone is no path: it may be a variable.
    fn several(&mut self, path: &[String]) {
        if path.len() > 1 {
            self.note(path);
        }
    }
}

/// The name without `r#`.
fn bare(name: &syn::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map_or(name.clone(), str::to_owned)
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree(&item.tree, &[]);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        self.note(&[bare(&item.ident)]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.several(&path.segments.iter().map(|segment| bare(&segment.ident)).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.visit_path(&item.path);
        self.tokens(item.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.visit_path(&list.path);
        self.tokens(list.tokens.clone());
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(bare(&item.ident));
        visit::visit_item_mod(self, item);
        self.module.pop();
    }
}

/// What is wrong with one file, given by its path under `src/`.
fn faults_of(file: &Path, code: &str) -> Vec<String> {
    let name = file.display();
    let first = file.iter().next().map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    let room = first.trim_end_matches(".rs");
    // The table of contents declares the rooms; it may name all of them.
    if room == "lib" {
        return Vec::new();
    }
    let Some((_, may)) = ROOMS.iter().find(|(known, _)| *known == room) else {
        return vec![format!("{name}: the room {room} has no rule")];
    };
    let mut faults = Vec::new();
    if (file.iter().count() == 1 || file.ends_with("mod.rs") && file.iter().count() == 2) && !code.starts_with("//!") {
        faults.push(format!("{name}: begins without //! (what the room promises and must not know)"));
    }
    let paths = match Paths::of(file, code) {
        Ok(paths) => paths,
        Err(error) => return vec![error],
    };
    for path in &paths {
        if path == "crate" {
            faults.push(format!("{name}: names the whole crate; name the room"));
        }
        // The binary sees the library under the package's name.
        let inside = path.strip_prefix("crate::").or_else(|| path.strip_prefix("leadonce::"));
        if let Some(inside) = inside {
            let other = inside.split("::").next().unwrap_or_default();
            if other != room && ROOMS.iter().any(|(known, _)| *known == other) && !may.contains(&other) {
                faults.push(format!("{name}: {room} may not import {other} ({path})"));
            }
            let last = inside.split("::").nth(1).unwrap_or_default();
            if SETTINGS_ONLY.iter().any(|(who, banned)| *who == room && other != room && banned.contains(&last)) {
                faults.push(format!("{name}: {room} takes settings from {other}, not {last} ({path})"));
            }
            continue;
        }
        for (owned, owners) in OWNED {
            let named = path == owned || path.strip_prefix(owned).is_some_and(|rest| rest.starts_with("::"));
            let own = owners.iter().any(|owner| *owner == room || Path::new(owner) == file);
            if named && !own {
                faults.push(format!("{name}: {room} may not name {owned} ({path})"));
            }
        }
    }
    faults
}

/// Every `.rs` file under a folder of the package, with its path below that folder.
fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut folders, mut found) = (vec![top.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = fs::read_to_string(&path).expect("text");
                found.push((path.strip_prefix(&top).expect("below").to_owned(), code));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_room_keeps_to_its_walls() {
    let faults: Vec<String> = files("src").iter().flat_map(|(file, code)| faults_of(file, code)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_room_of_the_table_exists() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (room, may) in ROOMS {
        assert!(src.join(room).is_dir() || src.join(format!("{room}.rs")).is_file(), "there is no room {room}");
        assert!(may.iter().all(|other| ROOMS.iter().any(|(known, _)| known == other)), "{room} may import a ghost");
    }
}

/// Macros that stand for work not done, and tests that do not run.
fn unfinished(code: &str) -> Vec<String> {
    struct Finds(Vec<String>);

    impl Finds {
        fn tokens(&mut self, tokens: TokenStream) {
            let mut before = String::new();
            for token in tokens {
                match token {
                    TokenTree::Group(group) => {
                        let mut inner = group.stream().into_iter();
                        if before == "#" && matches!(inner.next(), Some(TokenTree::Ident(name)) if name == "ignore") {
                            self.0.push("#[ignore]".into());
                        }
                        self.tokens(group.stream());
                        before.clear();
                    }
                    TokenTree::Punct(punct) => {
                        if punct.as_char() == '!' && matches!(before.as_str(), "todo" | "unimplemented") {
                            self.0.push(format!("{before}!"));
                        }
                        before = punct.to_string();
                    }
                    TokenTree::Ident(name) => before = name.to_string(),
                    TokenTree::Literal(_) => before.clear(),
                }
            }
        }
    }

    let mut finds = Finds(Vec::new());
    match code.parse() {
        Ok(tokens) => finds.tokens(tokens),
        Err(error) => finds.0.push(error.to_string()),
    }
    finds.0
}

#[test]
fn nothing_is_left_undone_and_no_test_is_ignored() {
    let all = ["src", "tests"].into_iter().flat_map(|folder| files(folder).into_iter().map(move |f| (folder, f)));
    let found: Vec<String> = all
        .flat_map(|(folder, (file, code))| {
            let name = format!("{folder}/{}", file.display());
            unfinished(&code).into_iter().map(move |what| format!("{name}: {what}"))
        })
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

// --- the tests of the tests: planted violations are found, and nothing else is ---

#[test]
fn planted_violations_are_found() {
    for (file, code, fault) in [
        ("crm/odoo.rs", "use crate::store::Store;", "crm may not import store"),
        ("crm/odoo.rs", "use crate::{clock::At, http};", "crm may not import http"),
        ("crm/odoo.rs", "use super::super::store::Store as Kept;", "crm may not import store"),
        ("crm/mod.rs", "//! x\nuse super::delivery::*;", "crm may not import delivery"),
        ("crm/mod.rs", "//! x\nuse super::*;", "the whole crate"),
        ("crm/odoo.rs", "use crate as all;", "the whole crate"),
        ("crm/odoo.rs", "mod inner { use super::super::super::http::Page; }", "crm may not import http"),
        ("crm/odoo.rs", "fn f() { let _ = crate::delivery::retry::decide(); }", "crm may not import delivery"),
        ("crm/odoo.rs", "fn f(_: &crate::store::Store) {}", "crm may not import store"),
        ("crm/odoo.rs", "impl crate::http::Page for X {}", "crm may not import http"),
        ("crm/odoo.rs", "fn f() { println!(\"{}\", crate::http::name()); }", "crm may not import http"),
        ("crm/odoo.rs", "fn f() { vec![(1, super::super::store::name())]; }", "crm may not import store"),
        ("crm/odoo.rs", "some! { use crate::{clock::At, store::Store}; }", "crm may not import store"),
        ("crm/odoo.rs", "#[derive(diesel::Queryable)] struct X;", "crm may not name diesel"),
        (
            "crm/odoo.rs",
            "#[serde(with = \"x\", default)] #[some(crate::store::x)] struct X;",
            "crm may not import store",
        ),
        ("crm/odoo.rs", "fn f() { diesel::sql_query(\"select 1\"); }", "crm may not name diesel"),
        ("crm/odoo.rs", "fn f() { ::diesel::sql_query(\"select 1\"); }", "crm may not name diesel"),
        ("crm/odoo.rs", "extern crate diesel;", "crm may not name diesel"),
        ("crm/odoo.rs", "use diesel as d;", "crm may not name diesel"),
        ("intake/form.rs", "use reqwest::Client;", "intake may not name reqwest"),
        ("store/mod.rs", "//! x\nuse actix_web::web;", "store may not name actix_web"),
        ("delivery/engine.rs", "use backoff::ExponentialBackoff;", "delivery may not name backoff"),
        ("http/mod.rs", "//! x\nfn f() { std::env::var(\"X\"); }", "http may not name std::env"),
        ("http/mod.rs", "//! x\nuse std::{env, io};", "http may not name std::env"),
        ("sandbox/mod.rs", "//! x\nuse crate::operation::CrmId;", "sandbox may not import operation"),
        ("operation/r.rs", "use crate::r#store::X;", "operation may not import store"),
        ("config/mod.rs", "//! x\nuse crate::store::Store;", "config takes settings from store, not Store"),
        ("main.rs", "//! x\nuse leadonce::store::Store;", "main may not import store"),
        ("policy/mod.rs", "//! x", "policy has no rule"),
        ("policy.rs", "//! x", "policy has no rule"),
        ("crm/mod.rs", "use std::fmt;", "begins without //!"),
        ("clock.rs", "use std::fmt;", "begins without //!"),
        ("crm/odoo.rs", "fn f( {", "crm/odoo.rs: "),
    ] {
        let faults = faults_of(Path::new(file), code);
        assert!(faults.iter().any(|found| found.contains(fault)), "{file}: {code}\nwanted {fault:?}, got {faults:?}");
    }
}

#[test]
fn honest_code_is_left_alone() {
    for (file, code) in [
        ("crm/odoo.rs", "use std::time::Duration;\nuse super::Order;\nuse crate::operation::{CrmId, CrmKey};"),
        ("crm/http.rs", "use super::http::x; use self::store::Y; mod store { use super::super::Order; }"),
        ("crm/odoo.rs", "fn f() { let store = 1; println!(\"crate::store {store}\", store); }"),
        ("crm/transport.rs", "use reqwest::Client;"),
        ("store/conn.rs", "use diesel::prelude::*;\n#[derive(diesel::Queryable)] struct X;"),
        ("delivery/retry.rs", "use backoff::ExponentialBackoff;"),
        ("app/mod.rs", "//! x\nuse crate::{config, delivery, http, sandbox, store};"),
        ("config/mod.rs", "//! x\nuse std::env;\nuse crate::store::Settings;"),
        ("main.rs", "//! x\nfn main() { leadonce::app::run(); }"),
        ("operation/mod.rs", "//! x\nmod hash;\npub use hash::PayloadHash;"),
        ("http/page.rs", "fn f() { env!(\"CARGO_PKG_VERSION\"); }"),
    ] {
        let faults = faults_of(Path::new(file), code);
        assert!(faults.is_empty(), "{file}: {code}\n{faults:?}");
    }
}

#[test]
fn planted_unfinished_work_is_found() {
    let (ignored, undone) = (format!("#[{}]", "ignore"), format!("{}!()", "todo"));
    for code in [
        format!("#[test] {ignored} fn f() {{}}"),
        format!("#[test] #[{} = \"slow\"] fn f() {{}}", "ignore"),
        format!("fn f() {{ {undone} }}"),
        format!("some! {{ fn f() {{ {undone} }} }}"),
        format!("fn f() {{ {}!(\"later\") }}", "unimplemented"),
    ] {
        assert_eq!(unfinished(&code).len(), 1, "{code}");
    }
    assert!(unfinished("// todo!() #[ignore]\nfn f() { let todo = !ignore(\"todo!\"); }").is_empty());
}
