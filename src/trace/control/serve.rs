//! Answers on a run's control socket, from a thread of its own: whoever asks slowly, or nonsense, or
//! goes away, does not hold up the run.

use std::io;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::folder::{Claim, claim};
use super::protocol::{Answer, REQUEST_BYTES_MAX, Request, SetWorkers, VERSION, What, WorkersSet};
use crate::running::Handle;
use crate::trace::{Delivered, RunReport};

/// So many may be connected at a time.
const CLIENTS_MAX: usize = 32;
/// Who does not take an answer for so long is dropped ...
const PATIENCE: Duration = Duration::from_secs(2);
/// ... and when the run has ended, so soon.
const FAREWELL: Duration = Duration::from_millis(100);
/// Who asks nothing for so long is dropped: others may want the place.
const IDLE: Duration = Duration::from_secs(60);
/// Between two requests of a client: asking locks the run's meters for a moment.
const PAUSE: Duration = Duration::from_millis(2);

/// Serves a run's figures, and takes changes of its workers, on a unix socket that only this user can
/// reach, until the guard is dropped: `$XDG_RUNTIME_DIR/forebay/<pid>.sock`, or
/// `/tmp/forebay-<uid>/<pid>.sock` where that is not set; `FOREBAY_SOCKETS` names another folder.
/// `forebay top` shows such runs.
///
/// A request is a line of JSON, and so is each answer:
///
/// - `{"get": "stats"}`: `{"version": 1, "pid": 4711, "run": "era5", "stats": {...}}` with a
///   [`RunReport`], in which `items` are those that the consumer received;
/// - `{"get": "waits"}`: the same with `"waits"`, who waits for whom;
/// - `{"set": {"stage": "decode", "workers": 5}}`: the same with `"set"`, in which `before` is how many
///   they were, see [`Handle::set_workers`];
/// - anything else: the same with `"error"`, a text.
///
/// When the guard is dropped, who is still connected gets the last figures, with `"last": true`.
///
/// ```
/// use std::io::{BufRead, BufReader, Write};
/// use std::os::unix::net::UnixStream;
///
/// use forebay::prelude::*;
///
/// let run = Pipeline::from(source::iter("numbers", 0..100_u64))
///     .then(cpu::map("square", |x: u64| Ok::<_, Never>(x * x)))
///     .run()?;
/// let serving = forebay::trace::serve(&run.handle())?;
/// let mut socket = UnixStream::connect(serving.path())?;
/// socket.write_all(b"{\"get\": \"stats\"}\n")?;
/// let mut answer = String::new();
/// BufReader::new(socket).read_line(&mut answer)?;
/// assert!(answer.contains("\"square\""));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The folder can't be made, or is open to others; or the socket can't be made.
pub fn serve(run: &Handle) -> io::Result<Serving> {
    let claim = claim()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(&claim.path)?
    };
    let (run, closing) = (run.clone(), CancellationToken::new());
    let until = closing.clone();
    let answering = move || runtime.block_on(answer_all(listener, run, until));
    let thread = std::thread::Builder::new().name("forebay:control".into()).spawn(answering)?;
    Ok(Serving { claim, closing, thread: Some(thread) })
}

/// A run's control socket, see [`serve`]. Dropping it removes the socket.
#[derive(Debug)]
pub struct Serving {
    claim: Claim,
    closing: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.claim.path
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.closing.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::debug!("the control socket panicked");
        }
    }
}

async fn answer_all(listener: UnixListener, run: Handle, closing: CancellationToken) {
    let mut clients = JoinSet::new();
    loop {
        let client = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            Some(_) = clients.join_next(), if !clients.is_empty() => continue,
            client = listener.accept() => client,
        };
        match client {
            Ok((client, _)) if clients.len() < CLIENTS_MAX => {
                clients.spawn(attend(client, run.clone(), closing.clone(), IDLE));
            }
            // Who is one too many sees the end of the file.
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "nobody can connect");
                sleep(PATIENCE).await;
            }
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}

/// One client, until it leaves or asks nothing for as long as `idle`.
async fn attend(client: UnixStream, run: Handle, closing: CancellationToken, idle: Duration) {
    let (reader, mut writer) = client.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let line = tokio::select! {
            line = timeout(idle, next_line(&mut reader)) => line.unwrap_or(Line::End),
            () = closing.cancelled() => {
                let last = Answer { last: true, ..stats(&run) };
                send(&mut writer, &last, FAREWELL).await;
                return;
            }
        };
        let (answer, goes_on) = match line {
            Line::Request(line) => (answer(&run, &line), true),
            Line::TooLong => {
                let error = format!("a request has {REQUEST_BYTES_MAX} bytes at most");
                (Answer { error: Some(error), ..nothing(&run) }, false)
            }
            Line::End => return,
        };
        let patience = if closing.is_cancelled() { FAREWELL } else { PATIENCE };
        if !send(&mut writer, &answer, patience).await || !goes_on {
            return;
        }
        sleep(PAUSE).await;
    }
}

enum Line {
    Request(Vec<u8>),
    TooLong,
    End,
}

async fn next_line(reader: &mut BufReader<OwnedReadHalf>) -> Line {
    let mut line = Vec::new();
    let most = REQUEST_BYTES_MAX as u64 + 1;
    match reader.take(most).read_until(b'\n', &mut line).await {
        Ok(_) if line.last() == Some(&b'\n') => Line::Request(line),
        Ok(_) if line.len() > REQUEST_BYTES_MAX => Line::TooLong,
        // Half a request and then the end is none.
        _ => Line::End,
    }
}

/// Says whether the client took it.
async fn send(writer: &mut OwnedWriteHalf, answer: &Answer, patience: Duration) -> bool {
    let Ok(mut line) = serde_json::to_vec(answer) else {
        return false;
    };
    line.push(b'\n');
    matches!(timeout(patience, writer.write_all(&line)).await, Ok(Ok(())))
}

fn answer(run: &Handle, line: &[u8]) -> Answer {
    match Request::parse(line) {
        Ok(Request::Get(What::Stats)) => stats(run),
        Ok(Request::Get(What::Waits)) => Answer { waits: Some(run.waits()), ..nothing(run) },
        Ok(Request::Set(SetWorkers { stage, workers })) => match run.set_workers(&stage, workers) {
            Ok(before) => {
                let set = Some(WorkersSet { stage, workers, before });
                Answer { set, ..nothing(run) }
            }
            Err(error) => Answer { error: Some(error.to_string()), ..nothing(run) },
        },
        Err(error) => Answer { error: Some(error), ..nothing(run) },
    }
}

fn stats(run: &Handle) -> Answer {
    let stats = run.stats();
    let delivered = Delivered { items: stats.items, batches: 0 };
    let error = run.fault().map(|fault| fault.to_string());
    Answer { stats: Some(RunReport::new(&stats, delivered, [], error)), ..nothing(run) }
}

fn nothing(run: &Handle) -> Answer {
    Answer {
        version: VERSION,
        pid: std::process::id(),
        run: run.name().to_owned(),
        stats: None,
        waits: None,
        set: None,
        error: None,
        last: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Pipeline;
    use crate::source;

    #[test]
    fn who_asks_nothing_is_dropped_and_who_asks_stays() {
        let run = Pipeline::from(source::iter("numbers", 0..3_u64)).run().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, served) = UnixStream::pair().unwrap();
            let idle = Duration::from_millis(300);
            let attending =
                tokio::spawn(attend(served, run.handle(), CancellationToken::new(), idle));
            let (reader, mut writer) = client.into_split();
            let mut reader = BufReader::new(reader);
            for _ in 0..6 {
                sleep(idle / 4).await;
                writer.write_all(b"{\"get\":\"stats\"}\n").await.unwrap();
                let mut line = String::new();
                assert!(reader.read_line(&mut line).await.unwrap() > 0, "it asks, so it stays");
            }
            let mut line = String::new();
            assert_eq!(reader.read_line(&mut line).await.unwrap(), 0, "it says nothing any more");
            attending.await.unwrap();
        });
    }
}
