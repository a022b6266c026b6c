//! The command `leadonce`.
fn main() {}
