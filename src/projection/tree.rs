//! A tree of pointers walked along a value while it is parsed: what an output asks for is kept as raw text,
//! all else is skipped.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::pointer::Step;
use super::scan::Ceilings;

#[derive(Debug, Clone)]
pub(super) struct Output {
    pub(super) name: String,
    /// Whether a `*` on the way makes it a list.
    pub(super) many: bool,
    pub(super) ceilings: Ceilings,
}

/// One place in a tree of pointers.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    keys: Vec<(String, Node)>,
    each: Option<Box<Node>>,
    /// Elements that a pointer names by number, with what `*` wants of them besides.
    indexed: Vec<(usize, Node)>,
    /// The outputs that take the value at this place.
    pub(super) outputs: Vec<usize>,
}

impl Node {
    pub(super) fn insert(&mut self, steps: &[Step], output: usize) {
        match steps.split_first() {
            None => self.outputs.push(output),
            Some((Step::Each, rest)) => self.each.get_or_insert_default().insert(rest, output),
            Some((Step::Key(key), rest)) => {
                let at = self.keys.iter().position(|(k, _)| k == key).unwrap_or_else(|| {
                    self.keys.push((key.clone(), Self::default()));
                    self.keys.len() - 1
                });
                if let Some((_, child)) = self.keys.get_mut(at) {
                    child.insert(rest, output);
                }
            }
        }
    }

    /// After the last insert: what numbers name in lists.
    pub(super) fn finish(&mut self) {
        let numbered =
            self.keys.iter().filter_map(|(k, node)| Some((k.parse::<usize>().ok()?, node.clone())));
        self.indexed = numbered
            .map(|(at, mut node)| {
                if let Some(each) = &self.each {
                    node.absorb(each);
                }
                (at, node)
            })
            .collect();
        let children = self.keys.iter_mut().map(|(_, n)| n).chain(self.indexed.iter_mut().map(|(_, n)| n));
        children.chain(self.each.as_deref_mut()).for_each(Self::finish);
    }

    fn absorb(&mut self, other: &Self) {
        self.outputs.extend(&other.outputs);
        for (key, node) in &other.keys {
            match self.keys.iter_mut().find(|(k, _)| k == key) {
                Some((_, own)) => own.absorb(node),
                None => self.keys.push((key.clone(), node.clone())),
            }
        }
        if let Some(each) = &other.each {
            self.each.get_or_insert_default().absorb(each);
        }
    }

    pub(super) fn key(&self, name: &str) -> Option<&Self> {
        self.keys.iter().find(|(k, _)| k == name).map(|(_, n)| n)
    }

    pub(super) fn index(&self, at: usize) -> Option<&Self> {
        self.indexed.iter().find(|(i, _)| *i == at).map(|(_, n)| n).or(self.each.as_deref())
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.keys.is_empty() && self.each.is_none()
    }
}

/// The values found for the outputs of one record, still inside the reply.
#[derive(Debug, Default)]
pub(super) struct Slots<'a>(pub(super) Vec<Slot<'a>>);

#[derive(Debug, Default, Clone)]
pub(super) struct Slot<'a> {
    pub(super) values: Vec<&'a str>,
    /// Elements beyond the ceiling on lists.
    pub(super) beyond: u64,
    /// Whether the list itself was there.
    pub(super) listed: bool,
}

impl<'a> Slots<'a> {
    pub(super) fn clear(&mut self, outputs: usize) {
        self.0.resize(outputs, Slot::default());
        for slot in &mut self.0 {
            slot.values.clear();
            (slot.beyond, slot.listed) = (0, false);
        }
    }

    fn take(&mut self, at: usize, output: &Output, value: &'a str) {
        let Some(slot) = self.0.get_mut(at) else { return };
        if !output.many {
            slot.values.clear();
        } else if slot.values.len() >= output.ceilings.nested {
            slot.beyond += 1;
            return;
        }
        slot.values.push(value);
    }

    pub(super) fn fill(&mut self, node: &Node, outputs: &[Output], text: &'a str) -> serde_json::Result<()> {
        self.clear(outputs.len());
        let mut parser = serde_json::Deserializer::from_str(text);
        NodeSeed { node, outputs, slots: self, record: true }.deserialize(&mut parser)
    }
}

/// Walks one value along the tree of a record.
pub(super) struct NodeSeed<'n, 's, 'de> {
    pub(super) node: &'n Node,
    pub(super) outputs: &'n [Output],
    pub(super) slots: &'s mut Slots<'de>,
    /// Whether this is the record itself, which a scalar cannot be.
    pub(super) record: bool,
}

impl NodeSeed<'_, '_, '_> {
    /// A scalar on the way to something deeper: nothing is there.
    fn nothing<E: Error>(&self) -> Result<(), E> {
        if self.record { Err(E::custom("a record is not an object")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<(), D::Error> {
        if self.node.outputs.is_empty() {
            return parser.deserialize_any(self);
        }
        let raw = <&'de RawValue as serde::Deserialize<'de>>::deserialize(parser)?.get();
        for at in &self.node.outputs {
            if let Some(output) = self.outputs.get(*at) {
                self.slots.take(*at, output, raw);
            }
        }
        if self.node.is_leaf() {
            return Ok(());
        }
        // A value that is an output itself and has outputs inside it is walked twice.
        let inside = Node { outputs: Vec::new(), ..self.node.clone() };
        let mut parser = serde_json::Deserializer::from_str(raw);
        NodeSeed { node: &inside, outputs: self.outputs, slots: self.slots, record: false }
            .deserialize(&mut parser)
            .map_err(D::Error::custom)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(KeySeed(self.node))? {
            match child {
                Some(node) => {
                    map.next_value_seed(NodeSeed {
                        node,
                        outputs: self.outputs,
                        slots: self.slots,
                        record: false,
                    })?;
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if let Some(each) = &self.node.each {
            self.slots.mark(each);
        }
        let mut at = 0usize;
        loop {
            let more = match self.node.index(at) {
                Some(node) => seq
                    .next_element_seed(NodeSeed {
                        node,
                        outputs: self.outputs,
                        slots: self.slots,
                        record: false,
                    })?
                    .is_some(),
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            at += 1;
        }
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.nothing()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.nothing()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.nothing()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.nothing()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.nothing()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.nothing()
    }
}

impl Slots<'_> {
    /// Notes that the list of every output below `node` is there.
    fn mark(&mut self, node: &Node) {
        for output in &node.outputs {
            if let Some(slot) = self.0.get_mut(*output) {
                slot.listed = true;
            }
        }
        node.keys.iter().for_each(|(_, child)| self.mark(child));
    }
}

/// Finds a key's node without building the key.
pub(super) struct KeySeed<'n>(pub(super) &'n Node);

impl<'de, 'n> DeserializeSeed<'de> for KeySeed<'n> {
    type Value = Option<&'n Node>;

    fn deserialize<D: Deserializer<'de>>(self, parser: D) -> Result<Self::Value, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<'n> Visitor<'_> for KeySeed<'n> {
    type Value = Option<&'n Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.key(key))
    }
}
