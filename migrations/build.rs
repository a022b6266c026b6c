//! Makes a new migration folder rebuild the crate: `embed_migrations!` does not notice one by itself.
fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
