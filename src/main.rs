//! The `docent` program.

fn main() {}
