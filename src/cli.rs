//! The commands of the docent program.
