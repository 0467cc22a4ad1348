//! A compiled script and its calls.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rhai::{AST, CallFnOptions, Scope};

use super::access::{self, Access, Touches};
use super::asked::{self, Asking};
use super::error::{ErrorKind, ScriptError};
use super::meter::Guard;
use super::{Dynamic, ScriptEngine, stack};
use crate::diagnostic::SourceFile;

/// A function that a script defines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The names of its parameters.
    pub parameters: Vec<String>,
    /// The line where its body begins, from 1.
    pub line: usize,
}

struct Inner {
    engine: ScriptEngine,
    file: SourceFile,
    ast: AST,
    functions: Vec<Function>,
    digest: [u8; 32],
}

/// A compiled script. Cheap to clone; every call is independent of the others.
#[derive(Clone)]
pub struct Script(Arc<Inner>);

impl Script {
    pub(super) fn new(engine: ScriptEngine, file: &SourceFile, ast: AST) -> Self {
        let mut functions: Vec<Function> = ast
            .iter_fn_def()
            .map(|f| Function {
                name: f.name.to_string(),
                parameters: f.params.iter().map(ToString::to_string).collect(),
                line: f.body.start_position().line().unwrap_or(0),
            })
            .collect();
        functions.sort_by_key(|f| f.line);
        let mut hash = blake3::Hasher::new();
        hash.update(&engine.0.library_hash);
        hash.update(blake3::hash(file.name.as_bytes()).as_bytes());
        hash.update(blake3::hash(file.text.as_bytes()).as_bytes());
        let digest = *hash.finalize().as_bytes();
        Self(Arc::new(Inner { engine, file: file.clone(), ast, functions, digest }))
    }

    /// Its source.
    pub fn file(&self) -> &SourceFile {
        &self.0.file
    }

    /// The functions it defines, in file order.
    pub fn functions(&self) -> &[Function] {
        &self.0.functions
    }

    /// The function of a name with so many parameters.
    pub fn function(&self, name: &str, parameters: usize) -> Option<&Function> {
        self.0.functions.iter().find(|f| f.name == name && f.parameters.len() == parameters)
    }

    /// Hash of the name, the text and the libraries it may call.
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest
    }

    /// Every `variable.field…` chain inside one of its functions.
    pub fn accesses(&self, function: &Function) -> Vec<Access> {
        access::accesses(&self.only(function))
    }

    /// Of `properties`, those that the script never holds as values: every mention stands directly in one of
    /// `questions`. Nothing where there are libraries: what they do with a value is not looked at.
    pub fn only_asked(&self, properties: &[&'static str], questions: &[Asking]) -> BTreeSet<&'static str> {
        if !self.0.engine.0.libraries.is_empty() {
            return BTreeSet::new();
        }
        asked::only_asked(&self.0.ast, properties, questions)
    }

    /// What the script and the libraries mention of their data.
    pub fn touches(&self) -> Touches {
        let mut touches = Touches::default();
        touches.add(&self.0.ast);
        touches.merge(&self.0.engine.0.library_touches);
        touches
    }

    fn only(&self, function: &Function) -> AST {
        self.0.ast.clone_functions_only_filtered(|_, _, _, name, parameters| {
            name == function.name && parameters == function.parameters.len()
        })
    }

    /// Calls a function where the stack is deep enough: in place on an adopted thread, else on the pool.
    /// The caller waits; on an async runtime whose threads are not adopted, wrap it in `spawn_blocking`.
    pub fn call(&self, function: &str, arguments: Vec<Dynamic>) -> Result<Dynamic, Box<ScriptError>> {
        self.call_tagged(function, arguments, None)
    }

    /// The same with a tag: something that host functions of this one evaluation may read
    /// (`CallContext::tag`), and the script itself never sees.
    pub fn call_tagged(
        &self,
        function: &str,
        arguments: Vec<Dynamic>,
        tag: Option<Dynamic>,
    ) -> Result<Dynamic, Box<ScriptError>> {
        if stack::is_deep() {
            return self.call_here(function, arguments, tag);
        }
        let (script, name) = (self.clone(), function.to_owned());
        stack::run(move || script.call_here(&name, arguments, tag)).unwrap_or_else(|e| {
            Err(Box::new(ScriptError::new(ErrorKind::Fault, &self.0.file.name, e.to_string())))
        })
    }

    /// One metered call on this thread, panics caught.
    fn call_here(
        &self,
        function: &str,
        mut arguments: Vec<Dynamic>,
        tag: Option<Dynamic>,
    ) -> Result<Dynamic, Box<ScriptError>> {
        let shared = &self.0.engine.0;
        let _guard = Guard::start(&shared.limits);
        let mut options = CallFnOptions::new().eval_ast(false);
        options.tag = tag;
        let mut scope = Scope::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            shared.engine.call_fn_with_options::<Dynamic>(
                options,
                &mut scope,
                &self.0.ast,
                function,
                std::mem::take(&mut arguments),
            )
        }));
        let file = &self.0.file.name;
        match outcome {
            // A script may end before the meter is asked again; what it built is bounded all the same.
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let mut error = ScriptError::from_host(&error, file);
                if let Some(stop) = Guard::stopped() {
                    (error.kind, error.message) = (stop.kind(), stop.message());
                }
                Err(self.placed(error, function))
            }
            Err(_panic) => {
                let error = ScriptError::new(ErrorKind::Panic, file, "a function of the host failed");
                Err(self.placed(error, function))
            }
        }
    }

    /// Adds the source line; a limit error has lost its place, so it gets that of the function called.
    fn placed(&self, mut error: ScriptError, function: &str) -> Box<ScriptError> {
        if error.line == 0
            && let Some(f) = self.0.functions.iter().find(|f| f.name == function)
        {
            error.file = Arc::clone(&self.0.file.name);
            (error.line, error.column) = (f.line, 1);
            error.message = format!("in `{function}`: {}", error.message);
        }
        let libraries = self.0.engine.0.libraries.iter().map(|(name, text)| (name, text));
        let text = std::iter::once((&self.0.file.name, &self.0.file.text))
            .chain(libraries)
            .find(|(name, _)| **name == error.file)
            .map(|(_, text)| text);
        error.source_line = text.and_then(|t| t.lines().nth(error.line.saturating_sub(1))).map(str::to_owned);
        Box::new(error)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("file", &self.0.file.name).finish_non_exhaustive()
    }
}
