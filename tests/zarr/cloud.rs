//! Stores by URL: over HTTP and as S3, with the faults that networks have, and without a word of
//! any credential.

use forebay::options::RetryOn;
use forebay::pipeline::StallRule;
use forebay::prelude::*;
use forebay::store::{StoreOptions, is_transient};
use serde_json::json;

use crate::fixture::{Objects, batches, bytes, files, spec, store, v3, verify, zstd};
use crate::server::{Fault as Trouble, Server};

const SHAPE: [u64; 3] = [6, 10, 14];

fn objects() -> Objects {
    store(&["t2m", "u10"], &v3(SHAPE, [1, 10, 14], &json!([bytes(), zstd()])))
}

#[test]
fn http_files_memory_and_s3_give_the_same() {
    let server = Server::start(objects());
    let folder = files(&objects());
    let path = folder.path().to_str().expect("UTF-8");
    let memory = Store::open("memory://shared").expect("opens");
    drop(memory);
    let options: StoreOptions = [
        ("endpoint", server.url.as_str()),
        ("allow_http", "true"),
        ("skip_signature", "true"),
        ("region", "eu-west-1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let stores = [
        Store::open(&server.url).expect("opens"),
        Store::open(path).expect("opens"),
        Store::open(&format!("file://{path}")).expect("opens"),
        Store::open_with("s3://bucket", &options).expect("opens"),
        Store::open_with("s3://bucket/", &options).expect("opens"),
    ];
    for store in stores {
        let spec = spec(&["t2m", "u10"], &[("time", 1)]);
        // Twice: a store outlives the run, and the run's runtime, that used it first.
        for _ in 0..2 {
            let run = batches(&store, &spec, 4).run().expect("runs");
            assert_eq!(verify(run, SHAPE), 6, "{store}");
        }
    }
}

#[test]
fn a_store_of_the_users_own() {
    use object_store::{ObjectStoreExt as _, memory::InMemory};
    let memory = std::sync::Arc::new(InMemory::new());
    let fill = async {
        for (key, bytes) in objects() {
            let path = format!("deep/down/{key}");
            memory.put(&path.into(), bytes.into()).await.expect("stored");
        }
    };
    futures::executor::block_on(fill);
    let store = Store::from_object_store("mine", memory, "deep/down").expect("opens");
    let run = batches(&store, &spec(&["t2m", "u10"], &[("time", 2)]), 2).run().expect("runs");
    assert_eq!(verify(run, SHAPE), 3);
}

#[test]
fn passing_troubles_pass() {
    let server = Server::start(objects());
    server.fault("t2m/c/1/0/0", Trouble::Busy(2));
    let store = Store::open(&server.url).expect("opens");
    let run = batches(&store, &spec(&["t2m", "u10"], &[("time", 1)]), 2).run().expect("runs");
    assert_eq!(verify(run, SHAPE), 6);
}

/// A store that says that it is asked too much is asked less, and not at all for as long as it says.
#[test]
fn a_store_is_asked_as_it_wishes() {
    let server = Server::start(objects());
    let store = Store::open(&server.url).expect("opens");
    let run = || batches(&store, &spec(&["t2m", "u10"], &[("time", 1)]), 2).run().expect("runs");
    assert_eq!(verify(run(), SHAPE), 6);
    let before = store.stats();
    assert_eq!((before.throttled, before.at_once), (0, 256));
    server.fault("t2m/c/1/0/0", Trouble::Busy(1));
    assert_eq!(verify(run(), SHAPE), 6);
    let after = store.stats();
    assert_eq!((after.throttled, after.at_once), (1, 128));
    server.fault("t2m/c/1/0/0", Trouble::Rest);
    let begin = std::time::Instant::now();
    assert_eq!(verify(run(), SHAPE), 6);
    assert!(begin.elapsed() >= std::time::Duration::from_secs(1), "it asked for a second of rest");
    assert_eq!(store.stats().throttled, 2);
}

/// However many variables and steps a store has, its metadata is read once, and of the data only the
/// coordinates that are asked for.
#[test]
fn a_store_opens_in_few_requests() {
    // Sixty years of hours, 100 variables.
    let hours = 60 * 365 * 24;
    let metadata = |shape: &[u64], dims: &[&str], dtype: &str| {
        json!({
            "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": shape } },
            "chunk_key_encoding": { "name": "default" }, "fill_value": 0,
            "codecs": [bytes(), zstd()], "dimension_names": dims,
            "attributes": { "units": "hours since 1960-01-01" },
        })
    };
    let mut all = serde_json::Map::new();
    for i in 0..100 {
        let mut variable = metadata(&[hours, 721, 1440], &["time", "y", "x"], "float32");
        variable["chunk_grid"]["configuration"]["chunk_shape"] = json!([1, 721, 1440]);
        all.insert(format!("v{i}"), variable);
    }
    all.insert("time".into(), metadata(&[hours], &["time"], "int64"));
    let group = json!({
        "zarr_format": 3, "node_type": "group", "consolidated_metadata": { "metadata": all },
    });
    let time: Vec<u8> = (0..hours).flat_map(u64::to_le_bytes).collect();
    let time = frame(&time);
    let objects = Objects::from([
        ("zarr.json".to_owned(), serde_json::to_vec(&group).expect("JSON")),
        ("time/c/0".to_owned(), time),
    ]);
    let server = Server::start(objects);
    let store = Store::open(&server.url).expect("opens");
    let names: Vec<_> = (0..100).map(|i| format!("v{i}")).collect();
    let spec = WindowsSpec {
        variables: names,
        window: [("time", 2)].into(),
        select: [("time".to_owned(), "1990..2009".parse().expect("labels"))].into(),
        ..WindowsSpec::default()
    };
    let windows = Pipeline::from(zarr::windows(&store, &spec).expect("windows"));
    // Five of the twenty years have a leap day.
    assert_eq!(windows.len_known(), Some((20 * 365 + 5) * 12));
    let mut requests = server.requests();
    requests.sort();
    let top = [".zarray", ".zgroup", ".zmetadata", "time/c/0", "zarr.json"];
    assert_eq!(requests, top.map(|key| format!("GET {key} -")));
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; zstd_safe::compress_bound(bytes.len())];
    let len = zstd_safe::compress(&mut frame[..], bytes, 1).expect("compressed");
    frame.truncate(len);
    frame
}

/// A request that takes much longer than others is asked a second time.
#[test]
fn what_takes_long_is_asked_twice() {
    let server = Server::start(store(&["t2m"], &v3([60, 10, 14], [1, 10, 14], &json!([bytes()]))));
    let hedged: StoreOptions = [("hedge".to_owned(), "true".to_owned())].into();
    let store = Store::open_with(&server.url, &hedged).expect("opens");
    let run = || batches(&store, &spec(&["t2m"], &[("time", 1)]), 2).run().expect("runs");
    for _ in 0..3 {
        assert_eq!(verify(run(), [60, 10, 14]), 60);
    }
    // On a machine that is busy with other things many answers take long, and only one in twenty
    // may be asked for twice: this one may have to wait for its turn.
    let asked_twice = (0..20).any(|_| {
        server.fault("t2m/c/30/0/0", Trouble::Late);
        server.requests();
        assert_eq!(verify(run(), [60, 10, 14]), 60);
        let requests = server.requests();
        requests.iter().filter(|request| request.contains("t2m/c/30/0/0")).count() == 2
    });
    let stats = store.stats();
    assert!(asked_twice, "{stats:?}");
    assert!(stats.hedged > 0 && stats.hedged * 20 <= stats.requests, "{stats:?}");
    let wrong: StoreOptions = [("hedge".to_owned(), "perhaps".to_owned())].into();
    let told = Store::open_with(&server.url, &wrong).expect_err("refused").to_string();
    assert!(told.contains("write true or false"), "{told}");
}

/// What was read once is read from disk, whole objects and parts of shards alike, by later epochs
/// and by other runs; what was damaged since is read from the store again.
#[test]
fn what_was_read_is_kept_on_disk() {
    let sharding = json!([{ "name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 5, 7], "codecs": [bytes(), zstd()],
        "index_codecs": [bytes(), { "name": "crc32c" }], "index_location": "end",
    }}]);
    let plain = objects();
    let shards = store(&["t2m", "u10"], &v3(SHAPE, [3, 10, 14], &sharding));
    for objects in [plain, shards] {
        let server = Server::start(objects);
        let folder = tempfile::tempdir().expect("a folder");
        let kept = folder.path().join("kept");
        let read = || {
            let store = Store::open(&server.url).expect("opens");
            let disk = zarr::Disk { bytes: 1 << 30, path: Some(kept.clone()) };
            let spec = WindowsSpec { disk: Some(disk), ..spec(&["t2m", "u10"], &[("time", 1)]) };
            assert_eq!(verify(batches(&store, &spec, 2).run().expect("runs"), SHAPE), 6);
            store.stats().requests
        };
        let first = read();
        assert!(first > 6, "{first} requests");
        assert_eq!(read(), 0);
        let mut files: Vec<_> = (kept.read_dir().expect("there").flatten())
            .flat_map(|folder| folder.path().read_dir().expect("a folder").flatten())
            .map(|file| file.path())
            .collect();
        files.sort();
        std::fs::write(&files[0], b"damaged").expect("written");
        std::fs::remove_file(&files[1]).expect("removed");
        let again = read();
        assert!((1..=2).contains(&again), "{again} requests");
        assert_eq!(read(), 0);
        // Without a folder that can be written, the run goes on without it.
        std::fs::remove_dir_all(&kept).expect("removed");
        std::fs::write(&kept, b"a file").expect("written");
        assert_eq!(read(), first);
    }
}

/// However much of a store fails, it is asked again for a tenth of its requests at most, and for the
/// first few.
#[test]
fn a_store_that_fails_is_not_stormed() {
    const CHUNKS: u64 = 400;
    let shape = [CHUNKS, 2, 2];
    let server = Server::start(store(&["t2m"], &v3(shape, [1, 2, 2], &json!([bytes()]))));
    let read = |budget: &str, on_error: OnError| {
        let options: StoreOptions = [("retry_budget".to_owned(), budget.to_owned())].into();
        let store = Store::open_with(&server.url, &options).expect("opens");
        let windows = zarr::windows(&store, &spec(&["t2m"], &[("time", 1)])).expect("windows");
        server.requests();
        let fetch = io::map("fetch", zarr::fetch::<Window>).workers(64).on_error(on_error);
        let mut run = Pipeline::from(windows).then(fetch).run().expect("runs");
        let fault = run.by_ref().find_map(Result::err);
        let stats = run.stats();
        run.close();
        let of_chunks = server.requests().iter().filter(|request| request.contains("/c/")).count();
        (stats, store.stats(), of_chunks as u64, fault)
    };
    // A few failures are made good.
    server.fail(5);
    let (stats, asked, requests, _) = read("10%", OnError::Fail);
    assert_eq!((stats.items, asked.retries_refused), (CHUNKS, 0));
    assert!(asked.retried > 0 && requests == CHUNKS + asked.retried, "{asked:?}, {requests}");
    // Of most requests failing only so many: 64, and a tenth of those for each chunk and for the
    // metadata before.
    server.fail(80);
    let (stats, asked, requests, _) = read("10%", OnError::skip());
    assert_eq!(stats.items + stats.skipped, CHUNKS);
    assert_eq!(requests, CHUNKS + asked.retried);
    assert!((64 + 40..=64 + 42).contains(&asked.retried), "{asked:?}");
    assert_eq!(stats.stages[1].traffic.retries_refused, asked.retries_refused);
    assert!(asked.retries_refused > 200, "{asked:?}");
    // Without a budget each is asked for four times, and the error says what would help.
    let (_, asked, _, _) = read("100%", OnError::skip());
    assert!(asked.retried > 2 * (64 + 42), "{asked:?}");
    server.fail(100);
    let (_, _, requests, fault) = read("0%", OnError::skip_up_to(30));
    assert!(requests <= CHUNKS + 64, "{requests}");
    let text = fault.expect("too many").to_string();
    assert!(text.contains("500 Internal Server Error"), "{text}");
    assert!(text.contains("the retry budget is spent: 64 of"), "{text}");
    let options: StoreOptions = [("retry_budget".to_owned(), "some".to_owned())].into();
    let told = Store::open_with(&server.url, &options).expect_err("refused").to_string();
    assert!(told.contains("write a share, `10%`"), "{told}");
}

/// What came before a connection broke is not asked for again.
#[test]
fn a_broken_response_goes_on_where_it_broke() {
    let server = Server::start(objects());
    let store = Store::open(&server.url).expect("opens");
    let pipeline = batches(&store, &spec(&["t2m"], &[("time", 1)]), 2);
    server.fault("t2m/c/1/0/0", Trouble::CutOff(1));
    server.requests();
    assert_eq!(verify(pipeline.run().expect("runs"), SHAPE), 6);
    let requests = server.requests();
    let asked: Vec<_> = requests.iter().filter(|request| request.contains("c/1/0/0")).collect();
    let size = objects()["t2m/c/1/0/0"].len();
    let rest = format!("GET t2m/c/1/0/0 {}-{}", size / 2, size - 1);
    assert_eq!(asked, ["GET t2m/c/1/0/0 -", &rest]);
}

#[test]
fn a_response_that_ends_early_is_an_error_and_can_be_tried_again() {
    let server = Server::start(objects());
    let store = Store::open(&server.url).expect("opens");
    server.fault("t2m/c/1/0/0", Trouble::CutOff(1000));
    let windows = || zarr::windows(&store, &spec(&["t2m"], &[("time", 1)])).expect("windows");
    let stage = || io::map("fetch", zarr::fetch::<Window>).workers(2);
    let mut run = Pipeline::from(windows()).then(stage()).run().expect("runs");
    let fault = run.by_ref().find_map(Result::err).expect("a fault");
    assert_eq!(fault.item_name(), Some("time 1"));
    assert!(fault.to_string().contains("t2m/c/1/0/0"), "{fault}");
    assert!(is_transient(std::error::Error::source(&fault).expect("a cause")), "{fault}");
    run.close();
    // Left out and counted.
    let skipping = stage().on_error(OnError::skip());
    let stats = Pipeline::from(windows()).then(skipping).run().expect("runs").drain().expect("ok");
    assert_eq!((stats.items, stats.skipped), (5, 1));
    // Tried again until it works.
    server.fault("t2m/c/1/0/0", Trouble::CutOff(2));
    let quick = Retry::times(5)
        .backoff(std::time::Duration::from_millis(1), std::time::Duration::from_millis(5))
        .on(RetryOn::When(is_transient));
    let stats = Pipeline::from(windows()).then(stage().retry(quick)).run().expect("runs").drain();
    assert_eq!(stats.expect("ok").items, 6);
}

#[test]
fn a_length_of_a_terabyte_is_refused_before_it_is_allocated() {
    let server = Server::start(objects());
    let store = Store::open(&server.url).expect("opens");
    server.fault("t2m/c/1/0/0", Trouble::Huge);
    let mut run = batches(&store, &spec(&["t2m"], &[("time", 1)]), 1).run().expect("runs");
    let fault = run.by_ref().find_map(Result::err).expect("a fault");
    assert!(fault.to_string().contains("t2m/c/1/0/0"), "{fault}");
    run.close();
    server.fault("t2m/c/2/0/0", Trouble::Garbage);
    let mut run = batches(&store, &spec(&["t2m"], &[("time", 1)]), 1).run().expect("runs");
    assert!(run.by_ref().any(|item| item.is_err()));
    run.close();
}

#[test]
fn credentials_are_never_shown() {
    let secret = "Zm9yYmF5c2VjcmV0";
    let options: StoreOptions = [
        ("access_key_id", "AKIAEXAMPLE"),
        ("secret_access_key", secret),
        ("token", secret),
        ("endpoint", "http://127.0.0.1:9"),
        ("allow_http", "true"),
        ("region", "eu-west-1"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let store = Store::open_with("s3://bucket/archive", &options).expect("opens");
    let mut shown = format!("{store:?} {store}");
    if let Err(error) = zarr::windows(&store, &spec(&["t2m"], &[])) {
        shown += &format!("{error} {error:?}");
    }
    let url = format!("http://user:{secret}@127.0.0.1:9/data?sig={secret}");
    let store = Store::open(&url).expect("opens");
    shown += &format!("{store:?} {store}");
    if let Err(error) = zarr::windows(&store, &spec(&["t2m"], &[])) {
        shown += &format!("{error} {error:?}");
    }
    // A store that is named in what windows are asked for.
    let rain = zarr::Also { store: Some(url.clone()), options, ..zarr::Also::default() };
    let both =
        WindowsSpec { also: [("rain".to_owned(), rain)].into(), ..spec(&["t2m"], &[("time", 1)]) };
    shown += &format!("{both:?}");
    let server = Server::start(objects());
    let here = Store::open(&server.url).expect("opens");
    let failed = zarr::windows(&here, &both).expect_err("nobody answers there");
    shown += &format!("{failed} {failed:?}");
    for wrong in [format!("ftp://user:{secret}@host/x"), format!("s3://{secret}@/x?y={secret}")] {
        if let Err(error) = Store::open(&wrong) {
            shown += &format!("{error} {error:?}");
        }
    }
    assert!(shown.contains("127.0.0.1:9"), "{shown}");
    assert!(!shown.contains(secret), "{shown}");
}

#[test]
fn urls_that_are_wrong_are_told_with_what_would_do() {
    let told = |url: &str| Store::open(url).expect_err("refused").to_string();
    assert!(told("ftp://host/x").contains("write a path, file://"));
    assert!(told("sample://nope").contains("write `sample://era5`"));
    let options: StoreOptions = [("colour".to_owned(), "red".to_owned())].into();
    let told = Store::open_with("s3://bucket", &options).expect_err("refused").to_string();
    assert!(told.contains("no option `colour`"), "{told}");
    let told = Store::open_with("/tmp", &options).expect_err("refused").to_string();
    assert!(told.contains("takes no options"), "{told}");
}

/// A store that has gone silent is told by name, with the chunk that is waited for.
#[test]
fn a_silent_store_is_named() {
    let server = Server::start(objects());
    server.fault("u10/c/2/0/0", Trouble::Silent);
    let store = Store::open(&server.url).expect("opens");
    let mut pipeline = batches(&store, &spec(&["t2m", "u10"], &[("time", 1)]), 2);
    pipeline.settings_mut().stall =
        StallRule { after: Some(std::time::Duration::from_millis(200)), fails: true };
    let mut run = pipeline.run().expect("runs");
    let first = run.next().expect("the windows before it").expect("are read");
    let receipt = first.receipt().expect("it was delivered");
    let stages: Vec<_> = receipt.steps.iter().map(|step| &*step.stage).collect();
    assert_eq!(stages, ["windows", "fetch", "decode"], "{receipt}");
    let fault = run.find_map(Result::err).expect("it stalls");
    let told = fault.to_string();
    let waits_for = format!("for GET {}/u10/c/2/0/0", server.url);
    for part in ["stage `fetch` failed", "decode starved", &waits_for, "(time 2 to time 3)"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    let stats = run.handle().stats();
    assert_eq!((stats.stalls.len(), stats.stages[1].traffic.requests), (1, 12));
}
