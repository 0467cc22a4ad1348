//! Compiling projections: scripts, schemas and engines are shared by the tools of a load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::contract::{Contract, Definitions, SharedDefinitions};
use super::engine::Projection;
use super::host;
use super::plan::Plan;
use super::pointer::{Pointer, Step};
use super::request::Request;
use super::script::Roles;
use super::spec::{LinesSpec, MappingSpec, PagingMode, ProjectionSpec};
use super::{Coverage, PackSources};
use crate::catalog::Tool;
use crate::diagnostic::{Diagnostics, Severity, SourceFile};
use crate::json::Object;
use crate::schema::Validators;
use crate::script::{Script, ScriptEngine};

/// Compiles projections: one for a load of the home, so that scripts and schemas are shared.
#[derive(Debug, Default)]
pub struct Projector {
    validators: Arc<Validators>,
    coverage: Option<Coverage>,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    packs: Vec<Pack>,
    /// Libraries whose mistakes were told.
    told: Vec<Vec<SourceFile>>,
}

#[derive(Debug)]
struct Pack {
    sources: Arc<PackSources>,
    definitions: SharedDefinitions,
    /// For its scripts: made for the fields that they name.
    engine: Option<ScriptEngine>,
    scripts: BTreeMap<Arc<str>, Option<Script>>,
}

impl Projector {
    /// A compiler that shares validators with the rest of the gateway.
    pub fn new(validators: Arc<Validators>) -> Self {
        Self { validators, coverage: None, shared: Mutex::default() }
    }

    /// The same, which notes what functions of scripts run.
    pub fn covering(validators: Arc<Validators>, coverage: Coverage) -> Self {
        Self { coverage: Some(coverage), ..Self::new(validators) }
    }

    /// Compiles one tool's shaping. `None`, with diagnostics, where it cannot be used.
    pub fn compile(
        &self,
        tool: &Tool,
        spec: &ProjectionSpec,
        diagnostics: &mut Diagnostics,
    ) -> Option<Projection> {
        let before = diagnostics.count(Severity::Error);
        let input = tool.input_schema.value();
        let (definitions, script) = {
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            shared.parts(spec, self.coverage.as_ref(), diagnostics)
        };
        let roles = match (&spec.script, script) {
            (Some(own), Some(script)) => Roles::find(script, own, &spec.place, diagnostics),
            _ => None,
        };
        if let (Some(_), Some(true)) = (&spec.request, roles.as_ref().map(Roles::requests)) {
            let message = "`request` is both a table and a function of the script".to_owned();
            let help = "keep one of them";
            diagnostics.push(spec.place.error_at(spec.place.offset, "conflicting-keys", message).help(help));
        }
        let request = spec.request.as_ref().map(|r| Request::compile(r, &spec.place, &input, diagnostics));
        let mapping = mapping(spec);
        let shaped_by_script = roles.as_ref().is_some_and(|r| r.projects() || r.runs());
        let generating = mapping.as_ref().filter(|_| !shaped_by_script);
        let contract =
            Contract::compose(&tool.name, spec, generating, &definitions, &self.validators, diagnostics);
        let takes = |name: &str| input.pointer(&format!("/properties/{name}")).is_some();
        let properties = input.get("properties").and_then(serde_json::Value::as_object);
        let defaults: Object = properties
            .into_iter()
            .flatten()
            .filter_map(|(name, schema)| Some((name.clone(), schema.get("default")?.clone())))
            .collect();
        let sound = diagnostics.count(Severity::Error) == before;
        sound.then(|| Projection {
            read_only: tool.annotations.is_read_only(),
            request,
            roles,
            lines: spec.lines.clone(),
            mapping: mapping.map(|m| (Plan::compile(&m), m)),
            takes_offset: takes("offset"),
            takes_limit: takes("limit"),
            defaults,
            contract,
            validators: Arc::clone(&self.validators),
        })
    }
}

impl Shared {
    /// The definitions of a spec's pack and its script, each compiled (and its mistakes told) once.
    fn parts(
        &mut self,
        spec: &ProjectionSpec,
        coverage: Option<&Coverage>,
        diagnostics: &mut Diagnostics,
    ) -> (SharedDefinitions, Option<Script>) {
        let at = self.packs.iter().position(|p| Arc::ptr_eq(&p.sources, &spec.pack)).unwrap_or_else(|| {
            self.packs.push(Pack {
                sources: Arc::clone(&spec.pack),
                definitions: Arc::new(Definitions::load(&spec.pack.schemas, diagnostics)),
                engine: None,
                scripts: BTreeMap::new(),
            });
            self.packs.len() - 1
        });
        let Some(pack) = self.packs.get_mut(at) else { return (SharedDefinitions::default(), None) };
        if spec.script.is_some() && pack.engine.is_none() {
            pack.engine = Some(engine(&spec.pack, &mut self.told, coverage, diagnostics));
        }
        let script = spec.script.as_ref().zip(pack.engine.as_ref()).and_then(|(own, engine)| {
            let compiled = pack
                .scripts
                .entry(Arc::clone(&own.source.name))
                .or_insert_with(|| engine.compile(&host::compiled(&own.source, coverage), diagnostics));
            if compiled.is_none() {
                // The script's own mistakes were told with the first tool; this one cannot be served either.
                let message = format!("`{}` does not compile", own.source.name);
                diagnostics.push(spec.place.error_at(own.offset, "broken-script", message));
            }
            compiled.clone()
        });
        (Arc::clone(&pack.definitions), script)
    }
}

/// The engine of one pack. The mistakes of libraries that packs share are told once.
fn engine(
    sources: &PackSources,
    told: &mut Vec<Vec<SourceFile>>,
    coverage: Option<&Coverage>,
    diagnostics: &mut Diagnostics,
) -> ScriptEngine {
    let names = host::names_of(sources.library.iter().chain(sources.scripts.values()));
    let same = |(a, b): (&SourceFile, &SourceFile)| a.name == b.name && a.text == b.text;
    let known = |own: &Vec<SourceFile>| {
        own.len() == sources.library.len() && own.iter().zip(&sources.library).all(same)
    };
    let mut again = Diagnostics::default();
    let repeats = told.iter().any(known);
    if !repeats {
        told.push(sources.library.clone());
    }
    let diagnostics = if repeats { &mut again } else { diagnostics };
    host::engine(&sources.library, names, coverage, diagnostics)
}

/// The mapping of a spec: its own, or what `lines` alone means.
fn mapping(spec: &ProjectionSpec) -> Option<MappingSpec> {
    match (&spec.mapping, &spec.lines) {
        (Some(mapping), Some(_)) if mapping.collection.is_none() => {
            Some(MappingSpec { collection: Some(Pointer::default()), ..mapping.clone() })
        }
        (None, Some(lines)) => Some(lines.mapping()),
        (mapping, _) => mapping.clone(),
    }
}

impl LinesSpec {
    /// The mapping of a table without one: every line a record, every column a field, all of them there.
    fn mapping(&self) -> MappingSpec {
        let pointer = |name: &String| Pointer(vec![Step::Key(name.clone())]);
        MappingSpec {
            collection: Some(Pointer::default()),
            fields: self.columns.iter().map(|c| (c.clone(), pointer(c))).collect(),
            paging: PagingMode::Complete,
            ..MappingSpec::default()
        }
    }
}
