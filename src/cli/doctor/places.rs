//! The folder of kept runs, the clock, and the stores of a pipeline.

use std::io;
use std::path::Path;
use std::time::{Instant, SystemTime};

use super::{Finding, Health};
use crate::cli::progress;
use crate::definition::{Catalog, Definition, Set};
use crate::trace::duration;

/// Whether runs can be kept in `folder`. Nothing is left of the try.
pub(super) fn folder(folder: &Path) -> Finding {
    let here = std::env::current_dir().unwrap_or_default();
    let shown = here.join(folder).display().to_string();
    match try_to_write(folder) {
        Ok(()) => Finding::ok("kept runs", format!("{shown} can be written")),
        Err(error) => {
            let found = format!("{shown} can't be written: {error}");
            let advice = "go to another folder, or run with --no-record";
            Finding::new("kept runs", Health::Warn, found, advice)
        }
    }
}

fn try_to_write(folder: &Path) -> io::Result<()> {
    let was_there = folder.exists();
    std::fs::create_dir_all(folder)?;
    let file = folder.join(format!(".doctor-{}", std::process::id()));
    let written = std::fs::write(&file, "").and_then(|()| std::fs::remove_file(&file));
    if was_there { written } else { written.and(std::fs::remove_dir(folder)) }
}

/// A clock that is wrong makes stores refuse signed requests, and certificates look expired.
pub(super) fn clock() -> Finding {
    let now = SystemTime::now();
    let found =
        chrono::DateTime::<chrono::Utc>::from(now).format("%Y-%m-%d %H:%M:%S UTC").to_string();
    let built = std::env::current_exe().and_then(|file| file.metadata()).and_then(|m| m.modified());
    match built {
        Ok(built) if now < built => {
            let found = format!("{found}, before this program was written");
            let advice = "set the clock: stores refuse requests that are signed 15 minutes off";
            Finding::new("clock", Health::Fail, found, advice)
        }
        _ => Finding::new("clock", Health::Ok, found, "nothing to do, if that is the time"),
    }
}

/// Whether the stores of the definition in `file` can be opened.
pub(super) fn store(file: &Path, set: &Set, catalog: &Catalog) -> Finding {
    let shown = file.display();
    let definition = match Definition::load(file, catalog, set) {
        Ok(definition) => definition,
        Err(problems) => {
            let n = problems.len();
            let found = format!("{shown} has {n} {}", if n == 1 { "problem" } else { "problems" });
            let advice = format!("forebay check {shown}");
            return Finding::new("stores", Health::Fail, found, &advice);
        }
    };
    progress::make_sample_for(&definition, true);
    let start = Instant::now();
    match definition.build(catalog) {
        Ok(_) => {
            let took = duration(start.elapsed().as_nanos() as u64);
            Finding::ok("stores", format!("those of {shown} were opened in {took}"))
        }
        Err(problems) => {
            let found = problems.messages().collect::<Vec<_>>().join("; ");
            let advice =
                "try the address with another tool: a path, a region or credentials are wrong";
            Finding::new("stores", Health::Fail, found, advice)
        }
    }
}
