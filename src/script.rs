//! Scripts: Rhai in a sandbox, the only module that knows it.
//!
//! A script has no IO, no time, no globals, and bounds on operations, depth, sizes, memory and time; every
//! call has a fresh scope, runs where the stack is deep enough, and a panic in it is an error like any other.
//! Nothing here knows what a policy or a projection is: they bring their host functions through
//! [`EngineBuilder`] and name Rhai's types through the re-exports below.

mod access;
mod asked;
mod compile;
mod dialect;
mod engine;
mod error;
mod meter;
pub mod stack;
mod syntax;
#[cfg(test)]
mod tests;
pub mod value;

pub use access::{Access, Step, Touches};
pub use asked::Asking;
pub use compile::{Function, Script};
pub use dialect::{Dialect, Limits};
pub use engine::{EngineBuilder, HostItem, HostKind, ScriptEngine};
pub use error::{ErrorKind, Frame, ScriptError, fault};
pub use meter::{checkpoint, waiting};

/// What a host function returns when it may fail: build the error with [`fault`].
pub type HostResult<T> = Result<T, Box<HostError>>;
/// Rhai's error, as host functions see it.
pub type HostError = rhai::EvalAltResult;
/// Any value of a script.
pub type Dynamic = rhai::Dynamic;
/// An object of a script; its keys are sorted.
pub type Map = rhai::Map;
/// A list of a script.
pub type Array = rhai::Array;
/// A text of a script.
pub type Text = rhai::ImmutableString;
/// Where a host function was called from; a host function may take it as its first parameter.
pub type CallContext<'a> = rhai::NativeCallContext<'a>;
/// A function value of a script: an anonymous function or `Fn("name")`.
pub type FunctionValue = rhai::FnPtr;

/// The file and line that a host function was called from; the line is 0 where it is not known.
pub fn call_site(context: &CallContext<'_>) -> (Option<String>, usize) {
    (context.call_source().map(str::to_owned), context.call_position().line().unwrap_or(0))
}
