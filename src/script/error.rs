//! What went wrong in a script, where, and by which calls.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{Dynamic, HostError, value};
use crate::diagnostic::Diagnostic;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The script's own `throw`.
    Thrown,
    /// A mistake of the script: a type that does not fit, a missing field, a division by zero.
    Fault,
    /// A ceiling of the sandbox: operations, memory, sizes, depth.
    Limit,
    /// The time of one evaluation was used up: on a quieter machine it might have ended.
    Deadline,
    /// A host function panicked.
    Panic,
}

/// One call on the way to the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function that was called.
    pub function: String,
    /// The file of the call.
    pub file: Arc<str>,
    /// The line of the call, from 1; 0 where it is not known.
    pub line: usize,
}

/// A failed evaluation, at its innermost place.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What happened, for the operator.
    pub message: String,
    /// The file.
    pub file: Arc<str>,
    /// Line from 1; 0 where it is not known.
    pub line: usize,
    /// Column from 1; 0 where it is not known.
    pub column: usize,
    /// The line itself.
    pub source_line: Option<String>,
    /// The calls that led there, outermost first.
    pub chain: Vec<Frame>,
    /// The value of a `throw`, where it is JSON.
    pub thrown: Option<Value>,
}

impl ScriptError {
    /// An error without a place.
    pub fn new(kind: ErrorKind, file: &Arc<str>, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            file: Arc::clone(file),
            line: 0,
            column: 0,
            source_line: None,
            chain: Vec::new(),
            thrown: None,
        }
    }

    /// The same as an error of `docent check`.
    pub fn diagnostic(&self, code: &'static str) -> Diagnostic {
        let mut diagnostic = Diagnostic::error(code, &*self.file, &*self.message);
        (diagnostic.line, diagnostic.column) = (self.line, self.column);
        diagnostic.source_line.clone_from(&self.source_line);
        if !self.chain.is_empty() {
            let calls: Vec<String> = self.chain.iter().map(ToString::to_string).collect();
            diagnostic = diagnostic.help(format!("called through {}", calls.join(", then ")));
        }
        diagnostic
    }

    /// Descends to the innermost error. `main` is the script's own file; functions of a library name theirs.
    pub(super) fn from_host(error: &HostError, main: &Arc<str>) -> Self {
        let (mut inner, mut file, mut chain) = (error, Arc::clone(main), Vec::new());
        while let HostError::ErrorInFunctionCall(function, source, deeper, position) = inner {
            chain.push(Frame {
                function: function.clone(),
                file: Arc::clone(&file),
                line: position.line().unwrap_or(0),
            });
            if !source.is_empty() {
                file = Arc::from(source.as_str());
            }
            inner = deeper;
        }
        let position = inner.position();
        let (kind, message, thrown) = describe(inner);
        Self {
            kind,
            message,
            line: position.line().unwrap_or(0),
            column: position.position().unwrap_or(0),
            file,
            source_line: None,
            chain,
            thrown,
        }
    }
}

fn describe(error: &HostError) -> (ErrorKind, String, Option<Value>) {
    let limit = |text: &str| (ErrorKind::Limit, text.to_owned(), None);
    match error {
        HostError::ErrorRuntime(thrown, _) => {
            if let Some(fault) = thrown.read_lock::<HostFault>() {
                return (ErrorKind::Fault, fault.0.to_string(), None);
            }
            let text = if thrown.is_string() { thrown.to_string() } else { format!("thrown: {thrown}") };
            (ErrorKind::Thrown, text, value::from_dynamic(thrown).ok())
        }
        HostError::ErrorTerminated(..) => limit("it was stopped"),
        HostError::ErrorTooManyOperations(_) => limit("it took more operations than a script may"),
        HostError::ErrorTooManyVariables(_) => limit("it has more variables at once than a script may"),
        HostError::ErrorStackOverflow(_) => limit("its functions call each other deeper than a script may"),
        HostError::ErrorDataTooLarge(what, _) => {
            limit(&format!("{what} is over the limit; give large output to the host piece by piece"))
        }
        HostError::ErrorFunctionNotFound(name, _) => {
            // Rhai writes `name (type, type)`.
            let (name, types) = name.split_once(" (").unwrap_or((name, ")"));
            (ErrorKind::Fault, format!("`{name}` cannot be called with ({types}"), None)
        }
        HostError::ErrorPropertyNotFound(name, _) => {
            let text = format!("there is no field `{name}`; test for it with `\"{name}\" in …`");
            (ErrorKind::Fault, text, None)
        }
        HostError::ErrorMismatchDataType(wanted, found, _) if !wanted.is_empty() => {
            (ErrorKind::Fault, format!("expected {wanted}, found {found}"), None)
        }
        other => {
            let mut bare = error_without_place(other);
            if let Some(first) = bare.get(..1) {
                bare = first.to_lowercase() + bare.get(1..).unwrap_or_default();
            }
            (ErrorKind::Fault, bare, None)
        }
    }
}

/// Rhai appends ` (line 1, position 2)`; the place stands in its own fields here.
fn error_without_place(error: &HostError) -> String {
    let text = error.to_string();
    text.rsplit_once(" (line ").map_or(text.clone(), |(head, _)| head.to_owned())
}

/// The value inside an error that a host function raised, told apart from a script's `throw`.
#[derive(Debug, Clone)]
struct HostFault(Arc<str>);

impl fmt::Display for HostFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error of a host function; the place is that of the call.
pub fn fault(message: impl Into<Arc<str>>) -> Box<HostError> {
    Box::new(HostError::ErrorRuntime(Dynamic::from(HostFault(message.into())), rhai::Position::NONE))
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` at {}:{}", self.function, self.file, self.line)
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}:{}: {}", self.file, self.line, self.column.max(1), self.message)
        } else {
            write!(f, "{}: {}", self.file, self.message)
        }
    }
}

impl std::error::Error for ScriptError {}
