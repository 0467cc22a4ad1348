//! Lists of resources, templates and prompts, in pages bounded twice, and the digest that tells of changes.

use std::sync::Arc;

use super::super::{Gateway, ListError, RequestContext, Surface};
use super::{OfferView, PromptPage, ResourcePage, own};
use crate::catalog::{PromptEntry, ResourceEntry};
use crate::cursor::Binding;
use crate::limits;

/// Positions from here on are those of the caller's files: no catalog has so many resources.
const FILES_FROM: u64 = 1 << 40;
/// Member names and punctuation of one entry.
const FRAME: usize = 200;

/// One walk over a list.
struct Walk<'a> {
    gateway: &'a Gateway,
    view: &'a OfferView,
    binding: Binding<'a>,
    cursor: Option<&'a str>,
}

impl Walk<'_> {
    /// Where the page begins.
    fn position(&self) -> Result<u64, ListError> {
        let key = self.gateway.cursor_key(&self.view.view.snapshot);
        self.cursor.map_or(Ok(0), |token| Ok(key.open(&self.binding, token)?))
    }

    /// The page that the cursor stands before: at most as many entries and bytes as a page has, never none.
    /// `first` stand before all others, on the first page only.
    fn page<'r, E: 'r>(
        &self,
        first: Vec<Arc<E>>,
        rows: impl Iterator<Item = (usize, &'r Arc<E>)>,
        size: fn(&E) -> usize,
    ) -> Result<(Vec<Arc<E>>, Option<String>), ListError> {
        let snapshot = &self.view.view.snapshot;
        let key = self.gateway.cursor_key(snapshot);
        let from = self.position()?;
        let mut page = if self.cursor.is_none() { first } else { Vec::new() };
        let most = page.len() + snapshot.settings.page_size;
        let mut bytes: usize = page.iter().map(|e| size(e)).sum();
        for (at, entry) in rows.map(|(at, e)| (u64::try_from(at).unwrap_or(u64::MAX), e)) {
            if at < from {
                continue;
            }
            bytes += size(entry);
            if (page.len() >= most || bytes > limits::PAGE_BYTES_MAX) && !page.is_empty() {
                return Ok((page, Some(key.seal(&self.binding, at))));
            }
            page.push(Arc::clone(entry));
        }
        Ok((page, None))
    }
}

fn size(entry: &ResourceEntry) -> usize {
    let texts = [Some(&entry.uri), Some(&entry.name), entry.title.as_ref(), entry.description.as_ref()];
    FRAME + texts.into_iter().flatten().map(|t| crate::json::encoded_len(&**t)).sum::<usize>()
}

fn size_of_prompt(entry: &PromptEntry) -> usize {
    let text = |t: &Option<Arc<str>>| t.as_ref().map_or(0, |t| crate::json::encoded_len(&**t));
    let arguments =
        entry.arguments.iter().map(|a| a.name.len() + text(&a.title) + text(&a.description) + FRAME / 2);
    FRAME + entry.name.len() + text(&entry.title) + text(&entry.description) + arguments.sum::<usize>()
}

impl Gateway {
    /// One page of the resources that this caller may read; its own files come last. Files come and go with
    /// every call, without a `list_changed`.
    pub async fn list_resources(
        &self,
        ctx: &RequestContext,
        cursor: Option<&str>,
    ) -> Result<ResourcePage, ListError> {
        let view = OfferView::of(self, ctx);
        let walk =
            Walk { gateway: self, view: &view, binding: binding(&view, ctx, "resources/list"), cursor };
        let rows = view.resources().map(|(at, r)| (at, &r.entry));
        let (mut resources, mut next_cursor) = walk.page(Vec::new(), rows, size)?;
        if next_cursor.is_none() {
            let most = view.view.snapshot.settings.page_size.saturating_sub(resources.len());
            let from = walk.position()?.saturating_sub(FILES_FROM);
            let found = self.files().list(&ctx.principal.subject, from, most + 1).await;
            let files = found.unwrap_or_else(|error| {
                tracing::error!(error = %error, "a caller's files could not be listed");
                Vec::new()
            });
            let key = self.cursor_key(&view.view.snapshot);
            next_cursor = files.get(most).map(|f| key.seal(&walk.binding, FILES_FROM + f.seq));
            resources.extend(files.iter().take(most).map(own::file));
        }
        Ok(ResourcePage { resources, next_cursor })
    }

    /// One page of the templates that this caller may use; docent's own come first.
    pub fn list_templates(
        &self,
        ctx: &RequestContext,
        cursor: Option<&str>,
    ) -> Result<ResourcePage, ListError> {
        let view = OfferView::of(self, ctx);
        let binding = binding(&view, ctx, "resources/templates/list");
        let walk = Walk { gateway: self, view: &view, binding, cursor };
        let rows = view.templates().map(|(at, r)| (at, &r.entry));
        let (resources, next_cursor) = walk.page(own::templates(self), rows, size)?;
        Ok(ResourcePage { resources, next_cursor })
    }

    /// One page of the prompts that this caller may use.
    pub fn list_prompts(&self, ctx: &RequestContext, cursor: Option<&str>) -> Result<PromptPage, ListError> {
        let view = OfferView::of(self, ctx);
        let walk = Walk { gateway: self, view: &view, binding: binding(&view, ctx, "prompts/list"), cursor };
        let rows = view.prompts().map(|(at, p)| (at, &p.entry));
        let (prompts, next_cursor) = walk.page(Vec::new(), rows, size_of_prompt)?;
        Ok(PromptPage { prompts, next_cursor })
    }

    /// What a `list_changed` of resources depends on, for this caller.
    pub fn resource_surface(&self, ctx: &RequestContext) -> Surface {
        let view = OfferView::of(self, ctx);
        digest(view.resources().chain(view.templates()).map(|(_, r)| &r.listed))
    }

    /// What a `list_changed` of prompts depends on, for this caller.
    pub fn prompt_surface(&self, ctx: &RequestContext) -> Surface {
        let view = OfferView::of(self, ctx);
        digest(view.prompts().map(|(_, p)| &p.digest))
    }
}

fn digest<'a>(parts: impl Iterator<Item = &'a [u8; 32]>) -> Surface {
    let mut hasher = blake3::Hasher::new();
    parts.for_each(|part| {
        hasher.update(part);
    });
    Surface(*hasher.finalize().as_bytes())
}

/// A page token of one walk. The caller is part of it: a list may end in the caller's own files.
fn binding<'a>(view: &OfferView, ctx: &RequestContext, purpose: &'a str) -> Binding<'a> {
    let question = *blake3::hash(ctx.principal.subject.as_bytes()).as_bytes();
    Binding { purpose, class: view.class(), question, state: view.offers().digest }
}
