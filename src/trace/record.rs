//! A run as it is kept: its figures, how they grew, and what it ran on. A file for programs, and the
//! page that is made of it for people.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{RunReport, Series};

/// The version of this schema.
const SCHEMA: u32 = 1;

const PAGE: &str = include_str!("page/report.html");
const STYLE: &str = include_str!("page/report.css");
const SCRIPT: &str = include_str!("page/report.js");

/// A run as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of this schema: fields are added, never changed.
    pub schema: u32,
    /// The run's name: when it started, and the pipeline.
    pub run: String,
    /// When it started, as RFC 3339 says it.
    pub started: String,
    /// Its figures.
    pub report: RunReport,
    /// How they grew over time.
    pub series: Series,
    /// What it ran on.
    pub machine: Machine,
    /// The version of Forebay.
    pub version: String,
    /// The run's seed.
    pub seed: Option<u64>,
    /// The definition's text, without secrets.
    pub definition: Option<String>,
}

/// What a run ran on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Cores that the process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory: Option<u64>,
    /// The operating system.
    pub os: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (cpu, memory, release) = told();
        let os = format!("{} {}", std::env::consts::OS, release.unwrap_or_default());
        Machine { cpu, cores, memory, os: os.trim().to_owned() }
    }
}

#[cfg(target_os = "linux")]
fn told() -> (Option<String>, Option<u64>, Option<String>) {
    use procfs::Current as _;
    let cpu = procfs::CpuInfo::current().ok();
    let cpu = cpu.and_then(|cpu| cpu.model_name(0).map(str::to_owned));
    let memory = procfs::Meminfo::current().ok().map(|memory| memory.mem_total);
    (
        cpu,
        memory,
        procfs::sys::kernel::Version::current()
            .ok()
            .map(|version| format!("{}.{}.{}", version.major, version.minor, version.patch)),
    )
}

#[cfg(not(target_os = "linux"))]
fn told() -> (Option<String>, Option<u64>, Option<String>) {
    (None, None, None)
}

impl RunRecord {
    /// A run that started at `started`.
    pub fn new(report: RunReport, series: Series, started: SystemTime) -> Self {
        let started = chrono::DateTime::<chrono::Utc>::from(started);
        let plain = |c: char| if c.is_alphanumeric() { c } else { '-' };
        let mut name: String = report.pipeline.chars().map(plain).collect();
        // A file's name has 255 bytes.
        name.truncate(name.floor_char_boundary(64));
        RunRecord {
            schema: SCHEMA,
            run: format!("{}-{name}", started.format("%Y-%m-%dT%H%M%S")),
            started: started.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            report,
            series,
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: None,
            definition: None,
        }
    }

    /// The run kept in `file`.
    ///
    /// # Errors
    /// The file can't be read or holds something else.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = std::fs::read(file)?;
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut record: RunRecord =
            serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        if record.schema != SCHEMA {
            return Err(invalid(format!("its schema is {}, not {SCHEMA}", record.schema)));
        }
        // Names from elsewhere must not steer a terminal.
        for name in [&mut record.run, &mut record.report.pipeline] {
            name.retain(|c| !c.is_control());
        }
        Ok(record)
    }

    /// The run as one page that needs nothing else.
    pub fn to_html(&self) -> String {
        // Nothing in it may end the script that it stands in.
        let data = serde_json::to_string(self).expect("plain data").replace('<', "\\u003c");
        let title = format!("{} · Forebay", self.report.pipeline);
        let title = title.replace('&', "&amp;").replace('<', "&lt;");
        // Each part is cut out of the page itself, never of what was put in.
        let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
        let mut rest = PAGE;
        for (place, text) in
            [("{{TITLE}}", &*title), ("/*CSS*/", STYLE), ("{{DATA}}", &data), ("/*JS*/", SCRIPT)]
        {
            let (before, after) = rest.split_once(place).expect("the page has this place");
            page.push_str(before);
            page.push_str(text);
            rest = after;
        }
        page.push_str(rest);
        page
    }
}
