//! `tools/list`: meta-tools first, then what the caller may see, in id order, in pages bounded twice.

use std::sync::{Arc, OnceLock};

use crate::catalog::Tool;
use crate::cursor::Digest;
use crate::id::ToolNo;
use crate::limits;
use crate::policy::DiscoveryMode;
use crate::snapshot::Snapshot;

use super::view::View;
use super::{Gateway, ListError, RequestContext, ToolEntry, ToolPage};

const PURPOSE: &str = "tools/list";
/// A list asks nothing: there is one walk per class, mode and state.
const QUESTION: Digest = [0; 32];

impl Gateway {
    /// One page of the tools this caller is shown. The walk over all pages shows each exactly once.
    pub fn list_tools(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<ToolPage, ListError> {
        let view = View::of(self, ctx);
        let binding = view.binding(PURPOSE, QUESTION);
        let from = match cursor {
            None => 0,
            // A compact list has one page: a token of a full walk is of another list.
            Some(_) if view.mode == DiscoveryMode::Compact => return Err(ListError::BadCursor),
            Some(token) => self.cursor_key(&view.snapshot).open(&binding, token)?,
        };
        let mut page = ToolPage { generation: view.snapshot.generation, ..ToolPage::default() };
        let mut bytes = 0;
        if cursor.is_none() {
            bytes = view.shelf.meta_bytes;
            page.tools.clone_from(&view.shelf.meta);
            if ctx.negotiated.is_progressive() {
                // The entry catalog is in the order of names, as the extension promises.
                page.tools.sort_by(|a, b| a.name.cmp(&b.name));
            }
        }
        if view.mode == DiscoveryMode::Compact {
            return Ok(page);
        }
        let listing = self.listing(&view.snapshot);
        let last = page.tools.len() + view.snapshot.settings.page_size;
        page.tools.reserve(view.snapshot.settings.page_size.min(view.shelf.tools));
        for (no, tool) in visible_from(&view, from) {
            let Some((entry, size)) = listing.entry(no, tool) else { continue };
            bytes += size;
            // A page never ends empty: an entry larger than a page is a page of its own.
            let full = page.tools.len() >= last || bytes > limits::PAGE_BYTES_MAX;
            if full && !page.tools.is_empty() {
                page.next_cursor = Some(self.cursor_key(&view.snapshot).seal(&binding, u64::from(no.0)));
                break;
            }
            page.tools.push(Arc::clone(entry));
        }
        Ok(page)
    }
}

/// The visible tools from a number on.
fn visible_from(view: &View, from: u64) -> impl Iterator<Item = (ToolNo, &Tool)> {
    let all = view.roster.visible.iter();
    all.skip_while(move |no| u64::from(no.0) < from).filter_map(|no| Some((no, view.catalog().get(no)?)))
}

/// The entries of one generation with what they take on the wire, by tool number, each made when it is first
/// shown: a page is a copy of pointers.
#[derive(Debug)]
pub(super) struct Listing(Vec<OnceLock<(Arc<ToolEntry>, usize)>>);

impl Listing {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        Self(snapshot.catalog.tools().iter().map(|_| OnceLock::new()).collect())
    }

    pub(super) fn entry(&self, no: ToolNo, tool: &Tool) -> Option<&(Arc<ToolEntry>, usize)> {
        let made = || {
            let entry = entry(tool);
            let bytes = entry.bytes();
            (Arc::new(entry), bytes)
        };
        self.0.get(no.index()).map(|cell| cell.get_or_init(made))
    }
}

/// A catalog tool as it is listed.
fn entry(tool: &Tool) -> ToolEntry {
    ToolEntry {
        name: Arc::clone(&tool.wire_name),
        title: tool.title.clone(),
        description: Arc::clone(&tool.description),
        input_schema: tool.wire_schema.clone(),
        output_schema: tool.output_schema.clone(),
        annotations: tool.annotations.clone(),
        tasks: tool.tasks,
    }
}
