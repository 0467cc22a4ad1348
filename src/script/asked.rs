//! Reading a script without running it: properties that it only asks about (`"ci" in tool.tags`,
//! `tool.id == "a.b"`) and never holds. A host may answer such a question without handing out the value.

use std::collections::BTreeSet;

use rhai::{AST, ASTNode, Expr, FnCallExpr, Stmt};

use super::access::{Step, chain, is_tail};

/// A function or operator by name, and the place among its arguments where the property stands: 0 is the
/// receiver of a method and the left side of an operator (the right one of `in`, which is `contains`).
pub type Asking = (&'static str, usize);

/// Of `properties`, those whose every mention in the script stands directly in one of `questions`.
/// A question that the script defines as a function of its own is none.
pub(super) fn only_asked(
    ast: &AST,
    properties: &[&'static str],
    questions: &[Asking],
) -> BTreeSet<&'static str> {
    let own: BTreeSet<&str> = ast.iter_functions().map(|f| f.name).collect();
    let asks = |name: &str, place: usize| !own.contains(name) && questions.contains(&(name, place));
    let mut held: BTreeSet<&'static str> = BTreeSet::new();
    ast.walk(&mut |path: &[ASTNode<'_>]| {
        let Some(ASTNode::Expr(expr @ (Expr::Dot(..) | Expr::Index(..)))) = path.last() else { return true };
        let parent = path.iter().rev().nth(1);
        if is_tail(parent, expr) {
            return true;
        }
        let steps = chain(expr).steps;
        for (at, step) in steps.iter().enumerate() {
            let Step::Property(name) = step else { continue };
            let Some(known) = properties.iter().find(|p| *p == name) else { continue };
            let asked = match steps.get(at + 1) {
                Some(Step::Method(method)) => asks(method, 0),
                Some(_) => false,
                None => call_of(parent)
                    .and_then(|call| Some((call, call.args.iter().position(|a| std::ptr::eq(a, *expr))?)))
                    .is_some_and(|(call, place)| call.namespace.is_empty() && asks(&call.name, place)),
            };
            if !asked {
                held.insert(known);
            }
        }
        true
    });
    properties.iter().copied().filter(|p| !held.contains(p)).collect()
}

fn call_of<'a>(node: Option<&ASTNode<'a>>) -> Option<&'a FnCallExpr> {
    match node {
        Some(ASTNode::Expr(Expr::FnCall(call, _)) | ASTNode::Stmt(Stmt::FnCall(call, _))) => Some(call),
        _ => None,
    }
}
