//! A tree of pointers walked along a value while it is checked: what an output asks for is kept as raw text,
//! all else is skipped.

use super::pointer::Step;
use super::scan::{self, Ceilings};
use crate::json::walk::{NotJson, Walk};

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

    /// The place of a member by its name as it stands in the text, quotes included.
    pub(super) fn key(&self, raw: &str) -> Option<&Self> {
        let name = scan::decode(raw)?;
        self.keys.iter().find(|(k, _)| *k == *name).map(|(_, n)| n)
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

    /// Walks a record. A scalar on the way to something deeper has nothing; a record cannot be one.
    pub(super) fn fill(&mut self, node: &Node, outputs: &[Output], walk: &mut Walk<'a>) -> Result<(), Unfit> {
        self.clear(outputs.len());
        if node.outputs.is_empty() && !matches!(walk.peek(), b'{' | b'[') {
            walk.skip()?;
            return Err(Unfit::Told("a record is not an object".to_owned()));
        }
        Ok(self.visit(node, outputs, walk)?)
    }

    fn visit(&mut self, node: &Node, outputs: &[Output], walk: &mut Walk<'a>) -> Result<(), NotJson> {
        if node.outputs.is_empty() {
            return self.inside(node, outputs, walk);
        }
        let raw = walk.skip()?;
        for at in &node.outputs {
            if let Some(output) = outputs.get(*at) {
                self.take(*at, output, raw);
            }
        }
        // A value that is an output itself and has outputs inside it is walked twice.
        if node.is_leaf() { Ok(()) } else { self.inside(node, outputs, &mut Walk::new(raw)) }
    }

    fn inside(&mut self, node: &Node, outputs: &[Output], walk: &mut Walk<'a>) -> Result<(), NotJson> {
        match walk.peek() {
            b'{' => walk.members(|walk, name| self.below(node.key(name), outputs, walk)),
            b'[' => {
                if let Some(each) = &node.each {
                    self.mark(each);
                }
                walk.elements(|walk, at| self.below(node.index(at), outputs, walk))
            }
            _ => walk.skip().map(drop),
        }
    }

    fn below(&mut self, node: Option<&Node>, outputs: &[Output], walk: &mut Walk<'a>) -> Result<(), NotJson> {
        match node {
            Some(node) => self.visit(node, outputs, walk),
            None => walk.skip().map(drop),
        }
    }
}

/// Why a text does not fit what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is no JSON.
    NotJson,
    /// It is something else than what was expected.
    Told(String),
}

impl From<NotJson> for Unfit {
    fn from(_: NotJson) -> Self {
        Self::NotJson
    }
}

impl Unfit {
    /// In words, for a text that is `text`.
    pub(super) fn told(self, text: &str) -> String {
        match self {
            Self::NotJson => scan::valid(text).err().unwrap_or_else(|| "this is no JSON".to_owned()),
            Self::Told(message) => message,
        }
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
