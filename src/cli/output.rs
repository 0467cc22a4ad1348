//! Data on stdout: lines for people, one JSON document for scripts.

use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use super::Failure;

/// The stdout of this process, buffered; [`Output::flush`] ends it.
#[derive(Debug)]
pub(super) struct Output(BufWriter<Stdout>);

impl Output {
    pub(super) fn stdout() -> Self {
        Self(BufWriter::new(io::stdout()))
    }

    /// One line.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.0, "{line}").map_err(|e| closed(&e))
    }

    /// One JSON document, indented, with a line end.
    pub(super) fn json<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.0, value).map_err(|e| closed(&e.into()))?;
        writeln!(self.0).map_err(|e| closed(&e))
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(|e| closed(&e))
    }
}

fn closed(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::failed(format_args!("stdout cannot be written: {error}")),
    }
}
