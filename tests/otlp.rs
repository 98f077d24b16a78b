//! What `forebay run --otlp` sends, as a collector receives it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric, number_data_point};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::Value;

/// What came, by path.
type Received = Arc<Mutex<Vec<(String, Bytes)>>>;

/// A collector that takes everything until it is dropped.
struct Collector {
    addr: SocketAddr,
    received: Received,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("bound");
        let addr = listener.local_addr().expect("known");
        let received = Received::default();
        let kept = Arc::clone(&received);
        // Ends with the runtime.
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                tokio::spawn(async move {
                    let service = service_fn(|request| take(request, &kept));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _closed = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Collector { addr, received, _runtime: runtime }
    }

    fn bodies(&self, path: &str) -> Vec<Bytes> {
        let received = self.received.lock();
        received.iter().filter(|(at, _)| at == path).map(|(_, body)| body.clone()).collect()
    }

    fn spans(&self) -> Vec<Span> {
        let all = self.bodies("/v1/traces").into_iter().flat_map(|body| {
            let request = ExportTraceServiceRequest::decode(body).expect("protobuf");
            request.resource_spans.into_iter().flat_map(|all| all.scope_spans)
        });
        all.flat_map(|all| all.spans).collect()
    }

    /// The values of the last export by name and attributes.
    fn figures(&self) -> BTreeMap<(String, String), f64> {
        let last = self.bodies("/v1/metrics").pop().expect("one at least");
        let request = ExportMetricsServiceRequest::decode(last).expect("protobuf");
        let all = request.resource_metrics.into_iter().flat_map(|all| all.scope_metrics);
        let mut figures = BTreeMap::new();
        for metric in all.flat_map(|all| all.metrics) {
            let points = match metric.data.expect("values") {
                metric::Data::Sum(sum) => {
                    assert!(sum.is_monotonic, "{}", metric.name);
                    sum.data_points
                }
                metric::Data::Gauge(gauge) => gauge.data_points,
                other => panic!("{other:?}"),
            };
            for point in points {
                let key = (metric.name.clone(), attributes(&point.attributes));
                assert!(figures.insert(key, value(&point)).is_none(), "{} twice", metric.name);
            }
        }
        figures
    }
}

async fn take(
    request: Request<Incoming>,
    kept: &Received,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.expect("a whole body").to_bytes();
    kept.lock().push((path, body));
    Ok(Response::default())
}

fn value(point: &NumberDataPoint) -> f64 {
    match point.value.expect("a value") {
        number_data_point::Value::AsInt(n) => n as f64,
        number_data_point::Value::AsDouble(x) => x,
    }
}

fn attribute(all: &[KeyValue], name: &str) -> Option<String> {
    let found = all.iter().find(|attribute| attribute.key == name)?;
    Some(match found.value.clone()?.value? {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(n) => n.to_string(),
        other => panic!("{other:?}"),
    })
}

/// Sorted, because their order says nothing.
fn attributes(all: &[KeyValue]) -> String {
    let told = all
        .iter()
        .map(|one| format!("{}={}", one.key, attribute(all, &one.key).expect("it has been found")));
    let mut told: Vec<_> = told.collect();
    told.sort();
    told.join(",")
}

fn run(collector: &str, more: &[&str]) -> Output {
    let args = ["run", "quickstart", "--no-progress", "--format", "json", "--otlp", collector];
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let command = command.args(args).args(more).env_remove("FOREBAY_LOG").stdin(Stdio::null());
    command.output().expect("started")
}

fn told(done: &Output) -> String {
    String::from_utf8(done.stderr.clone()).expect("UTF-8")
}

#[test]
fn a_collector_gets_the_figures_and_the_spans() {
    let collector = Collector::start();
    let done = run(&format!("http://{}", collector.addr), &[]);
    assert_eq!((done.status.code(), &*told(&done)), (Some(0), ""));
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let figures = collector.figures();
    let value = |name: &str, labels: &str| {
        let key = (name.to_owned(), labels.to_owned());
        *figures.get(&key).unwrap_or_else(|| panic!("{key:?} is not in {figures:#?}"))
    };
    assert_eq!(Some(value("forebay.consumer.items", "")), json["batches"].as_f64());
    assert_eq!(Some(value("forebay.consumer.bytes", "")), json["bytes"].as_f64());
    let spans = collector.spans();
    let stages = json["stages"].as_array().expect("stages");
    let in_stages = spans.iter().filter(|span| span.name == "forebay.stage");
    assert_eq!(in_stages.count(), stages.len());
    for stage in stages {
        let (id, kind) = (&stage["id"], stage["kind"].as_str().expect("a kind"));
        let id = id.as_str().expect("an id");
        let of = format!("kind={kind},stage={id}");
        let out = value("forebay.stage.items", &format!("direction=out,{of}"));
        assert_eq!(Some(out), stage["items"].as_f64(), "{id}");
        let bytes = value("forebay.stage.bytes", &of);
        assert_eq!(Some(bytes), stage["bytes"].as_f64(), "{id}");
        assert_eq!(Some(value("forebay.stage.workers", &of)), stage["workers"].as_f64());
        let working = value("forebay.stage.state.seconds", &format!("{of},state=working"));
        assert!((0.0..1e3).contains(&working));

        let is_of = |span: &&Span| attribute(&span.attributes, "stage").as_deref() == Some(id);
        let own: Vec<_> = spans.iter().filter(is_of).collect();
        let whole: Vec<_> = own.iter().filter(|span| span.name == "forebay.stage").collect();
        let calls: Vec<_> = own.iter().filter(|span| span.name == "forebay.item").collect();
        assert_eq!(whole.len(), 1, "{id}");
        assert_eq!(value("forebay.stage.calls", &of), calls.len() as f64, "{id}");
        for call in calls {
            assert_eq!(call.parent_span_id, whole[0].span_id);
            assert_eq!(call.trace_id, whole[0].trace_id);
            assert!(call.end_time_unix_nano <= whole[0].end_time_unix_nano);
            assert!(attribute(&call.attributes, "item").is_some());
        }
    }
    let quantile = "kind=cpu,quantile=0.5,stage=decode";
    assert!(value("forebay.stage.service.quantile.seconds", quantile) > 0.0);
    assert!(value("forebay.stage.service.seconds", "kind=cpu,stage=decode") > 0.0);
}

#[test]
fn a_collector_that_is_not_there_is_one_warning() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr());
    let url = format!("http://user:hunter2@{}/in?key=hunter2", free.expect("a port"));
    let done = run(&url, &[]);
    let told = told(&done);
    assert_eq!(done.status.code(), Some(0), "{told}");
    assert!(told.contains("it can't be reached") && told.lines().count() == 1, "{told}");
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn a_collector_that_never_answers_does_not_hold_up_the_end() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let start = Instant::now();
    let done = run(&format!("http://{}", silent.local_addr().expect("known")), &["--limit", "2"]);
    assert_eq!(done.status.code(), Some(0), "{}", told(&done));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(told(&done).contains("it does not answer"), "{}", told(&done));
}

#[test]
fn what_is_no_url_is_an_error_that_says_what_to_write() {
    let done = run("localhost:4318", &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(told(&done).contains("http://localhost:4318"), "{}", told(&done));
}
