//! The embedded sample: a small ERA5-like Zarr store, made once in the user's cache folder. The
//! same bytes on every machine: it is computed with arithmetic that rounds the same everywhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::item::mix;

/// Its only name so far: `sample://era5`.
pub const NAME: &str = "era5";
/// Another layout of the sample gets another number, so that an old one is not taken for it.
const FOLDER: &str = "era5-v2";
const STEPS: u64 = 16;
const LATITUDES: u64 = 721;
const LONGITUDES: u64 = 1440;
/// The first step, 2020-01-01T00, in hours since 1900-01-01, and the hours between steps.
const HOURS: (i64, i64) = (1_051_896, 6);
/// What a killed process left behind is removed after this time.
const STALE: Duration = Duration::from_secs(3600);

/// A variable: its name and unit, and its values as `offset + scale x k` with `k` of 16 bits.
struct Variable {
    name: &'static str,
    long_name: &'static str,
    units: &'static str,
    offset: f32,
    scale: f32,
    /// How strongly it depends on latitude and on the moving waves, in units of the scale.
    belt: f64,
    waves: f64,
    seed: u64,
}

const VARIABLES: [Variable; 3] = [
    Variable {
        name: "t2m",
        long_name: "2 metre temperature",
        units: "K",
        offset: 208.0,
        scale: 1.0 / 512.0,
        belt: 34_000.0,
        waves: 5_000.0,
        seed: 1,
    },
    Variable {
        name: "u10",
        long_name: "10 metre U wind component",
        units: "m s**-1",
        offset: -32.0,
        scale: 1.0 / 1024.0,
        belt: 9_000.0,
        waves: 9_000.0,
        seed: 2,
    },
    Variable {
        name: "v10",
        long_name: "10 metre V wind component",
        units: "m s**-1",
        offset: -32.0,
        scale: 1.0 / 1024.0,
        belt: 2_000.0,
        waves: 11_000.0,
        seed: 3,
    },
];

/// The folder of the sample store called `name`, made if it is not there.
pub(super) fn find_or_make(name: &str) -> Result<PathBuf, String> {
    ensure(name, &|_, _| {})
}

/// Makes the sample store called `name` unless it is there, and gives its folder. `progress` is
/// told how many of how many chunks are written, from several threads.
///
/// It lies in `$FOREBAY_CACHE`, else `$XDG_CACHE_HOME/forebay`, else `~/.cache/forebay`.
///
/// # Errors
/// There is no such sample, or the folder cannot be written.
pub fn ensure(name: &str, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<PathBuf, String> {
    // Several pipelines of one process wait for one maker; of several processes the first wins.
    static MAKING: Mutex<()> = Mutex::new(());
    if name.trim_end_matches('/') != NAME {
        return Err(format!("there is no sample `{name}`: write `sample://{NAME}`"));
    }
    let cache = cache_folder().ok_or("no cache folder: set FOREBAY_CACHE or HOME")?;
    let folder = cache.join(FOLDER);
    let _making = MAKING.lock();
    if folder.join("zarr.json").is_file() {
        return Ok(folder);
    }
    make(&cache, &folder, progress).map_err(|error| {
        let cache = cache.display();
        format!(
            "could not make the sample in {cache}: {error}; it needs 120 MB: set FOREBAY_CACHE to a \
             folder with room"
        )
    })?;
    Ok(folder)
}

/// Whether the sample has been made.
pub fn is_made() -> bool {
    cache_folder().is_some_and(|cache| cache.join(FOLDER).join("zarr.json").is_file())
}

/// `$FOREBAY_CACHE`, else `$XDG_CACHE_HOME/forebay`, else `~/.cache/forebay`.
pub(super) fn cache_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FOREBAY_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("forebay")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/forebay")))
}

fn make(cache: &Path, folder: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> io::Result<()> {
    fs::create_dir_all(cache)?;
    remove_stale(cache);
    let part = cache.join(format!("{FOLDER}.part-{}", std::process::id()));
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    let made = write_all(&part, progress).and_then(|()| match fs::rename(&part, folder) {
        // Another process was faster: its sample holds the same bytes.
        Err(_) if folder.join("zarr.json").is_file() => fs::remove_dir_all(&part),
        renamed => renamed,
    });
    if made.is_err()
        && let Err(error) = fs::remove_dir_all(&part)
    {
        tracing::debug!(%error, "an unfinished sample is left behind");
    }
    made
}

fn remove_stale(cache: &Path) {
    let Ok(entries) = cache.read_dir() else { return };
    for entry in entries.flatten() {
        let stale = entry.file_name().to_string_lossy().contains(".part-")
            && entry.metadata().is_ok_and(|metadata| is_stale(&metadata));
        if stale && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::debug!(%error, "an unfinished sample is left behind");
        }
    }
}

/// Whether what a process is writing has not changed for so long that the process must be gone.
pub(super) fn is_stale(metadata: &fs::Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age > STALE)
}

fn write_all(root: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> io::Result<()> {
    for variable in &VARIABLES {
        fs::create_dir_all(root.join(variable.name).join("c"))?;
    }
    let total = VARIABLES.len() as u64 * STEPS;
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let write = || -> io::Result<Vec<(u64, Sums)>> {
        let mut sums = Vec::new();
        let mut writer = Writer::default();
        loop {
            let chunk = next.fetch_add(1, Relaxed);
            if chunk >= total {
                return Ok(sums);
            }
            let variable = &VARIABLES[(chunk / STEPS) as usize];
            sums.push((chunk, writer.write(root, variable, chunk % STEPS)?));
            progress(done.fetch_add(1, Relaxed) + 1, total);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut sums = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(write)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        io::Result::Ok(all)
    })?;
    // Added up in one order whatever the threads did, so that the attributes are the same.
    sums.sort_by_key(|(chunk, _)| *chunk);
    write_metadata(root, &sums)
}

/// What the mean and the deviation are computed from.
#[derive(Clone, Copy, Default)]
struct Sums {
    k: u64,
    k_squared: u64,
}

#[derive(Default)]
struct Writer {
    values: Vec<f32>,
    encoded: Vec<u8>,
}

impl Writer {
    fn write(&mut self, root: &Path, variable: &Variable, step: u64) -> io::Result<Sums> {
        let sums = self.compute(variable, step);
        let bytes: &[u8] = bytemuck::cast_slice(&self.values);
        self.encoded.clear();
        self.encoded.reserve(zstd_safe::compress_bound(bytes.len()));
        zstd_safe::compress(&mut self.encoded, bytes, 1)
            .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        let folder = root.join(variable.name).join("c").join(step.to_string()).join("0");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("0"), &self.encoded)?;
        Ok(sums)
    }

    /// Belts by latitude, three waves that move east, and noise in the lowest bits.
    fn compute(&mut self, variable: &Variable, step: u64) -> Sums {
        self.values.clear();
        let mut sums = Sums::default();
        let t = step as f64 / STEPS as f64;
        let lon = |j: u64| j as f64 / LONGITUDES as f64;
        let waves: [Vec<f64>; 3] = [(3.0, 1.0), (5.0, -2.0), (11.0, 3.0)]
            .map(|(n, speed)| (0..LONGITUDES).map(|j| wave(n * lon(j) + speed * t)).collect());
        for i in 0..LATITUDES {
            let lat = i as f64 / (LATITUDES - 1) as f64;
            let belt = 4.0 * lat * (1.0 - lat);
            let base = 8_000.0 + variable.belt * belt;
            let heights = [0.5 * belt, 0.35 * wave(2.0 * lat), 0.15 * wave(7.0 * lat + t)]
                .map(|share| share * variable.waves);
            let mut noise = 0;
            for j in 0..LONGITUDES as usize {
                if j % 16 == 0 {
                    noise = mix(variable.seed << 32 | step, i * LONGITUDES + j as u64);
                }
                let smooth: f64 = waves.iter().zip(heights).map(|(wave, h)| wave[j] * h).sum();
                let k = (base + variable.waves + smooth) as u64 + (noise & 7);
                noise >>= 3;
                let k = k.min(u64::from(u16::MAX));
                sums.k += k;
                sums.k_squared += k * k;
                self.values.push(variable.offset + variable.scale * k as f32);
            }
        }
        sums
    }
}

/// A wave of period 1 between -1 and 1, of parabolas: its arithmetic is exact everywhere.
fn wave(x: f64) -> f64 {
    let x = x - x.floor();
    if x < 0.5 { 16.0 * x * (0.5 - x) } else { -16.0 * (x - 0.5) * (1.0 - x) }
}

fn write_metadata(root: &Path, sums: &[(u64, Sums)]) -> io::Result<()> {
    let mut consolidated = serde_json::Map::new();
    for (variable, sums) in VARIABLES.iter().zip(sums.chunks(STEPS as usize)) {
        let n = (STEPS * LATITUDES * LONGITUDES) as f64;
        let (k, k_squared) = sums
            .iter()
            .fold((0, 0_u128), |(k, squared), (_, s)| (k + s.k, squared + u128::from(s.k_squared)));
        let mean = k as f64 / n;
        let deviation = (k_squared as f64 / n - mean * mean).sqrt();
        let scale = f64::from(variable.scale);
        let metadata =
            array(variable, f64::from(variable.offset) + scale * mean, scale * deviation);
        write_json(&root.join(variable.name).join("zarr.json"), &metadata)?;
        consolidated.insert(variable.name.into(), metadata);
    }
    for (name, metadata, values) in coordinates() {
        fs::create_dir_all(root.join(name).join("c"))?;
        write_json(&root.join(name).join("zarr.json"), &metadata)?;
        fs::write(root.join(name).join("c").join("0"), values)?;
        consolidated.insert(name.into(), metadata);
    }
    let group = json!({
        "zarr_format": 3,
        "node_type": "group",
        "attributes": { "title": "Forebay's sample: computed, ERA5-like" },
        "consolidated_metadata": {
            "kind": "inline", "must_understand": false, "metadata": consolidated,
        },
    });
    write_json(&root.join("zarr.json"), &group)
}

fn array(variable: &Variable, mean: f64, deviation: f64) -> Value {
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [STEPS, LATITUDES, LONGITUDES],
        "data_type": "float32",
        "chunk_grid": {
            "name": "regular",
            "configuration": { "chunk_shape": [1, LATITUDES, LONGITUDES] },
        },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": "NaN",
        "codecs": [
            { "name": "bytes", "configuration": { "endian": "little" } },
            { "name": "zstd", "configuration": { "level": 1, "checksum": false } },
        ],
        "dimension_names": ["time", "latitude", "longitude"],
        "attributes": {
            "long_name": variable.long_name, "units": variable.units,
            "mean": mean, "std": deviation,
        },
    })
}

/// The coordinates: their names, metadata and values.
fn coordinates() -> [(&'static str, Value, Vec<u8>); 3] {
    let metadata = |name, len: u64, dtype: &str, attributes: Value| {
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [len],
            "data_type": dtype,
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [len] } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": 0,
            "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
            "dimension_names": [name],
            "attributes": attributes,
        })
    };
    let hours = json!({ "units": "hours since 1900-01-01", "calendar": "proleptic_gregorian" });
    let time = (0..STEPS as i64).flat_map(|step| (HOURS.0 + HOURS.1 * step).to_le_bytes());
    let north = (0..LATITUDES).flat_map(|i| (90.0 - i as f32 * 0.25).to_le_bytes());
    let east = (0..LONGITUDES).flat_map(|j| (j as f32 * 0.25).to_le_bytes());
    let degrees = |direction: &str| json!({ "units": format!("degrees_{direction}") });
    [
        ("time", metadata("time", STEPS, "int64", hours), time.collect()),
        ("latitude", metadata("latitude", LATITUDES, "float32", degrees("north")), north.collect()),
        (
            "longitude",
            metadata("longitude", LONGITUDES, "float32", degrees("east")),
            east.collect(),
        ),
    ]
}

fn write_json(path: &Path, value: &Value) -> io::Result<()> {
    fs::write(path, serde_json::to_vec_pretty(value)?)
}
