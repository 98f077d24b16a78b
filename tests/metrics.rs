//! The figures of a run as Prometheus reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay::item::Spec;
use forebay::prelude::*;
use forebay::trace::{self, DeviceStats, MetricsFormat, RunStats, metrics_text};

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a request as it is and gives what comes back until the server closes.
fn ask(addr: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // A server that refuses a request may close before it has all of it.
    let _sent = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _closed = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("UTF-8")
}

fn get(addr: SocketAddr, path: &str, accept: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nAccept: {accept}\r\n\r\n");
    let answer = ask(addr, &request);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// A metric's name without `_total` and the like, and its labels as they are written.
type Key = (String, String);

/// Values by name and labels, from a text that must be as the format demands.
fn parse(text: &str) -> BTreeMap<Key, f64> {
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut values = BTreeMap::new();
    assert!(text.ends_with('\n'));
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (family, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && helped.insert(family), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').expect("a type");
            assert!(families.insert(family, kind).is_none(), "{family} twice");
        } else if let Some(rest) = line.strip_prefix("# UNIT ") {
            let (family, unit) = rest.split_once(' ').expect("a unit");
            assert!(family.ends_with(unit), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            assert!(labels.ends_with('}'), "{line}");
            let is_of = |family: &&&str| name.starts_with(**family);
            let family = families.keys().filter(is_of).max_by_key(|f| f.len()).expect("a type");
            assert!(helped.contains(family), "{line}");
            let suffix = &name[family.len()..];
            let suffixes: &[&str] = match families[family] {
                "counter" => &["", "_total"],
                "gauge" | "info" => &["", "_info"],
                "histogram" => &["_sum", "_count", "_bucket"],
                other => panic!("{other}"),
            };
            assert!(suffixes.contains(&suffix), "{line} of {family}");
            let value = value.parse::<f64>().expect("a number");
            let key = (name.to_owned(), labels.trim_end_matches('}').to_owned());
            assert!(values.insert(key, value).is_none(), "{line} twice");
        }
    }
    values
}

fn scrape(addr: SocketAddr) -> BTreeMap<Key, f64> {
    let (head, body) = get(addr, "/metrics", "*/*");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    parse(&body)
}

fn pipeline() -> Pipeline<u64> {
    let ask = async |x: u64| {
        let mut request = trace::request(|| "GET store.example".to_owned());
        tokio::time::sleep(Duration::from_micros(200)).await;
        request.received(10);
        if x % 50 == 7 { Err("no") } else { Ok(x) }
    };
    Pipeline::from(source::iter("numbers", 0..400_u64))
        .then(
            io::map("ask", ask)
                .workers(4)
                .on_error(OnError::Skip { max: SkipLimit::Any, log: None }),
        )
        .then(cpu::map("square", |x: u64| Ok::<_, Never>(x * x)).workers(2).buffer(8))
}

/// What the metrics must say of a run that has ended.
fn assert_told(values: &BTreeMap<Key, f64>, stats: &RunStats) {
    let value = |name: &str, labels: &str| {
        let key = (name.to_owned(), labels.to_owned());
        *values.get(&key).unwrap_or_else(|| panic!("{key:?} is not in {values:#?}"))
    };
    for stage in &stats.stages {
        let of = format!("stage=\"{}\",kind=\"{}\"", stage.id, stage.kind);
        let with = |label: &str| format!("{of},{label}");
        for (name, labels, expected) in [
            ("forebay_stage_items_total", with("direction=\"in\""), stage.items_in),
            ("forebay_stage_items_total", with("direction=\"out\""), stage.items_out),
            ("forebay_stage_bytes_total", of.clone(), stage.bytes_out),
            ("forebay_stage_workers", of.clone(), stage.workers as u64),
            ("forebay_stage_calls_total", of.clone(), stage.service.count),
            ("forebay_stage_retries_total", of.clone(), stage.retries),
            ("forebay_stage_errors_total", of.clone(), stage.errors),
            ("forebay_stage_skipped_total", of.clone(), stage.skipped),
            ("forebay_requests_total", of.clone(), stage.traffic.requests),
            ("forebay_request_bytes_total", of.clone(), stage.traffic.bytes),
            ("forebay_requests_throttled_total", of.clone(), stage.traffic.throttled),
            ("forebay_buffer_items", of.clone(), stage.buffer.items as u64),
            ("forebay_buffer_bytes", of.clone(), stage.buffer.bytes),
            ("forebay_buffer_capacity_items", of.clone(), stage.buffer.items_max as u64),
            ("forebay_buffer_capacity_bytes", of.clone(), stage.buffer.bytes_max),
        ] {
            assert_eq!(value(name, &labels), expected as f64, "{name} of {}", stage.id);
        }
        let states = ["working", "starved", "blocked", "turn", "limit"];
        let seconds = states.map(|state| {
            value("forebay_stage_state_seconds_total", &with(&format!("state=\"{state}\"")))
        });
        let total = seconds.iter().sum::<f64>();
        let in_states = stage.states.total() - stage.states.ended;
        assert!((total - in_states.as_secs_f64()).abs() < 1e-6, "{}", stage.id);
        if stage.kind == Kind::Io || stage.kind == Kind::Cpu {
            let calls = stage.service.count as f64;
            assert_eq!(value("forebay_stage_service_seconds_count", &of), calls);
            let all = with("le=\"+Inf\"");
            assert_eq!(value("forebay_stage_service_seconds_bucket", &all), calls);
            let sum = value("forebay_stage_service_seconds_sum", &of);
            assert!((sum - stage.service.total_ns as f64 / 1e9).abs() < 1e-6);
        }
    }
    assert_eq!(value("forebay_consumer_items_total", ""), stats.items as f64);
    assert_eq!(value("forebay_consumer_bytes_total", ""), stats.bytes as f64);
    let waited = value("forebay_consumer_waited_seconds_total", "");
    assert!((waited - stats.waited.as_secs_f64()).abs() < 1e-6);
    assert!(value("process_resident_memory_bytes", "") > 1e6);
    assert_eq!(values.keys().filter(|(name, _)| name == "forebay_verdict_info").count(), 1);
}

/// Ten batches of 4 KiB that go to a device and are changed there.
fn to_a_device() -> Pipeline<DeviceBatch> {
    let device = device::host();
    let make = |i: u64| {
        let dims = [Arc::from("x")];
        let (dims, shape) = (Arc::from(dims), Arc::from([1024]));
        let spec = Spec { name: Arc::from("x"), dtype: DType::F32, dims, shape };
        let mut tensor = Tensor::take(&Pool::default(), spec);
        tensor.elements_mut::<f32>().fill(i as f32);
        Ok::<_, Never>(Batch::new(vec![tensor], Vec::new()))
    };
    Pipeline::from(source::iter("numbers", 0..10_u64))
        .then(cpu::map("make", make))
        .then(device::upload(&device))
        .then(device::cast(DType::F64))
}

#[test]
fn what_device_stages_did_is_told() {
    let stats = to_a_device().run().unwrap().drain().unwrap();
    for format in [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics] {
        let values = parse(&metrics_text(&stats, format));
        let told = values.keys().filter(|(name, _)| name.starts_with("forebay_device_"));
        assert_eq!(told.count(), 14, "seven figures of two stages: {values:#?}");
        for stage in &stats.stages[2..] {
            let labels = format!("stage=\"{}\",kind=\"device\"", stage.id);
            let value = |name: &str| values[&(format!("forebay_device_{name}"), labels.clone())];
            let DeviceStats { copies, copied_bytes, copy_ns, overlap_ns, .. } = stage.device;
            assert_eq!(value("copies_total"), copies as f64);
            assert_eq!(value("copied_bytes_total"), copied_bytes as f64);
            assert!((value("copy_seconds_total") - copy_ns as f64 / 1e9).abs() < 1e-9);
            let overlap = overlap_ns as f64 / copy_ns.max(1) as f64;
            assert!((value("overlap_ratio") - overlap).abs() < 1e-9);
            assert_eq!(value("kernel_batches_total"), stage.device.kernel_batches as f64);
            let kernels_s = stage.device.kernel_ns as f64 / 1e9;
            assert!((value("kernel_seconds_total") - kernels_s).abs() < 1e-9);
            assert_eq!(value("pageable_copies_total"), stage.device.pageable_copies as f64);
        }
    }
    let (upload, cast) = (&stats.stages[2].device, &stats.stages[3].device);
    assert_eq!((upload.copies, upload.copied_bytes), (10, 10 * 4096));
    assert_eq!(cast.kernel_batches, 10);
}

#[test]
fn counters_only_grow_and_end_as_the_report_does() {
    let mut run = pipeline().run().expect("runs");
    let handle = run.handle();
    let server = trace::serve_metrics("127.0.0.1:0", &handle).expect("serves");
    let addr = server.addr();
    let mut before = scrape(addr);
    for _ in 0..4 {
        for item in run.by_ref().take(80) {
            item.expect("skips");
        }
        let now = scrape(addr);
        let grows =
            |name: &str| ["_total", "_bucket", "_count", "_sum"].iter().any(|s| name.ends_with(s));
        for (key, value) in before.iter().filter(|((name, _), _)| grows(name)) {
            assert!(now[key] >= *value, "{key:?} fell from {value} to {}", now[key]);
        }
        before = now;
    }
    assert!(run.by_ref().all(|item| item.is_ok()));
    let start = Instant::now();
    // What is told may be a tenth of a second old.
    let last = loop {
        let told = scrape(addr);
        let key = ("forebay_consumer_items_total".to_owned(), String::new());
        if told[&key] == 392.0 {
            break told;
        }
        assert!(start.elapsed() < PATIENCE, "{told:#?}");
    };
    let stats = run.close();
    assert_eq!(stats.items, 392);
    assert!(last.len() > 50);
    assert_told(&parse(&metrics_text(&stats, MetricsFormat::Prometheus)), &stats);
    drop(server);
    assert!(TcpStream::connect(addr).is_err(), "it ends when it is dropped");
}

#[test]
fn both_formats_say_the_same() {
    let stats = pipeline().run().expect("runs").drain().expect("skips");
    let open = metrics_text(&stats, MetricsFormat::OpenMetrics);
    assert!(open.ends_with("# EOF\n"), "{open}");
    let plain = metrics_text(&stats, MetricsFormat::Prometheus);
    // They write the bounds of buckets differently.
    let values = |text| {
        let mut values = parse(text);
        values.retain(|(name, _), _| !name.ends_with("_bucket"));
        values
    };
    assert_eq!(values(&open), values(&plain));
    assert!(open.contains("# UNIT forebay_stage_bytes bytes\n"), "{open}");
}

#[test]
fn the_format_is_what_the_asker_reads() {
    let run = pipeline().run().expect("runs");
    let server = trace::serve_metrics("127.0.0.1:0", &run.handle()).expect("serves");
    for (accept, kind, is_open) in [
        (
            "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
            "application/openmetrics-text",
            true,
        ),
        ("text/plain", "text/plain; version=0.0.4", false),
    ] {
        let (head, body) = get(server.addr(), "/metrics", accept);
        assert!(head.contains(&format!("content-type: {kind}")), "{head}");
        assert_eq!(body.ends_with("# EOF\n"), is_open);
    }
    drop(server);
    run.close();
}

/// The ids of stages are the user's.
#[test]
fn labels_are_escaped() {
    let odd = "a\"b\\c\nd {x=\"1\"} 7";
    let square = cpu::map("square", |x: u64| Ok::<_, Never>(x * x)).id(odd);
    let numbers = Pipeline::from(source::iter("numbers", 0..5_u64));
    let stats = numbers.then(square).run().expect("runs").drain().expect("no failure");
    for format in [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics] {
        let text = metrics_text(&stats, format);
        let line = r#"forebay_stage_calls_total{stage="a\"b\\c\nd {x=\"1\"} 7",kind="cpu"} 5"#;
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}

#[test]
fn other_requests_get_an_answer_that_helps() {
    let run = pipeline().run().expect("runs");
    let server = trace::serve_metrics("127.0.0.1:0", &run.handle()).expect("serves");
    let addr = server.addr();
    let (head, body) = get(addr, "/", "*/*");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("/metrics"), "{head} {body}");
    let (head, _) = get(addr, "/etc/passwd", "*/*");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let head = ask(addr, "POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405") && head.contains("allow: GET"), "{head}");
    drop(server);
    run.close();
}

#[test]
fn hostile_requests_do_not_disturb_the_run() {
    let mut run = pipeline().run().expect("runs");
    let server = trace::serve_metrics("127.0.0.1:0", &run.handle()).expect("serves");
    let addr = server.addr();
    let huge = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(!ask(addr, &huge).starts_with("HTTP/1.1 200"));
    let fields: String = (0..500).map(|n| format!("X-{n}: y\r\n")).collect();
    assert!(!ask(addr, &format!("GET / HTTP/1.1\r\n{fields}\r\n")).starts_with("HTTP/1.1 200"));
    assert!(!ask(addr, "\0\u{1}\u{2}nonsense\r\n\r\n").starts_with("HTTP/1.1 200"));
    // More than are served at a time, half asked or not at all, and left open.
    let half: Vec<_> = (0..40)
        .map(|n| {
            let mut stream = TcpStream::connect(addr).expect("the backlog takes it");
            if n % 2 == 0 {
                stream.write_all(b"GET /met").expect("sent");
            }
            stream
        })
        .collect();
    assert_eq!(run.by_ref().filter(Result::is_ok).count(), 392, "the run is not held up");
    // They are given up after a few seconds, and others get their turn.
    let told = scrape(addr);
    assert!(told.len() > 50);
    drop(half);
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(2), "it does not wait for anybody");
    run.close();
}

fn forebay(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(args).env_remove("FOREBAY_LOG").stdin(Stdio::null());
    command
}

#[test]
fn a_port_in_use_is_an_error_before_anything_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let addr = taken.local_addr().expect("known").to_string();
    let done = forebay(&["run", "quickstart", "--metrics", &addr]).output().expect("started");
    let told = String::from_utf8(done.stderr).expect("UTF-8");
    assert_eq!(done.status.code(), Some(2), "{told}");
    assert!(done.stdout.is_empty());
    for part in [&*addr, "can't serve metrics", "help: another process listens there"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    let done = forebay(&["run", "quickstart", "--metrics", "here"]).output().expect("started");
    let told = String::from_utf8(done.stderr).expect("UTF-8");
    assert_eq!(done.status.code(), Some(2));
    assert!(told.contains("write a port (9090)"), "{told}");
}

#[test]
fn a_run_from_the_command_line_says_where_its_metrics_are() {
    let args = ["run", "quickstart", "--set", "epochs=100000", "--no-progress", "--metrics", "0"];
    let mut run = forebay(&args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("ok");
    let mut told = BufReader::new(run.stderr.take().expect("piped")).lines();
    let addr = told.find_map(|line| {
        let line = line.expect("UTF-8");
        line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.parse().ok()
    });
    let addr = addr.expect("it says so");
    let values = scrape(addr);
    assert!(values.keys().any(|(_, labels)| labels.contains("stage=\"decode\"")));
    let killed = Command::new("kill").args(["-s", "INT", &run.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    assert_eq!(run.wait().expect("ended").code(), Some(130));
    assert!(TcpStream::connect(addr).is_err());
}
