//! The native path: `fields` compiled to a tree of keys and run over the reply's bytes while they are
//! checked. What nobody asked for is skipped, not built; values are copied digit for digit.

use super::scan::{self, Ceilings, Cuts, Scan};
use super::sink::RecordSink;
use super::spec::{MappingSpec, TruncateSpec};
use super::tree::{Node, Output, Slots, Unfit};
use crate::json;
use crate::json::walk::Walk;

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

    /// Runs over a document. `Err` says what is no JSON in it, or names the pointer that does not fit.
    pub(super) fn run(&self, text: &str, sink: &mut RecordSink) -> Result<Found, String> {
        let mut run = Run { plan: self, sink, found: Found::default(), slots: Slots::default(), seen: false };
        let mut walk = Walk::new(text);
        let ran =
            if self.is_list() { run.document(&self.document, &mut walk) } else { run.single(&mut walk) };
        ran.and_then(|()| Ok(walk.end()?)).map_err(|unfit| unfit.told(text))?;
        if self.is_list() && !run.seen {
            let place = self.spec.collection.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(format!("there is no list at `{place}`"));
        }
        Ok(run.found)
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

impl MappingSpec {
    fn ceilings(&self, name: &str) -> Ceilings {
        let TruncateSpec { all, fields } = &self.truncate;
        let own = fields.iter().find(|(n, _)| n == name).map(|(_, bytes)| *bytes);
        Ceilings { text: own.or(*all), drop_null: self.drop_null, ..Ceilings::RECORD }
    }
}

/// One run over a document.
struct Run<'p, 's, 'a> {
    plan: &'p Plan,
    sink: &'s mut RecordSink,
    found: Found,
    slots: Slots<'a>,
    /// Whether the list of records was there.
    seen: bool,
}

impl<'a> Run<'_, '_, 'a> {
    /// The document is the one record.
    fn single(&mut self, walk: &mut Walk<'a>) -> Result<(), Unfit> {
        if walk.peek() != b'{' {
            return Err(Unfit::Told("an object was expected at the root".to_owned()));
        }
        self.record(walk)
    }

    /// Walks the document to its records and its total.
    fn document(&mut self, node: &Node, walk: &mut Walk<'a>) -> Result<(), Unfit> {
        if node.outputs.contains(&TOTAL) {
            self.found.total = walk.skip()?.parse().ok();
            return Ok(());
        }
        let is_list = node.outputs.contains(&RECORDS);
        match walk.peek() {
            b'[' if is_list => self.records(walk),
            b'{' if !is_list => walk.members(|walk, name| self.below(node.key(name), walk)),
            b'[' => walk.elements(|walk, at| self.below(node.index(at), walk)),
            _ => Err(misplaced(is_list, walk.skip()?)),
        }
    }

    fn below(&mut self, node: Option<&Node>, walk: &mut Walk<'a>) -> Result<(), Unfit> {
        match node {
            Some(node) => self.document(node, walk),
            None => Ok(walk.skip().map(drop)?),
        }
    }

    fn records(&mut self, walk: &mut Walk<'a>) -> Result<(), Unfit> {
        // A key that stands twice in an object: the last one counts, as everywhere in JSON.
        self.sink.restart();
        (self.seen, self.found.records, self.found.cuts) = (true, 0, Cuts::default());
        walk.elements(|walk, _| {
            if !self.sink.is_full() && !self.sink.passes() {
                return self.record(walk);
            }
            walk.skip()?;
            self.found.records += 1;
            Ok(())
        })
    }

    fn record(&mut self, walk: &mut Walk<'a>) -> Result<(), Unfit> {
        let plan = self.plan;
        if plan.spec.fields.is_empty() {
            plan.write_whole(walk.skip()?, self.sink, &mut self.found).map_err(Unfit::Told)?;
        } else {
            self.slots.fill(&plan.record, &plan.outputs, walk)?;
            plan.write_record(&self.slots, self.sink, &mut self.found);
        }
        self.found.records += 1;
        Ok(())
    }
}

/// What stands in the way to the records, or in place of them.
fn misplaced(is_list: bool, raw: &str) -> Unfit {
    let what = match raw.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    let expected = if is_list { "a list of records" } else { "an object on the way to the records" };
    Unfit::Told(format!("{what} stands where {expected} was expected"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::pointer::{Pointer, Step};
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

    /// What `fields` mean, told over a parsed record: members by name, elements by number, `*` for each element.
    fn meant<'v>(value: &'v Value, steps: &[Step], into: &mut Vec<&'v Value>) {
        let Some((step, rest)) = steps.split_first() else { return into.push(value) };
        match (step, value) {
            (Step::Each, Value::Array(items)) => items.iter().for_each(|item| meant(item, rest, into)),
            (Step::Key(key), Value::Object(map)) => {
                map.get(key).into_iter().for_each(|v| meant(v, rest, into));
            }
            (Step::Key(key), Value::Array(items)) => {
                key.parse::<usize>()
                    .ok()
                    .and_then(|at| items.get(at))
                    .into_iter()
                    .for_each(|v| meant(v, rest, into));
            }
            _ => {}
        }
    }

    fn any_record() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(json!(null)), Just(json!(7)), Just(json!("t\n\u{e9}")), Just(json!(false))];
        leaf.prop_recursive(5, 60, 4, |inner| {
            let name = prop_oneof![Just("a"), Just("b"), Just("0"), Just("q\"")].prop_map(str::to_owned);
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..4)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_the_pointers_mean(rows in prop::collection::vec(any_record(), 0..4), pretty: bool) {
            let fields = ["/a", "/a/b", "/b/*", "/b/*/a", "/b/0", "/a/0/b", "/q\"/b", "/b/*/*", "/b/1/a"];
            let named: Vec<(&str, &str)> = fields.iter().map(|f| (*f, *f)).collect();
            let document = json!({"x": {"r": [1]}, "r": rows});
            let text = if pretty { serde_json::to_string_pretty(&document).unwrap() } else { json::to_text(&document) };
            let ran = run(&plan(Some("/r"), &named), &text);
            if rows.iter().any(|row| !row.is_object() && !row.is_array()) {
                prop_assert_eq!(ran.unwrap_err(), "a record is not an object");
                return Ok(());
            }
            let records: Vec<Value> = serde_json::from_str(&format!("[{}]", ran.unwrap().0)).unwrap();
            prop_assert_eq!(records.len(), rows.len());
            for (row, record) in rows.iter().zip(&records) {
                for field in fields {
                    let (pointer, mut values) = (Pointer::parse(field).unwrap(), Vec::new());
                    meant(row, &pointer.0, &mut values);
                    if pointer.wildcards() > 0 {
                        let found = record.get(field).map_or(Vec::new(), |f| f.as_array().unwrap().iter().collect());
                        prop_assert_eq!(found, values, "{} of {}", field, row);
                    } else {
                        prop_assert_eq!(record.get(field), values.first().copied(), "{} of {}", field, row);
                    }
                }
            }
        }

        #[test]
        fn a_text_that_is_no_json_is_refused(rows in prop::collection::vec(any_record(), 1..3), at in 0usize..300) {
            let text = json::to_text(&json!({"r": rows}));
            let Some(cut) = text.get(..at.min(text.len() - 1)) else { return Ok(()) };
            prop_assert!(run(&plan(Some("/r"), &[("a", "/a"), ("b", "/b/*/a")]), cut).is_err());
            let longer = format!("{text}]");
            prop_assert!(run(&plan(Some("/r"), &[("a", "/a")]), &longer).is_err());
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let spec = plan(Some("/r"), &[("a", "/a")]);
        assert_eq!(run(&spec, r#"{"q":1}"#).unwrap_err(), "there is no list at `/r`");
        assert!(run(&spec, r#"{"r":{"a":1}}"#).unwrap_err().contains("an object stands where a list"));
        assert!(
            run(&spec, r#"{"r":7}"#)
                .unwrap_err()
                .contains("a number stands where a list of records was expected")
        );
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
