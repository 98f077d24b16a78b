//! Serves the figures of a run to Prometheus, on a thread of its own.
//!
//! Whoever asks can't disturb the run: connections are few, short and small, each answers one
//! request, and the figures are read a few times a second however often they are asked for.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::prometheus::{MetricsFormat, metrics_text};
use crate::running::Handle;

/// Connections at a time; others wait in the system's backlog.
const CONNECTIONS: usize = 32;
/// How long a request's head may take.
const HEAD: Duration = Duration::from_secs(3);
/// How long a connection may take in all.
const CONNECTION: Duration = Duration::from_secs(10);
/// What a request's head may have, in bytes and in fields.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_FIELDS: usize = 64;
/// Figures of this age are told again.
const FRESH: Duration = Duration::from_millis(100);

/// Serves the figures of a run at `/metrics`, in the text formats of Prometheus and OpenMetrics, until
/// what it returns is dropped. Port 0 picks one.
///
/// ```
/// use forebay::prelude::*;
/// use forebay::trace;
///
/// let run = Pipeline::from(source::iter("numbers", 0..3_u64)).run()?;
/// let metrics = trace::serve_metrics("127.0.0.1:0", &run.handle())?;
/// println!("metrics at http://{}/metrics", metrics.addr());
/// run.drain()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The address can't be listened at, or the thread can't be started.
pub fn serve_metrics(
    addr: impl ToSocketAddrs + fmt::Display,
    run: &Handle,
) -> Result<MetricsServer, MetricsError> {
    MetricsListener::bind(addr)?.serve(run)
}

/// Why metrics can't be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address can't be listened at.
    #[error("can't serve metrics at {addr}: {source}")]
    Bind {
        /// The address.
        addr: String,
        /// Why.
        source: io::Error,
    },
    /// Its thread can't be started.
    #[error("can't start the thread that serves metrics: {0}")]
    Start(#[from] io::Error),
}

/// An address at which metrics will be served once there is a run.
#[derive(Debug)]
pub(crate) struct MetricsListener {
    addr: SocketAddr,
    listener: TcpListener,
}

impl MetricsListener {
    pub(crate) fn bind(addr: impl ToSocketAddrs + fmt::Display) -> Result<Self, MetricsError> {
        let shown = addr.to_string();
        let bound = TcpListener::bind(addr).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(MetricsListener { addr: listener.local_addr()?, listener })
        });
        bound.map_err(|source| MetricsError::Bind { addr: shown, source })
    }

    pub(crate) fn serve(self, run: &Handle) -> Result<MetricsServer, MetricsError> {
        let MetricsListener { addr, listener } = self;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _guard = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let page = Arc::new(Page { run: run.clone(), texts: Mutex::default() });
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let body = move || serve(&runtime, listener, page, stopped);
        let thread = std::thread::Builder::new().name("forebay:metrics".into()).spawn(body)?;
        Ok(MetricsServer { addr, stop, thread: Some(thread) })
    }
}

/// Serves metrics until it is dropped.
#[derive(Debug)]
#[must_use = "metrics are served until this is dropped"]
pub struct MetricsServer {
    addr: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::debug!("the thread that serves metrics panicked");
        }
    }
}

fn serve(
    runtime: &Runtime,
    listener: tokio::net::TcpListener,
    page: Arc<Page>,
    stop: CancellationToken,
) {
    runtime.block_on(async {
        tokio::select! {
            () = accept(listener, page) => {}
            () = stop.cancelled() => {}
        }
    });
}

/// Accepts connections for ever. Dropping it closes them.
async fn accept(listener: tokio::net::TcpListener, page: Arc<Page>) {
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        if open.len() >= CONNECTIONS {
            open.join_next().await;
            continue;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                open.spawn(tokio::time::timeout(CONNECTION, answer(stream, Arc::clone(&page))));
            }
            Err(error) => {
                // Too many open files, for example, which passes.
                tracing::debug!(%error, "a connection for metrics was not accepted");
                tokio::time::sleep(FRESH).await;
            }
        }
    }
}

/// Answers the one request of a connection.
async fn answer(stream: TcpStream, page: Arc<Page>) {
    let service = service_fn(|request| {
        let response = page.respond(&request);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection for metrics broke");
    }
}

/// What is served.
#[derive(Debug)]
struct Page {
    run: Handle,
    /// The last text of each format and when it was made.
    texts: Mutex<[Option<(Instant, Bytes)>; 2]>,
}

impl Page {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => {
                let accepts = request.headers().get_all(ACCEPT).iter();
                let mut accepts = accepts.filter_map(|value| value.to_str().ok());
                let format = match accepts.any(|v| v.contains("application/openmetrics-text")) {
                    true => MetricsFormat::OpenMetrics,
                    false => MetricsFormat::Prometheus,
                };
                let mut response = Response::new(Full::new(self.text(format)));
                let kind = HeaderValue::from_static(format.content_type());
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
            "/" => plain(StatusCode::OK, "forebay: the figures of the run are at /metrics\n"),
            _ => plain(StatusCode::NOT_FOUND, "there is only /metrics\n"),
        }
    }

    fn text(&self, format: MetricsFormat) -> Bytes {
        let mut texts = self.texts.lock();
        let kept = &mut texts[format as usize];
        match kept {
            Some((made, text)) if made.elapsed() < FRESH => text.clone(),
            _ => {
                let text = Bytes::from(metrics_text(&self.run.stats(), format));
                *kept = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
