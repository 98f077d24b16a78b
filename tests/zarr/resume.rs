//! What is written is there whole or not at all, however a run ends, and the next run goes on with it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use forebay::prelude::*;
use forebay::zarr::WriteSpec;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

use crate::fixture::{Objects, batches};
use crate::write::{both, check, source, write};

/// A store that takes so many objects and then fails, as a process does that is killed.
#[derive(Debug)]
struct Fails {
    objects: Arc<InMemory>,
    puts: AtomicI64,
}

impl fmt::Display for Fails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fails")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Fails {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        if self.puts.fetch_sub(1, SeqCst) <= 0 {
            let source = "the disk is full".into();
            return Err(object_store::Error::Generic { store: "Fails", source });
        }
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.objects.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<bytes::Bytes>> {
        self.objects.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: futures::stream::BoxStream<'static, object_store::Result<Path>>,
    ) -> futures::stream::BoxStream<'static, object_store::Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(
        &self,
        prefix: Option<&Path>,
    ) -> futures::stream::BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

/// Wherever it is interrupted, each chunk is there whole or not at all, and a second run writes what is
/// missing and nothing else.
#[test]
fn an_interrupted_run_is_gone_on_with() {
    let (_folder, source) = source([2, 5, 12]);
    let windows = both(&[("time", 1), ("y", 4)], &[("y", 2)]);
    // The metadata of two arrays, of a coordinate and of the group, its values, and 12 chunks.
    for puts in [0, 1, 3, 5, 6, 9, 16, 17] {
        let objects = Arc::new(InMemory::new());
        let fails = Fails { objects: Arc::clone(&objects), puts: AtomicI64::new(puts) };
        let to = Store::from_object_store("fails", Arc::new(fails), "out").expect("a store");
        let first = write(&source, &windows, &to, &WriteSpec::default());
        match first {
            Ok(_) => assert_eq!(puts, 17),
            Err(told) => assert!(puts < 17 && told.contains("the disk is full"), "{puts}: {told}"),
        }
        let to = Store::from_object_store("works", objects, "out").expect("a store");
        let stats = write(&source, &windows, &to, &WriteSpec::default()).expect("written");
        assert_eq!(stats.found, (puts - 5).max(0) as u64);
        assert_eq!(stats.chunks + stats.found, 12);
        check(&to);
        let again = write(&source, &windows, &to, &WriteSpec::default()).expect("written");
        assert_eq!((again.chunks, again.found), (0, 12));
    }
}

#[test]
fn files_are_whole_or_not_there() {
    let (_folder, source) = source([1, 10, 12]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/results.zarr");
    let to = Store::open(path.to_str().expect("UTF-8")).expect("opens");
    let windows = both(&[("time", 1)], &[]);
    let mut run = batches(&source, &windows, 1)
        .then(zarr::write(&to, &WriteSpec::default()).expect("made"))
        .run()
        .expect("runs");
    run.next().expect("one").expect("written");
    drop(run);
    let stats = write(&source, &windows, &to, &WriteSpec::default()).expect("written");
    assert!(stats.found >= 2 && stats.chunks + stats.found == 12, "{stats:?}");
    check(&to);
    let mut names = Vec::new();
    let mut folders = vec![path];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("a folder").flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => names.push(entry.file_name().into_string().expect("UTF-8")),
            }
        }
    }
    assert!(
        names.iter().all(|name| name == "zarr.json" || name.parse::<u64>().is_ok()),
        "{names:?}"
    );
}

/// The command, killed once it has written its first chunk; then run again.
#[test]
fn a_killed_process_leaves_no_half_written_chunk() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |results: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let results = format!("results={results}");
        command.args([
            "run",
            concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/write.yaml"),
            "--set",
        ]);
        command.args([results.as_str(), "--format", "json"]).current_dir(folder.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command
    };
    let objects = |name: &str| {
        let root = folder.path().join(name);
        let (mut objects, mut folders) = (Objects::new(), vec![root.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with('.'))
                {
                    let key = path.strip_prefix(&root).expect("below").to_str().expect("UTF-8");
                    objects.insert(key.to_owned(), std::fs::read(&path).unwrap_or_default());
                }
            }
        }
        objects
    };
    assert!(run("whole").status().expect("runs").success());
    let whole = objects("whole");
    let chunks = |objects: &Objects| objects.keys().filter(|key| key.contains("t2m/c/")).count();
    assert_eq!(chunks(&whole), 8);
    let mut killed = run("killed").spawn().expect("starts");
    while chunks(&objects("killed")) == 0 && killed.try_wait().expect("asked").is_none() {
        std::thread::yield_now();
    }
    killed.kill().expect("killed");
    killed.wait().expect("ended");
    for (key, bytes) in objects("killed") {
        assert!(whole[&key] == bytes, "{key} is whole");
    }
    assert!(run("killed").status().expect("runs").success());
    assert!(objects("killed") == whole, "all of it is there");
}
