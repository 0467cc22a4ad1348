//! Reading a script without running it: unknown functions, fields it reads, properties it touches.

use std::collections::BTreeSet;

use rhai::{AST, ASTFlags, ASTNode, BinaryExpr, Engine, Expr, FnCallExpr, Position, Stmt};

use super::engine::Callable;
use super::syntax;
use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile, did_you_mean};
use crate::limits::SCRIPT_BYTES_MAX;

/// One step from a variable into its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// `.name`
    Property(String),
    /// `["name"]`, or `None` where the index is computed.
    Index(Option<String>),
    /// `.name(…)`
    Method(String),
}

/// A chain `variable.a["b"].c(…)` as it stands in a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The variable at its root; empty where the root is another expression.
    pub root: String,
    /// The steps, outermost first.
    pub steps: Vec<Step>,
    /// Line from 1.
    pub line: usize,
    /// Column from 1.
    pub column: usize,
}

/// What a script mentions of its data, for building only that much of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touches {
    /// Every property name (`.name`).
    pub properties: BTreeSet<String>,
    /// Every text constant: it may be used as an index.
    pub texts: BTreeSet<String>,
    /// Every function or method called by name.
    pub calls: BTreeSet<String>,
    /// Where an index is computed (`x[expr]` with neither a text nor a whole number), from 1.
    pub computed: Vec<(usize, usize)>,
}

impl Touches {
    /// Adds what an AST mentions.
    pub(super) fn add(&mut self, ast: &AST) {
        ast.walk(&mut |path: &[ASTNode<'_>]| {
            match path.last() {
                Some(ASTNode::Expr(expr)) => self.expression(expr),
                Some(ASTNode::Stmt(Stmt::FnCall(call, _))) => {
                    self.calls.insert(full_name(call));
                }
                _ => {}
            }
            true
        });
    }

    /// Adds what another script (a library) mentions.
    pub fn merge(&mut self, other: &Self) {
        self.properties.extend(other.properties.iter().cloned());
        self.texts.extend(other.texts.iter().cloned());
        self.calls.extend(other.calls.iter().cloned());
        self.computed.extend(&other.computed);
    }

    fn expression(&mut self, expr: &Expr) {
        match expr {
            Expr::Property(names, _) => {
                self.properties.insert(names.2.to_string());
            }
            Expr::StringConstant(text, _) => {
                self.texts.insert(text.to_string());
            }
            Expr::FnCall(call, _) | Expr::MethodCall(call, _) => {
                self.calls.insert(full_name(call));
            }
            Expr::Index(binary, flags, _) => {
                let index = first_of(&binary.rhs, *flags);
                if !matches!(index, Expr::StringConstant(..) | Expr::IntegerConstant(..)) {
                    let at = index.position();
                    self.computed.push((at.line().unwrap_or(0), at.position().unwrap_or(0)));
                }
            }
            _ => {}
        }
    }
}

fn full_name(call: &FnCallExpr) -> String {
    if call.namespace.is_empty() {
        call.name.to_string()
    } else {
        format!("{}::{}", call.namespace, call.name)
    }
}

/// The part of a chain's right side that belongs to this link.
fn first_of(rhs: &Expr, flags: ASTFlags) -> &Expr {
    match rhs {
        Expr::Dot(next, ..) | Expr::Index(next, ..) if !flags.contains(ASTFlags::BREAK) => &next.lhs,
        other => other,
    }
}

/// Every chain in an AST (whole chains only, not their tails).
pub(super) fn accesses(ast: &AST) -> Vec<Access> {
    let mut found = Vec::new();
    ast.walk(&mut |path: &[ASTNode<'_>]| {
        if let Some(ASTNode::Expr(expr @ (Expr::Dot(..) | Expr::Index(..)))) = path.last()
            && !is_tail(path.iter().rev().nth(1), expr)
        {
            found.push(chain(expr));
        }
        true
    });
    found
}

/// Whether `expr` only continues the chain of its parent.
pub(super) fn is_tail(parent: Option<&ASTNode<'_>>, expr: &Expr) -> bool {
    match parent {
        Some(ASTNode::Expr(Expr::Dot(b, flags, _) | Expr::Index(b, flags, _))) => {
            std::ptr::eq(&raw const b.rhs, expr) && !flags.contains(ASTFlags::BREAK)
        }
        _ => false,
    }
}

/// The chain that begins at an expression.
pub(super) fn chain(expr: &Expr) -> Access {
    let mut access = Access { root: String::new(), steps: Vec::new(), line: 0, column: 0 };
    let mut next: Option<(&Expr, &BinaryExpr, ASTFlags)> = None;
    if let Expr::Dot(binary, flags, _) | Expr::Index(binary, flags, _) = expr {
        if let Expr::Variable(name, ..) = &binary.lhs {
            access.root = name.1.to_string();
        }
        next = Some((expr, binary, *flags));
    }
    while let Some((link, binary, flags)) = next.take() {
        let item = first_of(&binary.rhs, flags);
        if access.line == 0 {
            let at = item.start_position();
            (access.line, access.column) = (at.line().unwrap_or(0), at.position().unwrap_or(0));
        }
        access.steps.push(match (link, item) {
            (Expr::Index(..), Expr::StringConstant(text, _)) => Step::Index(Some(text.to_string())),
            (Expr::Index(..), _) => Step::Index(None),
            (_, Expr::Property(names, _)) => Step::Property(names.2.to_string()),
            (_, Expr::MethodCall(call, _) | Expr::FnCall(call, _)) => Step::Method(call.name.to_string()),
            _ => Step::Index(None),
        });
        if !flags.contains(ASTFlags::BREAK)
            && let rest @ (Expr::Dot(deeper, flags, _) | Expr::Index(deeper, flags, _)) = &binary.rhs
        {
            next = Some((rest, deeper, *flags));
        }
    }
    access
}

/// Parses and checks a script: syntax, code outside functions, and every function it calls.
pub(super) fn parse(
    engine: &Engine,
    callable: &Callable,
    file: &SourceFile,
    diagnostics: &mut Diagnostics,
) -> Option<AST> {
    if file.text.len() > SCRIPT_BYTES_MAX {
        let message = format!("{} bytes are more than the {SCRIPT_BYTES_MAX} of one script", file.text.len());
        let help = "split it; functions that several scripts use belong into scripts/lib";
        diagnostics.push(Diagnostic::error("script-too-long", &*file.name, message).help(help));
        return None;
    }
    let mut ast = match syntax::parse(engine, &file.text) {
        Ok(ast) => ast,
        Err(mistakes) => {
            for error in mistakes {
                let message = lower_first(&error.err_type().to_string());
                let mistake = Diagnostic::error("script-syntax", &*file.name, message);
                diagnostics.push(place(mistake, file, error.position()));
            }
            return None;
        }
    };
    ast.set_source(&*file.name);
    let before = diagnostics.0.len();
    for statement in ast.statements().iter().filter(|s| !s.is_noop()) {
        let diagnostic =
            Diagnostic::error("script-top-level", &*file.name, "code outside a function never runs").help(
                "move it into a function; what several functions share, return from a function of its own",
            );
        diagnostics.push(place(diagnostic, file, statement.position()));
    }
    unknown_functions(&ast, callable, file, diagnostics);
    kept_closures(&ast, file, diagnostics);
    (diagnostics.0.len() == before).then_some(ast)
}

/// Native functions that call a closure and let it go.
const ITERATING: [&str; 20] = [
    "map",
    "filter",
    "find",
    "find_map",
    "for_each",
    "some",
    "all",
    "index_of",
    "reduce",
    "reduce_rev",
    "retain",
    "drain",
    "extract",
    "dedup",
    "sort",
    "sort_by",
    "order",
    "order_by",
    "split",
    "any",
];

/// A closure that captures is refused where it could be kept: each could hold the last, and a chain of
/// thousands, built without a copy, overflows the stack when it is dropped (or holds itself and is never
/// freed). Written as an argument of an iterating function it lives only as long as that call.
fn kept_closures(ast: &AST, file: &SourceFile, diagnostics: &mut Diagnostics) {
    let own: BTreeSet<&str> = ast.iter_functions().map(|f| f.name).collect();
    ast.walk(&mut |path: &[ASTNode<'_>]| {
        let Some(ASTNode::Stmt(Stmt::Share(captured))) = path.last() else { return true };
        let passed_on = matches!(path.iter().rev().nth(2),
            Some(ASTNode::Expr(Expr::MethodCall(call, _) | Expr::FnCall(call, _)) | ASTNode::Stmt(Stmt::FnCall(call, _)))
                if ITERATING.contains(&call.name.as_str()) && !own.contains(call.name.as_str()));
        if !passed_on {
            let (name, at) = captured.first().map_or(("", Position::NONE), |(v, _)| (v.as_str(), v.pos));
            let message = format!("an anonymous function that uses the outer variable `{name}` is kept here");
            let help = "write it directly as the argument of `map`, `filter`, `find`, `reduce`, … , \
                        or pass what it needs as a parameter";
            diagnostics.push(place(Diagnostic::error("closure-kept", &*file.name, message).help(help), file, at));
        }
        true
    });
}

fn place(diagnostic: Diagnostic, file: &SourceFile, at: Position) -> Diagnostic {
    match at.line() {
        Some(line) => diagnostic.at(&file.text, line, at.position().unwrap_or(1)),
        None => diagnostic,
    }
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |c| c.to_lowercase().chain(letters).collect())
}

fn unknown_functions(ast: &AST, callable: &Callable, file: &SourceFile, diagnostics: &mut Diagnostics) {
    let own: Vec<(&str, usize)> = ast.iter_functions().map(|f| (f.name, f.params.len())).collect();
    ast.walk(&mut |path: &[ASTNode<'_>]| {
        let (call, at, receiver) = match path.last() {
            Some(ASTNode::Expr(Expr::FnCall(call, at)) | ASTNode::Stmt(Stmt::FnCall(call, at))) => {
                (call, *at, 0)
            }
            Some(ASTNode::Expr(Expr::MethodCall(call, at))) => (call, *at, 1),
            _ => return true,
        };
        let name = full_name(call);
        let given = call.args.len();
        // What captures is built by the parser as a call of `curry`, which scripts cannot write themselves.
        if call.op_token.is_some()
            || name == "curry"
            || own.iter().any(|(n, arity)| *n == name && *arity == given)
        {
            return true;
        }
        let arities = callable.arities.get(&name);
        if arities.is_some_and(|a| a.contains(&(given + receiver))) {
            return true;
        }
        let known = own
            .iter()
            .filter(|(n, _)| *n == name)
            .map(|(_, a)| *a)
            .chain(arities.into_iter().flatten().map(|a| a.saturating_sub(receiver)));
        let takes: BTreeSet<usize> = known.collect();
        let diagnostic = if takes.is_empty() {
            let first = callable.own.iter().map(String::as_str).chain(own.iter().map(|(n, _)| *n));
            let near = did_you_mean(&name, first).or_else(|| {
                let all = callable.arities.keys().map(String::as_str);
                did_you_mean(&name, all.filter(|n| n.starts_with(|c: char| c.is_alphabetic())))
            });
            let help = near.map_or_else(
                || "the functions that scripts have stand in the README beside them".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            Diagnostic::error("unknown-function", &*file.name, format!("unknown function `{name}`"))
                .help(help)
        } else {
            let counts: Vec<String> = takes.iter().map(ToString::to_string).collect();
            let message = format!("`{name}` does not take {given} arguments");
            Diagnostic::error("wrong-arguments", &*file.name, message)
                .help(format!("it takes {}", counts.join(" or ")))
        };
        diagnostics.push(place(diagnostic, file, at));
        true
    });
}
