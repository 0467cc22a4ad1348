//! The sandboxed engine of one dialect: a raw Rhai engine with chosen packages, every ceiling set, the host
//! functions of its owner, and the libraries of `scripts/lib`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use rhai::packages::{
    ArithmeticPackage, BasicArrayPackage, BasicFnPackage, BasicIteratorPackage, BasicMapPackage,
    BasicMathPackage, BasicStringPackage, LogicPackage, MoreStringPackage, Package,
};
use rhai::{Engine, FuncRegistration, Module, OptimizationLevel, RhaiNativeFunc, Scope};

use super::access::{self, Touches};
use super::compile::Script;
use super::{Dialect, Dynamic, Limits, meter};
use crate::diagnostic::{Diagnostic, Diagnostics, SourceFile};

/// Words of the language that scripts may not use: they load code or print; `curry` can tie a value into
/// itself, which never is freed.
const DISABLED: [&str; 6] = ["eval", "import", "export", "print", "debug", "curry"];

/// Functions of the language itself, which no package lists: name and number of arguments.
const LANGUAGE: [(&str, &[usize]); 5] = [
    ("Fn", &[1]),
    ("call", &[1, 2, 3, 4, 5, 6, 7, 8]),
    ("type_of", &[1]),
    ("is_def_var", &[1]),
    ("is_def_fn", &[2, 3]),
];

/// What kind of thing the host gives to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// A type that scripts can hold.
    Type,
    /// A field of a type.
    Field,
    /// A function, or a method of a type.
    Function,
    /// The heading of what follows.
    Section,
}

/// One thing that the host gives to scripts, for the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostItem {
    /// What kind.
    pub kind: HostKind,
    /// How it is written: `has_scope(caller, scope) -> bool`, `caller.tier`.
    pub signature: &'static str,
    /// What it is for, in a sentence or two.
    pub doc: &'static str,
}

/// What scripts may call.
#[derive(Debug, Default)]
pub(super) struct Callable {
    /// Every name with the numbers of arguments it takes (the receiver counts as one).
    pub(super) arities: BTreeMap<String, BTreeSet<usize>>,
    /// Those that the host or a library brings: the first candidates of "did you mean".
    pub(super) own: BTreeSet<String>,
}

/// Collects host functions and libraries, then becomes a [`ScriptEngine`].
pub struct EngineBuilder {
    dialect: Dialect,
    engine: Engine,
    items: Vec<HostItem>,
    names: BTreeSet<String>,
    libraries: Vec<(Arc<str>, Arc<str>)>,
    touches: Touches,
}

impl EngineBuilder {
    /// The sandbox of a dialect, without host functions.
    pub fn new(dialect: Dialect) -> Self {
        let mut engine = Engine::new_raw();
        ArithmeticPackage::new().register_into_engine(&mut engine);
        LogicPackage::new().register_into_engine(&mut engine);
        BasicMathPackage::new().register_into_engine(&mut engine);
        BasicStringPackage::new().register_into_engine(&mut engine);
        MoreStringPackage::new().register_into_engine(&mut engine);
        BasicArrayPackage::new().register_into_engine(&mut engine);
        BasicMapPackage::new().register_into_engine(&mut engine);
        BasicIteratorPackage::new().register_into_engine(&mut engine);
        BasicFnPackage::new().register_into_engine(&mut engine);
        confine(&mut engine, dialect, &dialect.limits());
        let (items, names) = (Vec::new(), BTreeSet::new());
        Self { dialect, engine, items, names, libraries: Vec::new(), touches: Touches::default() }
    }

    /// A type that scripts can hold.
    pub fn host_type<T: Send + Sync + Clone + 'static>(&mut self, name: &'static str, doc: &'static str) {
        self.engine.register_type_with_name::<T>(name);
        self.items.push(HostItem { kind: HostKind::Type, signature: name, doc });
    }

    /// A heading in the reference, for what is registered after it.
    pub fn section(&mut self, title: &'static str, doc: &'static str) {
        self.items.push(HostItem { kind: HostKind::Section, signature: title, doc });
    }

    /// A line of the reference for what [`EngineBuilder::index`] gives.
    pub fn document(&mut self, signature: &'static str, doc: &'static str) {
        self.items.push(HostItem { kind: HostKind::Field, signature, doc });
    }

    /// A function, also callable as a method of its first argument. `signature` is what the reference shows.
    pub fn function<A: 'static, const N: usize, const X: bool, R, const F: bool>(
        &mut self,
        name: &str,
        signature: &'static str,
        doc: &'static str,
        function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) where
        R: Send + Sync + Clone + 'static,
    {
        self.engine.register_fn(name, function);
        self.names.insert(name.to_owned());
        // One name may take several types; the reference shows each signature once.
        if !self.items.iter().any(|i| i.signature == signature) {
            self.items.push(HostItem { kind: HostKind::Function, signature, doc });
        }
    }

    /// An overload of a function or operator of the language for a host type: nothing that is new to write,
    /// and so not in the reference.
    pub fn silent<A: 'static, const N: usize, const X: bool, R, const F: bool>(
        &mut self,
        name: &str,
        function: impl RhaiNativeFunc<A, N, X, R, F> + Send + Sync + 'static,
    ) where
        R: Send + Sync + Clone + 'static,
    {
        self.engine.register_fn(name, function);
    }

    /// A field of a type: `get` takes `&mut T`.
    pub fn field<A: 'static, const X: bool, R, const F: bool>(
        &mut self,
        name: &str,
        signature: &'static str,
        doc: &'static str,
        get: impl RhaiNativeFunc<A, 1, X, R, F> + Send + Sync + 'static,
    ) where
        R: Send + Sync + Clone + 'static,
    {
        FuncRegistration::new_getter(name).register_into_engine(&mut self.engine, get);
        self.items.push(HostItem { kind: HostKind::Field, signature, doc });
    }

    /// Fields of a type that are known by their names alone: `get` takes the value and the name. The same as an
    /// index without them; with them the interpreter need not fail to find a field first, which costs more
    /// than the rest of the access.
    pub fn fields_by_name<T: Send + Sync + Clone + 'static>(
        &mut self,
        names: impl IntoIterator<Item = String>,
        get: fn(&mut T, &str) -> Dynamic,
    ) {
        for name in names {
            let getter = FuncRegistration::new_getter(&name);
            getter.register_into_engine(&mut self.engine, move |value: &mut T| get(value, &name));
        }
    }

    /// Reading `value[index]` of a type (`get` takes `&mut T` and the index), also used for `value.name` where no field of that name exists.
    pub fn index<A: 'static, const X: bool, R, const F: bool>(
        &mut self,
        get: impl RhaiNativeFunc<A, 2, X, R, F> + Send + Sync + 'static,
    ) where
        R: Send + Sync + Clone + 'static,
    {
        FuncRegistration::new_index_getter().register_into_engine(&mut self.engine, get);
    }

    /// `for x in value` over a type.
    pub fn iterable<T>(&mut self)
    where
        T: Send + Sync + Clone + 'static + IntoIterator,
        T::Item: Send + Sync + Clone + 'static,
    {
        self.engine.register_iterator::<T>();
    }

    /// Adds a file of `scripts/lib`: its functions are called as `name::function(…)`, `name` being the file's
    /// name without `.rhai`. A library may use those added before it.
    pub fn library(&mut self, file: &SourceFile, diagnostics: &mut Diagnostics) {
        let stem = file.name.rsplit('/').next().and_then(|f| f.strip_suffix(".rhai")).unwrap_or_default();
        if !rhai::is_valid_identifier(stem) {
            let message = format!("`{stem}` cannot name a library");
            let help = "name the file with letters, digits and `_` only, beginning with a letter";
            diagnostics.push(Diagnostic::error("library-name", &*file.name, message).help(help));
            return;
        }
        let callable = self.callable();
        let Some(ast) = access::parse(&self.engine, &callable, file, diagnostics) else { return };
        match Module::eval_ast_as_new(Scope::new(), &ast, &self.engine) {
            Ok(module) => {
                self.touches.add(&ast);
                self.engine.register_static_module(stem, module.into());
                self.libraries.push((Arc::clone(&file.name), Arc::clone(&file.text)));
            }
            Err(error) => {
                diagnostics.push(Diagnostic::error("script-error", &*file.name, error.to_string()));
            }
        }
    }

    /// The finished engine.
    pub fn build(self) -> ScriptEngine {
        let callable = self.callable();
        let mut hash = blake3::Hasher::new();
        for (name, text) in &self.libraries {
            hash.update(blake3::hash(name.as_bytes()).as_bytes());
            hash.update(blake3::hash(text.as_bytes()).as_bytes());
        }
        ScriptEngine(Arc::new(Shared {
            dialect: self.dialect,
            limits: self.dialect.limits(),
            engine: self.engine,
            items: self.items,
            callable,
            libraries: self.libraries,
            library_touches: self.touches,
            library_hash: *hash.finalize().as_bytes(),
        }))
    }

    fn callable(&self) -> Callable {
        let mut known = Callable { own: self.names.clone(), ..Callable::default() };
        for (name, arities) in LANGUAGE {
            known.arities.entry(name.to_owned()).or_default().extend(arities);
        }
        let listed = self.engine.collect_fn_metadata(
            None,
            |f| {
                let namespace = f.namespace.as_str();
                let name = f.metadata.name.as_str();
                let full =
                    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}::{name}") };
                Some((full, f.metadata.num_params))
            },
            true,
        );
        for (name, arity) in listed {
            if name.contains("::") {
                known.own.insert(name.clone());
            }
            known.arities.entry(name).or_default().insert(arity);
        }
        known
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

/// Sets every ceiling and takes away what a script must not have.
fn confine(engine: &mut Engine, dialect: Dialect, limits: &Limits) {
    engine.set_optimization_level(OptimizationLevel::None);
    engine.set_strict_variables(true);
    engine.set_fail_on_invalid_map_property(true);
    engine.set_max_strings_interned(0);
    engine.set_max_operations(limits.operations);
    engine.set_max_call_levels(limits.call_levels);
    engine.set_max_expr_depths(limits.expression_depth, limits.function_depth);
    engine.set_max_string_size(limits.string_bytes);
    engine.set_max_array_size(limits.array_items);
    engine.set_max_map_size(limits.map_entries);
    engine.set_max_variables(limits.variables);
    engine.set_max_functions(limits.functions);
    engine.set_max_modules(0);
    for word in DISABLED {
        engine.disable_symbol(word);
    }
    if dialect == Dialect::Policy {
        engine.set_allow_looping(false);
        engine.set_allow_anonymous_fn(false);
    }
    engine.on_progress(|operations| meter::exceeded_at(operations).map(|stop| stop.message().into()));
}

pub(super) struct Shared {
    pub(super) dialect: Dialect,
    pub(super) limits: Limits,
    pub(super) engine: Engine,
    pub(super) items: Vec<HostItem>,
    pub(super) callable: Callable,
    pub(super) libraries: Vec<(Arc<str>, Arc<str>)>,
    pub(super) library_touches: Touches,
    pub(super) library_hash: [u8; 32],
}

/// A finished engine. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct ScriptEngine(pub(super) Arc<Shared>);

impl ScriptEngine {
    /// Its dialect.
    pub fn dialect(&self) -> Dialect {
        self.0.dialect
    }

    /// Compiles a script; every mistake found lands in `diagnostics`.
    pub fn compile(&self, file: &SourceFile, diagnostics: &mut Diagnostics) -> Option<Script> {
        let ast = access::parse(&self.0.engine, &self.0.callable, file, diagnostics)?;
        Some(Script::new(self.clone(), file, ast))
    }

    /// What the host gives to scripts, in the order it was registered: for reference pages.
    pub fn reference(&self) -> &[HostItem] {
        &self.0.items
    }

    /// The names of everything that a script may call: host functions, packages and libraries.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        self.0
            .callable
            .arities
            .keys()
            .map(String::as_str)
            .filter(|n| n.starts_with(|c: char| c.is_alphabetic()))
    }
}

impl fmt::Debug for ScriptEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptEngine").field("dialect", &self.0.dialect).finish_non_exhaustive()
    }
}
