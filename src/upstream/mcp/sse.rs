//! Server-sent events, read piece by piece within bounds (HTML standard §9.2.6, as far as MCP uses it).

/// Splits a stream into the data of its events.
#[derive(Debug)]
pub(super) struct Events {
    buffer: Vec<u8>,
    /// Where the search for the next line end goes on.
    scanned: usize,
    data: String,
    event_max: usize,
}

/// An event was larger than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventTooLarge;

impl Events {
    pub(super) fn new(event_max: usize) -> Self {
        Self { buffer: Vec::new(), scanned: 0, data: String::new(), event_max }
    }

    /// Takes a piece of the stream.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), EventTooLarge> {
        self.buffer.extend_from_slice(piece);
        if self.data.len() + self.buffer.len() > self.event_max + piece.len() {
            return Err(EventTooLarge);
        }
        Ok(())
    }

    /// The data of the next whole event that has any.
    pub(super) fn next(&mut self) -> Result<Option<String>, EventTooLarge> {
        let mut start = 0;
        let mut found = None;
        while let Some(end) = self.line_end(start.max(self.scanned)) {
            let line = self.buffer.get(start..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            start = end + 1;
            self.scanned = start;
            if line.is_empty() {
                if !self.data.is_empty() {
                    found = Some(std::mem::take(&mut self.data));
                    break;
                }
                continue;
            }
            let value = line.strip_prefix(b"data:").map(|v| v.strip_prefix(b" ").unwrap_or(v));
            if let Some(value) = value {
                if self.data.len() + value.len() > self.event_max {
                    return Err(EventTooLarge);
                }
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(&String::from_utf8_lossy(value));
            }
        }
        self.buffer.drain(..start);
        self.scanned = if found.is_some() { 0 } else { self.buffer.len() };
        Ok(found)
    }

    fn line_end(&self, from: usize) -> Option<usize> {
        self.buffer.get(from..)?.iter().position(|b| *b == b'\n').map(|at| from + at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(pieces: &[&[u8]], max: usize) -> Result<Vec<String>, EventTooLarge> {
        let mut events = Events::new(max);
        let mut out = Vec::new();
        for piece in pieces {
            events.push(piece)?;
            while let Some(data) = events.next()? {
                out.push(data);
            }
        }
        Ok(out)
    }

    #[test]
    fn comments_ids_and_empty_events_are_passed_over() {
        let text = b": hello\n\nid: 1\ndata:\n\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\ndata: cut";
        assert_eq!(all(&[text], 100).unwrap(), ["{\"a\":\n1}", "x"]);
    }

    #[test]
    fn a_large_event_is_refused() {
        assert_eq!(all(&[b"data: 0123456789", b"0123456789", b"0123"], 16), Err(EventTooLarge));
        assert_eq!(all(&[b"data: 01234567\ndata: 0123456789\n\n"], 16), Err(EventTooLarge));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(0usize..60, 0..6)) {
            let text: &[u8] = b"data: one\n\nevent: x\ndata: two\ndata: more\n\n:c\n\ndata: three\n\n";
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| *c < text.len()).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts { pieces.push(&text[from..cut]); from = cut; }
            pieces.push(&text[from..]);
            prop_assert_eq!(all(&pieces, 100).unwrap(), ["one", "two\nmore", "three"]);
        }
    }
}
