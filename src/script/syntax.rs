//! Every syntax mistake of a script at once. Rhai's parser stops at the first, so a file that does not parse is
//! parsed again function by function, each in its own place among blank lines.

use rhai::{AST, Engine, ParseError, Position};

/// More mistakes than this in one file are one mistake, and the rest of the list is noise.
const MISTAKES_MAX: usize = 20;

/// The parsed script, or its mistakes in order of their places.
pub(super) fn parse(engine: &Engine, text: &str) -> Result<AST, Vec<ParseError>> {
    let whole = match engine.compile(text) {
        Ok(ast) => return Ok(ast),
        Err(error) => error,
    };
    let mut all: Vec<ParseError> = Vec::new();
    for (line, part) in parts(text) {
        if all.len() == MISTAKES_MAX {
            break;
        }
        let alone = "\n".repeat(line) + part;
        if let Err(error) = engine.compile(&alone) {
            all.push(within(error, line + part.lines().count()));
        }
    }
    // Each function may be fine by itself: two of one name, say.
    Err(if all.is_empty() { vec![whole] } else { all })
}

/// A brace that is never closed is missed after the last line; it is told at that line.
fn within(mut error: ParseError, last_line: usize) -> ParseError {
    if error.position().line().is_none_or(|line| line > last_line) {
        error.1 = Position::new(u16::try_from(last_line).unwrap_or(u16::MAX), 1);
    }
    error
}

/// The text cut where a function begins at the start of a line, each part with the number of lines before it.
fn parts(text: &str) -> Vec<(usize, &str)> {
    let mut cuts = vec![(0, 0)];
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if at > 0 && (line.starts_with("fn ") || line.starts_with("private fn ")) {
            cuts.push((number, at));
        }
        at += line.len();
    }
    let ends = cuts.iter().skip(1).map(|(_, at)| *at).chain([text.len()]);
    cuts.iter().zip(ends).filter_map(|((line, from), to)| Some((*line, text.get(*from..to)?))).collect()
}
