//! A small HTTP server on loopback: objects, ranges, and the faults that stores have.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::fixture::Objects;

/// What the server does to requests of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answers so many requests with 503.
    Busy(u32),
    /// Answers one request with 429, and asks to be left alone for a second.
    Rest,
    /// Answers one request late.
    Late,
    /// Never answers.
    Silent,
    /// Sends half of the body and hangs up, so many times.
    CutOff(u32),
    /// Claims a length of a terabyte.
    Huge,
    /// Sends other bytes.
    Garbage,
}

#[derive(Default)]
struct State {
    objects: Objects,
    faults: BTreeMap<String, Fault>,
    /// So many in a hundred requests for chunks fail with 500, evenly spread.
    failing: u64,
    counted: u64,
    /// Requests as `METHOD key range`.
    log: Vec<String>,
}

/// A server that lives as long as the process.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(crate) fn start(objects: Objects) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State { objects, ..State::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Server { url, state }
    }

    pub(crate) fn fault(&self, key: &str, fault: Fault) {
        self.state.lock().expect("not poisoned").faults.insert(key.to_owned(), fault);
    }

    /// Lets so many in a hundred requests for chunks fail.
    pub(crate) fn fail(&self, percent: u64) {
        self.state.lock().expect("not poisoned").failing = percent;
    }

    /// The requests so far, and forgets them.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().expect("not poisoned").log)
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut range = None;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("range: bytes=") {
                range = Some(value.to_owned());
            }
        }
        let mut parts = line.split_whitespace();
        let (method, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        // A bucket in front of the key is as good as none.
        let key = path.trim_start_matches('/').trim_start_matches("bucket/");
        if !respond(&mut stream, state, method, key, range.as_deref()) {
            return;
        }
    }
}

/// Says whether the connection stays open.
fn respond(
    stream: &mut TcpStream,
    state: &Mutex<State>,
    method: &str,
    key: &str,
    range: Option<&str>,
) -> bool {
    let (body, fault, fails) = {
        let mut state = state.lock().expect("not poisoned");
        state.log.push(format!("{method} {key} {}", range.unwrap_or("-")));
        let fault = state.faults.get(key).copied();
        match state.faults.get_mut(key) {
            Some(Fault::Busy(n) | Fault::CutOff(n)) if *n > 0 => *n -= 1,
            Some(Fault::Busy(_) | Fault::CutOff(_) | Fault::Rest | Fault::Late) => {
                state.faults.remove(key);
            }
            _ => {}
        }
        let chunks = u64::from(key.contains("/c/"));
        state.counted += chunks;
        let fails = chunks > 0 && state.counted * 37 % 100 < state.failing;
        (state.objects.get(key).cloned(), fault, fails)
    };
    if fault == Some(Fault::Late) {
        // Long enough for another one.
        let (_kept, never) = std::sync::mpsc::channel::<()>();
        assert!(never.recv_timeout(std::time::Duration::from_secs(2)).is_err());
    }
    if fault == Some(Fault::Silent) {
        // As long as the process lives.
        loop {
            std::thread::park();
        }
    }
    let simple = |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
    let send = |stream: &mut TcpStream, bytes: &[u8]| stream.write_all(bytes).is_ok();
    if fails {
        return send(stream, simple("500 Internal Server Error").as_bytes());
    }
    match (body, fault) {
        (_, Some(Fault::Busy(n))) if n > 0 => send(stream, simple("503 Slow Down").as_bytes()),
        (_, Some(Fault::Rest)) => {
            let rest =
                "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
            send(stream, rest.as_bytes())
        }
        (None, _) => send(stream, simple("404 Not Found").as_bytes()),
        (Some(body), fault) => {
            let size = body.len();
            let (start, end) = match range.and_then(|range| range.split_once('-')) {
                Some(("", last)) => (size - last.parse::<usize>().unwrap_or(0).min(size), size),
                Some((from, to)) => {
                    let from = from.parse().unwrap_or(0);
                    (from, to.parse::<usize>().map_or(size, |to| (to + 1).min(size)))
                }
                None => (0, size),
            };
            let mut part = body[start.min(end)..end].to_vec();
            if fault == Some(Fault::Garbage) {
                part.iter_mut().for_each(|byte| *byte ^= 0x5a);
            }
            let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
            let len = if fault == Some(Fault::Huge) { 1 << 40 } else { part.len() };
            let mut head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nETag: \"1\"\r\n\
                 Last-Modified: Tue, 01 Dec 2026 00:00:00 GMT\r\n"
            );
            if range.is_some() {
                let last = start + len.max(1) - 1;
                head += &format!("Content-Range: bytes {start}-{last}/{size}\r\n");
            }
            head += "\r\n";
            if method == "HEAD" {
                return send(stream, head.as_bytes());
            }
            if matches!(fault, Some(Fault::CutOff(n)) if n > 0) {
                part.truncate(part.len() / 2);
                send(stream, head.as_bytes());
                send(stream, &part);
                return false;
            }
            send(stream, head.as_bytes()) && send(stream, &part)
        }
    }
}
