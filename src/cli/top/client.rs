//! Asks a run over its control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::trace::control::protocol::{Answer, Request, What};

/// A run that does not answer for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer has no more bytes than this.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A connection to a run.
#[derive(Debug)]
pub(super) struct Client {
    socket: BufReader<UnixStream>,
    first: Answer,
}

impl Client {
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let mut socket = BufReader::new(UnixStream::connect(path)?);
        socket.get_ref().set_read_timeout(Some(PATIENCE))?;
        socket.get_ref().set_write_timeout(Some(PATIENCE))?;
        let first = ask(&mut socket, &Request::Get(What::Stats))?;
        Ok(Client { socket, first })
    }

    /// What it said first.
    pub(super) fn first(&self) -> &Answer {
        &self.first
    }

    /// The pipeline's name.
    pub(super) fn name(&self) -> &str {
        &self.first.run
    }

    /// The answer; if the run has ended that is its last word.
    pub(super) fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        ask(&mut self.socket, request)
    }
}

fn ask(socket: &mut BufReader<UnixStream>, request: &Request) -> io::Result<Answer> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    // What was said before the end can still be read.
    let written = socket.get_mut().write_all(&line);
    let mut answer = Vec::new();
    socket.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut answer)?;
    if answer.is_empty() {
        written?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&answer)?)
}
