//! What is written is what was read, at its place: overlapping windows, any order, several ranks, and
//! what can't be written is told.

use std::sync::Arc;

use forebay::prelude::*;
use forebay::zarr::{
    Also, Codec, CodecName, Edge, Edges, Incomplete, Overlap, Ranks, WriteSpec, WriteStats,
};
use object_store::memory::InMemory;
use serde_json::json;

use crate::fixture::{
    Objects, batches, bytes, coordinate, files, numbered, spec, v3, verify, zstd,
};

const SHAPE: [u64; 3] = [6, 10, 12];

/// A store of two self-checking variables over (time, y, x), in chunks of `chunk`.
pub(crate) fn source(chunk: [u64; 3]) -> (tempfile::TempDir, Store) {
    let metadata = v3(SHAPE, chunk, &json!([bytes(), zstd()]));
    let mut objects = crate::fixture::store(&["a", "b"], &metadata);
    let hours: Vec<_> = (0..SHAPE[0]).map(|hour| hour as f64 * 6.0).collect();
    let units = json!({ "units": "hours since 2000-01-01", "calendar": "noleap" });
    coordinate(&mut objects, "time", &hours, &units);
    open(&objects)
}

fn open(objects: &Objects) -> (tempfile::TempDir, Store) {
    let folder = files(objects);
    let store = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    (folder, store)
}

/// A new store, in memory.
fn empty() -> Store {
    Store::from_object_store("results", Arc::new(InMemory::new()), "").expect("a store")
}

pub(crate) fn both(window: &[(&str, u64)], stride: &[(&str, u64)]) -> WindowsSpec {
    let stride = stride.iter().map(|(dim, n)| (*dim, *n)).collect();
    WindowsSpec { stride, ..spec(&["a", "b"], window) }
}

/// Reads the windows of `spec` and writes them.
pub(crate) fn write(
    source: &Store,
    spec: &WindowsSpec,
    to: &Store,
    how: &WriteSpec,
) -> Result<WriteStats, String> {
    write_all(batches(source, spec, 4), to, how)
}

fn write_all(batches: Pipeline<Batch>, to: &Store, how: &WriteSpec) -> Result<WriteStats, String> {
    let write = zarr::write(to, how).map_err(|error| error.to_string())?;
    let written = write.written();
    let report = batches.then(write).run().expect("runs").drain();
    report.map(|_| written.stats()).map_err(|fault| fault.to_string())
}

/// Checks every value of `a` and `b` in `store`.
pub(crate) fn check(store: &Store) {
    let edges = Edges::All(Edge::Short);
    let all = WindowsSpec { edges, ..spec(&["a", "b"], &[("time", 4)]) };
    assert_eq!(verify(batches(store, &all, 1).run().expect("runs"), SHAPE), 2);
}

/// All values of `v`, with -1 for NaN.
fn values(store: &Store, variable: &str) -> Vec<f64> {
    let spec = WindowsSpec { dtype: Some(DType::F64), ..spec(&[variable], &[]) };
    let batch = batches(store, &spec, 1).run().expect("runs").next().expect("one").expect("read");
    let values = batch.get(variable).expect("there").elements::<f64>();
    values.iter().map(|value| if value.is_nan() { -1.0 } else { *value }).collect()
}

#[test]
fn what_is_written_is_what_was_read() {
    let codecs = [CodecName::Zstd, CodecName::Blosc, CodecName::Gzip, CodecName::None];
    for (chunk, codec) in [[1, 10, 12], [2, 4, 5], [4, 10, 5], [6, 3, 12]].into_iter().zip(codecs) {
        let (_folder, source) = source(chunk);
        for window in [&[("time", 1)][..], &[("time", 2), ("y", 5), ("x", 4)], &[]] {
            let to = empty();
            let how = WriteSpec { codec: codec.into(), ..WriteSpec::default() };
            let stats = write(&source, &both(window, &[]), &to, &how).expect("written");
            let chunks: u64 = SHAPE.iter().zip(chunk).map(|(n, chunk)| n.div_ceil(chunk)).product();
            assert_eq!((stats.chunks, stats.found), (2 * chunks, 0), "{chunk:?} {window:?}");
            check(&to);
        }
    }
}

/// Dimensions, attributes and coordinates are the source's: windows of it are chosen by date.
#[test]
fn what_is_written_has_the_coordinates_of_the_source() {
    let (_folder, source) = source([1, 10, 12]);
    let to = empty();
    write(&source, &both(&[("time", 1)], &[]), &to, &WriteSpec::default()).expect("written");
    let select = [("time".to_owned(), "2000-01-01T12:00..2000-01-02".parse().expect("labels"))];
    let chosen = WindowsSpec { select: select.into(), ..spec(&["b"], &[("time", 1)]) };
    let mut seen = Vec::new();
    for batch in batches(&to, &chosen, 1).run().expect("runs") {
        let batch = batch.expect("no fault");
        let window = &batch.windows()[0];
        assert_eq!(window.attribute("b", "std"), Some(&json!(2.0)));
        let dims: Vec<_> =
            batch.get("b").expect("there").spec().dims.iter().skip(1).cloned().collect();
        assert_eq!(dims, ["time", "y", "x"].map(Into::into));
        seen.extend(window.ranges().map(|(_, range)| range.start));
    }
    assert_eq!(seen, [2, 3, 4, 5]);
}

#[test]
fn overlapping_windows_are_weighted() {
    let (_folder, source) = source([2, 5, 6]);
    for overlap in [Overlap::Mean, Overlap::Hann, Overlap::Triangle] {
        for (window, stride) in [
            (&[("time", 2)][..], &[("time", 1)][..]),
            (&[("time", 1), ("y", 4), ("x", 6)], &[("y", 2), ("x", 3)]),
            (&[("y", 7), ("x", 9)], &[("y", 1), ("x", 1)]),
        ] {
            let to = empty();
            let how = WriteSpec { overlap, ..WriteSpec::default() };
            write(&source, &both(window, stride), &to, &how).expect("written");
            // What all windows say is the same, so any mean of it is, too.
            check(&to);
        }
    }
}

/// Sums of three numbers and more depend on their order; what is written does not.
#[test]
fn what_overlaps_is_the_same_to_the_last_bit_in_any_order() {
    let (_folder, source) = open(&numbered(&[("y", 12), ("x", 10)]));
    let windows =
        WindowsSpec { stride: [("y", 1), ("x", 1)].into(), ..spec(&["v"], &[("y", 4), ("x", 3)]) };
    // Numbers of very different size that cancel: any other order gives another sum.
    let disagree = |mut batch: Batch| {
        let numbers: Vec<_> = batch.windows().iter().map(Window::number).collect();
        let tensor = &mut batch.tensors_mut()[0];
        let len = tensor.elements::<f64>().len() / numbers.len();
        let values = tensor.elements_mut::<f64>().chunks_mut(len).zip(numbers);
        for (window, number) in values {
            for (at, value) in window.iter_mut().enumerate() {
                let sign = if (number + at as u64).is_multiple_of(2) { 1.0 } else { -1.0 };
                let exponent = ((number * 7 + at as u64 * 3) % 23) as i32 - 11;
                *value = sign * 10_f64.powi(exponent) / 3.0;
            }
        }
        Ok::<_, Never>(batch)
    };
    let mut early = Vec::new();
    let mut write = |order: Option<u64>, size: usize| {
        let to = empty();
        let read = Pipeline::from(zarr::windows(&source, &windows).expect("windows"));
        let read = match order {
            Some(seed) => read.then(flow::shuffle(seed)),
            None => read,
        };
        let batches = read
            .then(flow::batch(size))
            .then(io::map("fetch", zarr::fetch))
            .then(cpu::map("decode", zarr::decode(&Pool::default())))
            .then(cpu::map("disagree", disagree));
        let how = WriteSpec { overlap: Overlap::Hann, ..WriteSpec::default() };
        let stats = write_all(batches, &to, &how).expect("written");
        early.push(stats.open_bytes_max);
        values(&to, "v").into_iter().map(f64::to_bits).collect::<Vec<_>>()
    };
    let in_order = write(None, 1);
    for (seed, size) in [(1, 1), (2, 3), (3, 16), (4, 72)] {
        assert!(write(Some(seed), size) == in_order, "seed {seed}, batches of {size}");
    }
    // What comes before its turn is counted.
    assert!(early[1] > early[0], "{early:?}");
}

/// Windows that disagree: each says its own number.
#[test]
fn a_mean_is_the_mean_and_a_taper_prefers_the_middle() {
    let (_folder, source) = open(&numbered(&[("x", 8)]));
    let run = |overlap| {
        let windows = WindowsSpec { stride: [("x", 2)].into(), ..spec(&["v"], &[("x", 4)]) };
        let numbered =
            batches(&source, &windows, 2).then(cpu::map("number", |mut batch: Batch| {
                let numbers: Vec<_> =
                    batch.windows().iter().map(|w| w.number() as f64 * 10.0).collect();
                for (value, at) in batch.tensors_mut()[0].elements_mut::<f64>().iter_mut().zip(0..)
                {
                    *value = numbers[at / 4];
                }
                Ok::<_, Never>(batch)
            }));
        let to = empty();
        let how = WriteSpec { overlap, ..WriteSpec::default() };
        write_all(numbered, &to, &how).expect("written");
        values(&to, "v")
    };
    assert_eq!(run(Overlap::Mean), [0.0, 0.0, 5.0, 5.0, 15.0, 15.0, 20.0, 20.0]);
    let triangle = run(Overlap::Triangle);
    // Weights of 1/4 and 3/4: the first of two shared entries is nearer to the middle of the first.
    let want = [0.0, 0.0, 2.5, 7.5, 12.5, 17.5, 20.0, 20.0];
    assert!(triangle.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "{triangle:?}");
    let hann = run(Overlap::Hann);
    assert!(hann[2] < 2.5 && hann[3] > 7.5, "{hann:?}");
}

#[test]
fn what_no_window_covers_has_the_fill_value() {
    let (_folder, source) = open(&numbered(&[("x", 11)]));
    // Chunks of 6: the windows 0..2, 4..6 and 8..10.
    let windows = WindowsSpec { stride: [("x", 4)].into(), ..spec(&["v"], &[("x", 2)]) };
    let to = empty();
    let stats = write(&source, &windows, &to, &WriteSpec::default()).expect("written");
    assert_eq!(stats.chunks, 2);
    let want = [0.0, 1.0, -1.0, -1.0, 4.0, 5.0, -1.0, -1.0, 8.0, 9.0, -1.0];
    assert_eq!(values(&to, "v"), want);
    // What lies beyond the data is not written, and windows that go around come to their place.
    for edge in [Edge::Pad, Edge::Short, Edge::Wrap] {
        let edges = Edges::All(edge);
        let windows = WindowsSpec { edges, ..spec(&["v"], &[("x", 3)]) };
        let to = empty();
        write_all(batches(&source, &windows, 1), &to, &WriteSpec::default()).expect("written");
        let all: Vec<_> = (0..11).map(f64::from).collect();
        assert_eq!(values(&to, "v"), all, "{edge:?}");
    }
}

#[test]
fn any_order_and_any_number_of_times_gives_the_same() {
    let (_folder, source) = source([2, 5, 12]);
    let windows = both(&[("time", 1), ("y", 5)], &[("y", 1)]);
    let shuffled = |by_chunks: bool| {
        let all = Pipeline::from(zarr::windows(&source, &windows).expect("windows"));
        let all = match by_chunks {
            true => all.then(flow::shuffle(3).by_chunks(None)),
            false => all.then(flow::shuffle(3)),
        };
        all.then(flow::repeat(2))
            .then(flow::batch(3))
            .then(io::map("fetch", zarr::fetch).unordered())
            .then(cpu::map("decode", zarr::decode(&Pool::default())).workers(2).unordered())
    };
    for by_chunks in [false, true] {
        let to = empty();
        let stats = write_all(shuffled(by_chunks), &to, &WriteSpec::default()).expect("written");
        assert_eq!(stats.chunks, 2 * 3 * 2);
        check(&to);
    }
}

/// In order and with one worker, the chunks that wait for windows are those that the next windows
/// touch, and no more.
#[test]
fn memory_is_bounded_by_the_chunks_under_way() {
    let (_folder, source) = source([1, 5, 12]);
    let run = |windows: &WindowsSpec, how: &WriteSpec| {
        let write = zarr::write(&empty(), how).expect("made").workers(1);
        let written = write.written();
        let run = batches(&source, windows, 1).then(write).run().expect("runs");
        run.drain().map(|_| written.stats()).map_err(|fault| fault.to_string())
    };
    let quarters = both(&[("time", 1), ("y", 5), ("x", 3)], &[]);
    let stats = run(&quarters, &WriteSpec::default()).expect("written");
    // One chunk of f32 of each variable.
    assert_eq!((stats.open_max, stats.open_bytes_max), (2, 2 * 60 * 4));
    // A window of two steps that moves by one: of each variable both chunks of the second step wait for
    // the next window, and each value takes two sums of f64.
    let pairs = both(&[("time", 2)], &[("time", 1)]);
    let stats = run(&pairs, &WriteSpec::default()).expect("written");
    assert_eq!((stats.open_max, stats.open_bytes_max), (2 * 2, 2 * 2 * 60 * 16));
    let tight = WriteSpec { memory: Some(3 * 60 * 16), ..WriteSpec::default() };
    let told = run(&pairs, &tight).expect_err("too much");
    assert!(told.contains("3 chunks wait for windows"), "{told}");
    assert!(told.contains("shuffle: chunks"), "{told}");
}

fn ranks(rank: u64, world: u64) -> Ranks {
    let world = std::num::NonZeroU64::new(world).expect("not 0");
    Ranks { rank, world, uneven: flow::Uneven::Drop }
}

fn rank(source: &Store, windows: &WindowsSpec, rank: u64, world: u64) -> Pipeline<Batch> {
    Pipeline::from(zarr::windows(source, windows).expect("windows"))
        .then(flow::shard(rank, world))
        .then(flow::batch(2))
        .then(io::map("fetch", zarr::fetch))
        .then(cpu::map("decode", zarr::decode(&Pool::default())))
}

#[test]
fn two_ranks_write_one_store() {
    let (_folder, source) = source([1, 10, 6]);
    let windows = both(&[("time", 1), ("x", 4)], &[]);
    for chunks in [1, 3] {
        let to = empty();
        let how = |rank| WriteSpec {
            chunks: [("time", chunks)].into(),
            shard: Some(ranks(rank, 2)),
            ..WriteSpec::default()
        };
        std::thread::scope(|scope| {
            let (windows, source, to, how) = (&windows, &source, &to, &how);
            for number in 0..2 {
                scope.spawn(move || {
                    let stats = write_all(rank(source, windows, number, 2), to, &how(number));
                    assert_eq!(stats.expect("written").chunks, 2 * 2 * 3 / chunks);
                });
            }
        });
        check(&to);
    }
}

/// A chunk that two ranks would write is refused before anything is written, or written by neither.
#[test]
fn two_ranks_never_write_one_chunk() {
    let (_folder, source) = source([4, 10, 12]);
    let windows = both(&[("time", 1)], &[]);
    let to = empty();
    let how = WriteSpec { shard: Some(ranks(0, 2)), ..WriteSpec::default() };
    let told = write_all(rank(&source, &windows, 0, 2), &to, &how).expect_err("refused");
    assert!(told.contains("two ranks would write the chunk `a/c/0/0/0`"), "{told}");
    assert!(told.contains("write `chunks: { time: 3 }`"), "{told}");
    assert_eq!(to.stats().bytes, 0);
    // Nobody said that there are ranks.
    let told = write_all(rank(&source, &windows, 0, 2), &to, &WriteSpec::default());
    let told = told.expect_err("incomplete");
    assert!(told.contains("1 of the 4 of `a/c/0/0/0`"), "{told}");
    let overlapping = both(&[("time", 2)], &[("time", 1)]);
    let how = WriteSpec {
        shard: Some(Ranks { uneven: flow::Uneven::Pad, ..ranks(1, 2) }),
        ..WriteSpec::default()
    };
    let told = write_all(rank(&source, &overlapping, 1, 2), &empty(), &how).expect_err("refused");
    assert!(told.contains("windows that overlap have no border"), "{told}");
    let how = WriteSpec { shard: Some(ranks(1, 2)), ..WriteSpec::default() };
    let told = write_all(rank(&source, &overlapping, 1, 2), &empty(), &how).expect_err("uneven");
    assert!(told.contains("5 windows do not divide among 2 ranks"), "{told}");
}

#[test]
fn missing_windows_are_told_or_filled() {
    let (_folder, source) = source([2, 10, 12]);
    let three = || batches(&source, &both(&[("time", 1)], &[]), 1).then(flow::take(3));
    let to = empty();
    let told = write_all(three(), &to, &WriteSpec::default()).expect_err("incomplete");
    assert!(told.contains("2 chunks are not written"), "{told}");
    assert!(told.contains("1 of the 2 of `a/c/1/0/0`"), "{told}");
    let how = WriteSpec { incomplete: Incomplete::Write, ..WriteSpec::default() };
    let stats = write_all(three(), &to, &how).expect("written");
    assert_eq!((stats.chunks, stats.found), (2, 2));
    let values = values(&to, "a");
    assert!(values[..360].iter().all(|value| *value >= 1000.0));
    assert!(values[360..].iter().all(|value| *value == -1.0));
}

/// Tensors of a model: of another name and type, and at the place of another window of the sample.
#[test]
fn a_models_results_are_written_at_their_place() {
    let (_folder, source) = source([1, 10, 12]);
    let next =
        Also { variables: vec!["a".into()], offset: [("time", 1)].into(), ..Also::default() };
    let pairs = WindowsSpec {
        variables: vec!["a".into(), "b".into()],
        window: [("time", 1)].into(),
        also: [("next".to_owned(), next)].into(),
        ..WindowsSpec::default()
    };
    let model = cpu::map("model", |batch: Batch| {
        let (tensors, windows) = batch.into_parts();
        let from = &tensors[0];
        let mut spec = from.spec().clone();
        (spec.name, spec.dtype) = ("forecast".into(), DType::F64);
        let mut out = Tensor::take(from.pool(), spec);
        for (to, from) in out.elements_mut::<f64>().iter_mut().zip(from.elements::<f32>()) {
            *to = f64::from(*from) + 1.0;
        }
        Ok::<_, Never>(Batch::new(tensors.into_iter().chain([out]).collect(), windows))
    });
    let to = empty();
    let how = WriteSpec {
        variables: vec!["forecast".into(), "next/a".into()],
        like: [("forecast".to_owned(), "next/a".to_owned())].into(),
        codec: Codec { name: CodecName::Zstd, level: Some(9) },
        ..WriteSpec::default()
    };
    write_all(batches(&source, &pairs, 2).then(model), &to, &how).expect("written");
    let (forecast, truth) = (values(&to, "forecast"), values(&to, "next_a"));
    // Each step is one more than the one before, so the model is right; the first step has no forecast.
    assert_eq!(forecast, truth);
    assert!(forecast[..120].iter().all(|value| *value == -1.0));
    assert!(forecast[120..].iter().all(|value| *value > 1000.0));
}

#[test]
fn what_cannot_be_written_is_told() {
    let (_folder, source) = source([1, 10, 12]);
    let windows = both(&[("time", 1)], &[]);
    let told =
        |to: &Store, how: &WriteSpec| write(&source, &windows, to, how).expect_err("refused");
    let sample = Store::open("sample://era5").expect("opens");
    let http = Store::open("http://localhost:9/x").expect("opens");
    for (to, says) in [(&sample, "the sample is for reading"), (&http, "takes no objects")] {
        let error = told(to, &WriteSpec::default());
        assert!(error.contains(says) && error.contains("write to a path"), "{error}");
    }
    let how = |change: fn(&mut WriteSpec)| {
        let mut how = WriteSpec::default();
        change(&mut how);
        how
    };
    type Case = (fn(&mut WriteSpec), &'static str);
    let cases: [Case; 7] = [
        (|how| how.variables = vec!["aa".into()], "did you mean `a`?"),
        (|how| how.like = [("b".into(), "c".into())].into(), "the source has no tensor `c`"),
        (|how| how.chunks = [("tme", 1)].into(), "`chunks` names `tme`, which no tensor has"),
        (|how| how.chunks = [("time", 0)].into(), "an extent of 0 in `time`"),
        (|how| how.codec.level = Some(99), "a level of 99: write 0 to 22"),
        (|how| how.shard = Some(ranks(2, 2)), "the first rank is 0"),
        (|how| how.chunks = [("time", 1 << 40)].into(), "more than 4 GiB"),
    ];
    for (change, says) in cases {
        let error = told(&empty(), &how(change));
        assert!(error.contains(says), "{says}: {error}");
    }
    let to = empty();
    write(&source, &windows, &to, &WriteSpec::default()).expect("written");
    let error = told(&to, &how(|how| how.chunks = [("time", 2)].into()));
    assert!(
        error.contains("`a` is in `results` already, with chunks of [1,10,12] instead of"),
        "{error}"
    );
    let error = told(&to, &how(|how| how.codec = CodecName::Gzip.into()));
    assert!(error.contains("with the codecs"), "{error}");
    let other = both(&[("time", 2)], &[]);
    let error = write(&source, &other, &to, &WriteSpec::default()).expect_err("other windows");
    assert!(error.contains("what it is made of"), "{error}");
    // Writing over the source itself is no way to lose it.
    let error = told(&source, &WriteSpec::default());
    assert!(error.contains("is in `") && error.contains("already"), "{error}");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(".zgroup"), "{\"zarr_format\": 2}").expect("written");
    let v2 = Store::open(folder.path().to_str().expect("UTF-8")).expect("opens");
    assert!(told(&v2, &WriteSpec::default()).contains("is a Zarr v2 store"));
}

#[test]
fn tensors_that_do_not_fit_their_windows_are_told() {
    let (_folder, source) = source([1, 10, 12]);
    let windows = both(&[("time", 1)], &[]);
    let changed = |change: fn(Batch) -> Batch| {
        let change = cpu::map("change", move |batch: Batch| Ok::<_, Never>(change(batch)));
        let batches = batches(&source, &windows, 2).then(change);
        write_all(batches, &empty(), &WriteSpec::default()).expect_err("refused")
    };
    let renamed = changed(|batch| {
        let (tensors, windows) = batch.into_parts();
        let mut spec = tensors[0].spec().clone();
        spec.name = "wind".into();
        Batch::new(vec![Tensor::take(tensors[0].pool(), spec)], windows)
    });
    assert!(renamed.contains("write for instance `like: { wind: a }`"), "{renamed}");
    let coarse = changed(|batch| {
        let (tensors, windows) = batch.into_parts();
        let mut spec = tensors[0].spec().clone();
        spec.shape = [2, 1, 5, 6].into();
        Batch::new(vec![Tensor::take(tensors[0].pool(), spec)], windows)
    });
    assert!(coarse.contains("it has 2 x 1 x 5 x 6 elements, but its 2 windows have"), "{coarse}");
    let cast = changed(|batch| {
        let is_late = batch.windows()[0].number() > 0;
        let (tensors, windows) = batch.into_parts();
        let mut spec = tensors[0].spec().clone();
        spec.dtype = if is_late { DType::F64 } else { DType::F32 };
        Batch::new(vec![Tensor::take(tensors[0].pool(), spec)], windows)
    });
    assert!(
        cast.contains("it is of type f64 now, and was f32")
            || cast.contains("f32 now, and was f64"),
        "{cast}"
    );
}

/// zarr-python reads what we write, if it is there: `FOREBAY_PYTHON` may say which Python has it.
#[test]
fn zarr_python_reads_what_is_written() {
    let python = std::env::var("FOREBAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_zarr = std::process::Command::new(&python).args(["-c", "import zarr"]).output();
    if !has_zarr.is_ok_and(|done| done.status.success()) {
        let why = format!("`{python}` has no zarr (pip install zarr, or set FOREBAY_PYTHON)");
        // Not captured, unlike what `eprintln` says.
        std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: {why}\n").as_bytes())
            .expect("said");
        return;
    }
    let (_folder, source) = source([2, 5, 12]);
    for codec in [CodecName::Zstd, CodecName::Blosc, CodecName::Gzip, CodecName::None] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("UTF-8");
        let to = Store::open(path).expect("opens");
        let how = WriteSpec { codec: codec.into(), ..WriteSpec::default() };
        let windows = both(&[("time", 2), ("y", 5)], &[("y", 1)]);
        write(&source, &windows, &to, &how).expect("written");
        let script = "
import sys, zarr, numpy as np
group = zarr.open_consolidated(sys.argv[1], mode='r')
t, i, j = np.meshgrid(np.arange(6), np.arange(10), np.arange(12), indexing='ij')
for k, name in enumerate('ab'):
    want = 1000.0 * (k + 1) + t + (i * 12 + j) % 97
    assert np.array_equal(group[name][:], want.astype('float32')), name
    assert group[name].metadata.dimension_names == ('time', 'y', 'x')
assert list(group['time'][:]) == [0, 6, 12, 18, 24, 30]
assert group['time'].attrs['calendar'] == 'noleap'
";
        let done = std::process::Command::new(&python).args(["-c", script, path]).output();
        let done = done.expect("python runs");
        assert!(done.status.success(), "{codec:?} {}", String::from_utf8_lossy(&done.stderr));
    }
}
