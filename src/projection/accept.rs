//! Accepts a text as JSON and remembers where its larger values end.

use super::document::Span;
use crate::json::walk::{NotJson, Notes, Walk};

/// Bytes from which the end of a value is remembered: a smaller one is walked over in less time than it is
/// looked up.
const EXTENT_BYTES: u32 = 64;
/// Levels below which no end is remembered: what is remembered stays smaller than the text itself.
const EXTENT_DEPTH: usize = 8;

/// The larger values of a JSON text in the order of their beginnings.
pub(super) fn extents(text: &str) -> Result<Vec<Span>, NotJson> {
    let mut walk = Walk::noting(text, Extents::default());
    walk.skip()?;
    walk.end()?;
    Ok(walk.into_notes().found)
}

#[derive(Default)]
struct Extents {
    found: Vec<Span>,
    /// Where among them stands what is open.
    open: Vec<usize>,
}

impl Notes<'_> for Extents {
    fn opened(&mut self, at: usize, level: usize) {
        if level < EXTENT_DEPTH {
            self.open.push(self.found.len());
            self.found.push(Span::of(at, at));
        }
    }

    fn closed(&mut self, end: usize, level: usize) {
        if level >= EXTENT_DEPTH {
            return;
        }
        let Some(slot) = self.open.pop() else { return };
        let Some(span) = self.found.get_mut(slot) else { return };
        *span = span.until(end);
        // Whatever stood inside was smaller still and is gone.
        if span.len() < EXTENT_BYTES {
            self.found.truncate(slot);
        }
    }

    fn text(&mut self, at: usize, end: usize, level: usize) {
        let span = Span::of(at, end);
        if level <= EXTENT_DEPTH && span.len() >= EXTENT_BYTES {
            self.found.push(span);
        }
    }
}
