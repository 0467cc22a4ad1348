//! The native path: `fields` compiled to a tree of keys and run over the reply's bytes while they are
//! parsed. What nobody asked for is skipped, not built; values are copied digit for digit.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::scan::{self, Ceilings, Cuts, Scan};
use super::sink::RecordSink;
use super::spec::{MappingSpec, TruncateSpec};
use super::tree::{KeySeed, Node, NodeSeed, Output, Slots};
use crate::json;

/// A compiled mapping.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The way through the document: to the records (0) and to the total (1).
    document: Node,
    /// The way through a record, one output per field; unused where `fields` is empty.
    record: Node,
    outputs: Vec<Output>,
    spec: MappingSpec,
    /// Elements of a list inside a record.
    nested: usize,
}

const RECORDS: usize = 0;
const TOTAL: usize = 1;

/// What a run found besides the records.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    /// Records in the document, those left out included.
    pub(super) records: u64,
    /// The upstream's own total.
    pub(super) total: Option<u64>,
    /// What was cut inside the records.
    pub(super) cuts: Cuts,
}

impl Plan {
    /// Compiles a mapping.
    pub(super) fn compile(spec: &MappingSpec) -> Self {
        let (mut document, mut record) = (Node::default(), Node::default());
        document.insert(spec.collection.as_ref().map_or(&[], |p| p.0.as_slice()), RECORDS);
        if let Some(total) = &spec.total {
            document.insert(&total.0, TOTAL);
        }
        let mut outputs = Vec::new();
        for (i, (name, pointer)) in spec.fields.iter().enumerate() {
            record.insert(&pointer.0, i);
            outputs.push(Output {
                name: json::to_text(name),
                many: pointer.wildcards() > 0,
                ceilings: spec.ceilings(name),
            });
        }
        document.finish();
        record.finish();
        Self { document, record, outputs, spec: spec.clone(), nested: Ceilings::RECORD.nested }
    }

    /// The same without the ceiling on lists inside records, for what is kept aside.
    pub(super) fn with_all_elements(&self) -> Self {
        let mut plan = Self { nested: usize::MAX, ..self.clone() };
        plan.outputs.iter_mut().for_each(|output| output.ceilings.nested = usize::MAX);
        plan
    }

    /// Whether the records are a list.
    pub(super) fn is_list(&self) -> bool {
        self.spec.collection.is_some()
    }

    /// Runs over an accepted document. `Err` names the pointer that does not fit.
    pub(super) fn run(&self, text: &str, sink: &mut RecordSink) -> Result<Found, String> {
        let mut found = Found::default();
        let mut slots = Slots(Vec::new());
        if self.is_list() {
            let mut run = Run { plan: self, sink, found: &mut found, slots: &mut slots, seen: false };
            let mut parser = serde_json::Deserializer::from_str(text);
            DocumentSeed { run: &mut run, node: &self.document }
                .deserialize(&mut parser)
                .map_err(|e| strip_place(&e))?;
            parser.end().map_err(|e| e.to_string())?;
            if !run.seen {
                let place = self.spec.collection.as_ref().map(ToString::to_string).unwrap_or_default();
                return Err(format!("there is no list at `{place}`"));
            }
        } else {
            if !text.trim_start().starts_with('{') {
                return Err("an object was expected at the root".to_owned());
            }
            let raw: &RawValue = serde_json::from_str(text).map_err(|e| e.to_string())?;
            found.records = 1;
            if self.spec.fields.is_empty() {
                self.write_whole(raw.get(), sink, &mut found)?;
            } else {
                slots.fill(&self.record, &self.outputs, raw.get()).map_err(|e| strip_place(&e))?;
                self.write_record(&slots, sink, &mut found);
            }
        }
        Ok(found)
    }

    fn write_record(&self, slots: &Slots<'_>, sink: &mut RecordSink, found: &mut Found) {
        let drop_null = self.spec.drop_null;
        let cuts = &mut found.cuts;
        sink.record(|out| {
            out.push('{');
            let begin = out.len();
            for (output, slot) in self.outputs.iter().zip(&slots.0) {
                let Some(value) = slot.values.first() else {
                    // A list that is there but empty is an empty list; one that is absent stays absent.
                    if slot.listed {
                        member(out, begin, &output.name);
                        out.push_str("[]");
                    }
                    continue;
                };
                if drop_null && !output.many && value.trim_start().starts_with('n') {
                    continue;
                }
                member(out, begin, &output.name);
                if output.many {
                    out.push('[');
                    for (i, value) in slot.values.iter().enumerate() {
                        if i > 0 {
                            out.push(',');
                        }
                        cuts.add(scan::copy(value, output.ceilings, out).map_err(|e| e.to_string())?);
                    }
                    out.push(']');
                } else {
                    cuts.add(scan::copy(value, output.ceilings, out).map_err(|e| e.to_string())?);
                }
                cuts.elements += slot.beyond;
            }
            out.push('}');
            Ok(())
        });
    }

    /// A record with all its members, renamed.
    fn write_whole(&self, raw: &str, sink: &mut RecordSink, found: &mut Found) -> Result<(), String> {
        let mut scan = Scan::new(raw);
        if scan.peek() != b'{' {
            return Err("a record is not an object".to_owned());
        }
        scan.step();
        let cuts = &mut found.cuts;
        sink.record(|out| {
            out.push('{');
            let begin = out.len();
            if !scan.closes(b'}') {
                loop {
                    let key = scan::decode(scan.key()).ok_or("a key is not text")?;
                    let value = scan.skip();
                    if !(self.spec.drop_null && value == "null") {
                        let name = self
                            .spec
                            .rename
                            .iter()
                            .find(|(from, _)| *from == *key)
                            .map_or(&*key, |(_, to)| to);
                        member(out, begin, &json::to_text(name));
                        cuts.add(
                            scan::copy(
                                value,
                                Ceilings { nested: self.nested, ..self.spec.ceilings(name) },
                                out,
                            )
                            .map_err(|e| e.to_string())?,
                        );
                    }
                    if !scan.more(b'}') {
                        break;
                    }
                }
            }
            out.push('}');
            Ok(())
        });
        Ok(())
    }
}

fn member(out: &mut String, begin: usize, name: &str) {
    if out.len() > begin {
        out.push(',');
    }
    out.push_str(name);
    out.push(':');
}

/// `serde_json` adds ` at line 1 column 7` to every message; a reply's lines mean nothing to anyone.
fn strip_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) if error.is_data() => text.get(..at).unwrap_or(&text).to_owned(),
        _ => text,
    }
}

impl MappingSpec {
    fn ceilings(&self, name: &str) -> Ceilings {
        let TruncateSpec { all, fields } = &self.truncate;
        let own = fields.iter().find(|(n, _)| n == name).map(|(_, bytes)| *bytes);
        Ceilings { text: own.or(*all), drop_null: self.drop_null, ..Ceilings::RECORD }
    }
}

/// One run over a document.
struct Run<'p, 's, 'f, 'de> {
    plan: &'p Plan,
    sink: &'s mut RecordSink,
    found: &'f mut Found,
    slots: &'s mut Slots<'de>,
    seen: bool,
}

/// Walks the document to its records and its total.
struct DocumentSeed<'r, 'n, 'p, 's, 'f, 'de> {
    run: &'r mut Run<'p, 's, 'f, 'de>,
    node: &'n Node,
}

impl<'de> DeserializeSeed<'de> for DocumentSeed<'_, '_, '_, '_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        if self.node.outputs.contains(&TOTAL) {
            let raw = <&'de RawValue as serde::Deserialize<'de>>::deserialize(parser)?;
            self.run.found.total = raw.get().parse().ok();
            return Ok(());
        }
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentSeed<'_, '_, '_, '_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.node.outputs.contains(&RECORDS) {
            f.write_str("a list of records")
        } else {
            f.write_str("an object on the way to the records")
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.node.outputs.contains(&RECORDS) {
            return Err(A::Error::custom("an object stands where a list of records was expected"));
        }
        while let Some(child) = map.next_key_seed(KeySeed(self.node))? {
            match child {
                Some(node) => map.next_value_seed(DocumentSeed { run: &mut *self.run, node })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let run = self.run;
        if !self.node.outputs.contains(&RECORDS) {
            let mut at = 0usize;
            loop {
                let more = match self.node.index(at) {
                    Some(node) => seq.next_element_seed(DocumentSeed { run: &mut *run, node })?.is_some(),
                    None => seq.next_element::<IgnoredAny>()?.is_some(),
                };
                if !more {
                    return Ok(());
                }
                at += 1;
            }
        }
        // A key that stands twice in an object: the last one counts, as everywhere in JSON.
        run.sink.restart();
        (run.seen, run.found.records, run.found.cuts) = (true, 0, Cuts::default());
        while !run.sink.is_full() {
            if run.sink.passes() {
                if seq.next_element::<IgnoredAny>()?.is_none() {
                    return Ok(());
                }
                run.found.records += 1;
                continue;
            }
            let record = if run.plan.spec.fields.is_empty() {
                let Some(raw) = seq.next_element::<&'de RawValue>()? else { return Ok(()) };
                run.plan.write_whole(raw.get(), run.sink, run.found).map_err(A::Error::custom)
            } else {
                run.slots.clear(run.plan.outputs.len());
                let seed = NodeSeed {
                    node: &run.plan.record,
                    outputs: &run.plan.outputs,
                    slots: run.slots,
                    record: true,
                };
                if seq.next_element_seed(seed)?.is_none() {
                    return Ok(());
                }
                run.plan.write_record(run.slots, run.sink, run.found);
                Ok(())
            };
            record?;
            run.found.records += 1;
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {
            run.found.records += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pointer::Pointer;
    use super::*;

    fn plan(collection: Option<&str>, fields: &[(&str, &str)]) -> MappingSpec {
        MappingSpec {
            collection: collection.map(|c| Pointer::parse(c).unwrap()),
            fields: fields.iter().map(|(n, p)| ((*n).to_owned(), Pointer::parse(p).unwrap())).collect(),
            ..MappingSpec::default()
        }
    }

    fn run(spec: &MappingSpec, text: &str) -> Result<(String, Found), String> {
        let mut sink = RecordSink::new(10, 10_000);
        let found = Plan::compile(spec).run(text, &mut sink)?;
        sink.fault()?;
        let records = sink.into_records();
        Ok((records.first(records.len()).to_owned(), found))
    }

    #[test]
    fn fields_are_found_wherever_they_are() {
        let spec = plan(
            Some("/data/rows"),
            &[
                ("id", "/id"),
                ("who", "/user/login"),
                ("user", "/user"),
                ("labels", "/labels/*/name"),
                ("first", "/labels/0/name"),
                ("none", "/none"),
            ],
        );
        let text = r#"{"x":{"deep":[1,{"rows":[]}]},"data":{"rows":[
            {"id":18446744073709551616,"user":{"login":"a","n":1.50},"labels":[{"name":"l1"},{},{"name":"l2"}],"none":null},
            {"id":"q\u00e9","labels":[],"user":7}]}}"#;
        let (out, found) = run(&spec, text).unwrap();
        assert_eq!(
            out,
            r#"{"id":18446744073709551616,"who":"a","user":{"login":"a","n":1.50},"labels":["l1","l2"],"first":"l1","none":null},{"id":"q\u00e9","user":7,"labels":[]}"#
        );
        assert_eq!(found.records, 2);
    }

    #[test]
    fn whole_records_are_renamed_and_cut() {
        let mut spec = plan(Some(""), &[]);
        spec.rename = vec![("Old".to_owned(), "new".to_owned())];
        spec.drop_null = true;
        spec.truncate.fields = vec![("new".to_owned(), 8)];
        let (out, found) = run(&spec, r#"[{"Old":"abcdefghij","n":null,"k":[1, 2]}]"#).unwrap();
        assert_eq!(out, r#"{"new":"abcde…","k":[1,2]}"#);
        assert_eq!(found.cuts, Cuts { elements: 0, texts: 1 });
    }

    #[test]
    fn records_beyond_the_limit_are_counted_only() {
        let mut spec = plan(Some("/r"), &[("a", "/a")]);
        spec.total = Some(Pointer::parse("/n").unwrap());
        let rows: Vec<String> = (0..25).map(|i| format!("{{\"a\":{i}}}")).collect();
        let (out, found) = run(&spec, &format!("{{\"n\":99,\"r\":[{}]}}", rows.join(","))).unwrap();
        assert_eq!(out.matches("\"a\"").count(), 10);
        assert_eq!((found.records, found.total), (25, Some(99)));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let spec = plan(Some("/r"), &[("a", "/a")]);
        assert_eq!(run(&spec, r#"{"q":1}"#).unwrap_err(), "there is no list at `/r`");
        assert!(run(&spec, r#"{"r":{"a":1}}"#).unwrap_err().contains("an object stands where a list"));
        assert!(run(&spec, r#"{"r":7}"#).unwrap_err().contains("expected a list of records"));
        assert!(run(&spec, r#"{"r":[{"a":1},7]}"#).unwrap_err().contains("a record is not an object"));
        assert!(run(&plan(None, &[("a", "/a")]), "[]").unwrap_err().contains("an object was expected"));
    }

    #[test]
    fn a_single_record_and_a_repeated_key() {
        assert_eq!(
            run(&plan(None, &[("b", "/a/b")]), r#"{"a":{"b":1},"a":{"b":2}}"#).unwrap().0,
            r#"{"b":2}"#
        );
        assert_eq!(
            run(&plan(Some("/r"), &[("a", "/a")]), r#"{"r":[{"a":1}],"r":[{"a":2}]}"#).unwrap().0,
            r#"{"a":2}"#
        );
    }
}
