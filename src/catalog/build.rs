//! Building a catalog: ids in order, wire names unique, lookups both by id and by wire name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::names::{plain, wire_name};
use super::tool::Tool;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::id::{ToolId, ToolNo};

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// All tools of one generation. Immutable; shared by `Arc`.
#[derive(Debug, Default)]
pub struct Catalog {
    serial: u64,
    /// Each by itself: a call keeps its tool longer than its view, and a copy would touch a dozen counters that all
    /// threads share.
    tools: Vec<Arc<Tool>>,
    by_id: HashMap<ToolId, ToolNo>,
    by_wire_name: HashMap<Arc<str>, ToolNo>,
    by_alias: HashMap<Arc<str>, ToolNo>,
}

impl Catalog {
    /// A number that no other catalog built by this process has: what is computed from a catalog is kept
    /// under it. 0 is the empty default catalog.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// How many tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tools in id order, which is the order of their numbers.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// A tool by number.
    pub fn get(&self, no: ToolNo) -> Option<&Tool> {
        self.tools.get(no.index()).map(|tool| &**tool)
    }

    /// The same to be kept.
    pub fn share(&self, no: ToolNo) -> Option<Arc<Tool>> {
        self.tools.get(no.index()).map(Arc::clone)
    }

    /// A tool by its id, its wire name or an alias, spelled exactly.
    pub fn lookup(&self, name: &str) -> Option<(ToolNo, &Tool)> {
        let named = self.by_id.get(name).or_else(|| self.by_wire_name.get(name));
        let no = named.or_else(|| self.by_alias.get(name)).copied()?;
        Some((no, self.get(no)?))
    }

    /// Numbers and tools in id order.
    pub fn iter(&self) -> impl Iterator<Item = (ToolNo, &Tool)> {
        self.tools.iter().enumerate().map(|(i, t)| (ToolNo(u32::try_from(i).unwrap_or(u32::MAX)), &**t))
    }
}

/// Collects tools and gives them their wire names.
#[derive(Debug, Default)]
pub struct CatalogBuilder {
    tools: Vec<Tool>,
    reserved: Vec<String>,
}

impl CatalogBuilder {
    /// A builder that keeps `reserved` wire names (the meta-tools') free.
    pub fn new(reserved: Vec<String>) -> Self {
        Self { tools: Vec::new(), reserved }
    }

    /// Adds a tool; its wire name is given by [`CatalogBuilder::build`].
    pub fn push(&mut self, tool: Tool) {
        self.tools.push(tool);
    }

    /// Sorts by id, gives wire names, refuses what would be ambiguous. A tool that cannot be kept is
    /// reported and left out; the rest stands.
    pub fn build(mut self, diagnostics: &mut Diagnostics) -> Catalog {
        self.tools.sort_by(|a, b| a.id.cmp(&b.id));
        self.tools.dedup_by(|b, a| {
            let same = a.id == b.id;
            if same {
                diagnostics.push(
                    Diagnostic::error(
                        "duplicate-tool",
                        format!("scripts/{}", b.upstream),
                        format!("two tools have the id `{}`", b.id),
                    )
                    .help("rename one of them or exclude it"),
                );
            }
            same
        });
        let mut uses: HashMap<String, usize> = self.reserved.iter().map(|n| (n.clone(), 1)).collect();
        for tool in &self.tools {
            *uses.entry(plain(&tool.id)).or_default() += 1;
        }
        let mut catalog =
            Catalog { serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed), ..Catalog::default() };
        for mut tool in self.tools {
            tool.wire_name = Arc::from(wire_name(&tool.id, uses.get(&plain(&tool.id)) == Some(&1)));
            if catalog.by_wire_name.contains_key(&tool.wire_name)
                || self.reserved.contains(&tool.wire_name.as_ref().to_owned())
            {
                diagnostics.push(
                    Diagnostic::error(
                        "ambiguous-name",
                        format!("scripts/{}", tool.upstream),
                        format!(
                            "the wire name `{}` of `{}` is taken by another tool",
                            tool.wire_name, tool.id
                        ),
                    )
                    .help("rename one of the tools or exclude it"),
                );
                continue;
            }
            let no = ToolNo(u32::try_from(catalog.tools.len()).unwrap_or(u32::MAX));
            catalog.by_wire_name.insert(Arc::clone(&tool.wire_name), no);
            catalog.by_id.insert(tool.id.clone(), no);
            catalog.tools.push(Arc::new(tool));
        }
        // An id that is spelled like another tool's wire name would make a call ambiguous.
        for (no, tool) in catalog.iter() {
            if catalog.by_wire_name.get(tool.id.as_str()).is_some_and(|other| *other != no) {
                diagnostics.push(
                    Diagnostic::error(
                        "ambiguous-name",
                        format!("scripts/{}", tool.upstream),
                        format!("the id `{}` is also the wire name of another tool", tool.id),
                    )
                    .help("rename one of the tools"),
                );
            }
        }
        catalog.take_aliases(&self.reserved, diagnostics);
        catalog
    }
}

impl Catalog {
    /// Notes the aliases. One that is another tool's name or alias would send calls astray: it is reported and
    /// names nothing.
    fn take_aliases(&mut self, reserved: &[String], diagnostics: &mut Diagnostics) {
        let mut found: HashMap<Arc<str>, ToolNo> = HashMap::new();
        for (no, tool) in self.iter() {
            for alias in tool.aliases.iter() {
                let named = self.by_id.get(&**alias).or_else(|| self.by_wire_name.get(alias));
                let taken = named.or_else(|| found.get(alias)).is_some_and(|other| *other != no);
                if taken || reserved.iter().any(|name| **name == **alias) {
                    let message = format!("the alias `{alias}` of `{}` is another tool's name", tool.id);
                    let file = format!("scripts/{}", tool.upstream);
                    diagnostics.push(
                        Diagnostic::error("ambiguous-name", file, message)
                            .help("choose another one, or none"),
                    );
                } else {
                    found.insert(Arc::clone(alias), no);
                }
            }
        }
        self.by_alias = found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::UpstreamId;
    use crate::schema::SchemaText;

    fn build(ids: &[&str]) -> (Catalog, Diagnostics) {
        let mut builder = CatalogBuilder::new(vec!["docent_search_tools".to_owned()]);
        for id in ids {
            let (upstream, name) = id.split_once('.').unwrap_or(("u", id));
            builder.push(Tool::new(
                ToolId::parse(id).unwrap(),
                UpstreamId::parse(upstream).unwrap(),
                name,
                SchemaText::empty_object(),
            ));
        }
        let mut diagnostics = Diagnostics::default();
        (builder.build(&mut diagnostics), diagnostics)
    }

    #[test]
    fn both_names_find_the_tool_and_clashes_get_suffixes() {
        let (catalog, diagnostics) = build(&["pdf_merge.all", "pdf.merge_all", "a.x"]);
        assert!(diagnostics.0.is_empty());
        assert_eq!(
            catalog.tools().iter().map(|t| t.id.as_str()).collect::<Vec<_>>(),
            ["a.x", "pdf.merge_all", "pdf_merge.all"]
        );
        for tool in catalog.tools() {
            assert_eq!(catalog.lookup(tool.id.as_str()).unwrap().1.id, tool.id);
            assert_eq!(catalog.lookup(&tool.wire_name).unwrap().1.id, tool.id);
            assert!(tool.wire_name.len() <= 48);
        }
        assert!(catalog.lookup("pdf_merge_all").is_none(), "the ambiguous plain form names neither");
    }

    #[test]
    fn a_tool_cannot_take_a_meta_tools_name_nor_come_twice() {
        let (catalog, diagnostics) = build(&["docent.search_tools", "a.x", "a.x"]);
        assert_ne!(&*catalog.lookup("docent.search_tools").unwrap().1.wire_name, "docent_search_tools");
        assert_eq!(diagnostics.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["duplicate-tool"]);
    }

    #[test]
    fn an_alias_finds_its_tool_and_never_another_ones() {
        let mut builder = CatalogBuilder::new(vec!["docent_search_tools".to_owned()]);
        for (id, aliases) in
            [("a.x", &["greet", "b_y"][..]), ("b.y", &["greet", "docent_search_tools", "b.y"])]
        {
            let (upstream, name) = id.split_once('.').unwrap();
            let (id, upstream) = (ToolId::parse(id).unwrap(), UpstreamId::parse(upstream).unwrap());
            let mut tool = Tool::new(id, upstream, name, SchemaText::empty_object());
            tool.aliases = aliases.iter().map(|a| Arc::from(*a)).collect();
            builder.push(tool);
        }
        let mut diagnostics = Diagnostics::default();
        let catalog = builder.build(&mut diagnostics);
        assert_eq!(catalog.lookup("greet").unwrap().1.id.as_str(), "a.x", "the first has it");
        assert_eq!(catalog.lookup("b_y").unwrap().1.id.as_str(), "b.y");
        assert!(catalog.lookup("docent_search_tools").is_none());
        assert_eq!(diagnostics.0.iter().map(|d| d.code).collect::<Vec<_>>(), ["ambiguous-name"; 3]);
    }
}
