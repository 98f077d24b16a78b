//! Cores, memory and the limits of a process. What a system does not tell is said to be unknown.

use std::num::NonZero;
use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::{Finding, Health};
use crate::trace::bytes;

/// Fewer open files are soon too few.
const OPEN_FILES: u64 = 4096;
/// With less memory, buffers have to be made smaller.
const MEMORY: u64 = 4 << 30;
/// Pinned buffers want this much, at least.
const LOCKED: u64 = 1 << 30;

pub(super) fn cores(root: &Path) -> Finding {
    let usable = std::thread::available_parallelism().map_or(1, NonZero::get);
    let there = std::fs::read_to_string(root.join("proc/cpuinfo")).ok();
    let there = there.map(|text| text.lines().filter(|line| line.starts_with("processor")).count());
    let found = match there {
        Some(there) if there > usable => format!("{usable} of {there} may be used"),
        _ => format!("{usable}"),
    };
    match (usable, there) {
        (1, _) => Finding::new(
            "cores",
            Health::Warn,
            found,
            "give it more: fetching, decoding and your loop share one",
        ),
        (_, Some(there)) if there > usable => Finding::new(
            "cores",
            Health::Ok,
            found,
            "nothing to do, unless it should have more: see its cgroup or `taskset`",
        ),
        _ => Finding::ok("cores", found),
    }
}

pub(super) fn memory(root: &Path) -> Finding {
    let info = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let kib = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().ok()
    };
    let (Some(total), Some(available)) = (kib("MemTotal:"), kib("MemAvailable:")) else {
        return Finding::new("memory", Health::Ok, "not known on this system", "");
    };
    let (total, available) = (total * 1024, available * 1024);
    let limit = cgroup_limit(root).filter(|limit| *limit < total);
    let free = limit.map_or(available, |limit| limit.min(available));
    let mut found = format!("{} free of {}", bytes(available as f64), bytes(total as f64));
    if let Some(limit) = limit {
        found += &format!(", its cgroup allows {}", bytes(limit as f64));
    }
    if free < MEMORY {
        let advice = "bound the buffers (`buffer: { bytes: 256MiB }`), or give it more";
        Finding::new("memory", Health::Warn, found, advice)
    } else {
        Finding::ok("memory", found)
    }
}

/// The least that the cgroup of this process, or one around it, allows.
fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().flat_map(|line| {
        // `0::/a/b` in version 2, `4:memory:/a/b` in version 1.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let (mount, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let at = Path::new(path.trim_start_matches('/'));
        let files = at.ancestors().map(|at| root.join(mount).join(at).join(file));
        files.filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok()).collect()
    });
    limits.min()
}

pub(super) fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    let found = if now == u64::MAX { "no limit".to_owned() } else { format!("{now} at most") };
    let advice = if most >= OPEN_FILES {
        format!("before a run: ulimit -n {}", most.min(65_536))
    } else {
        "let an administrator raise it: each request of a store needs one".to_owned()
    };
    match now {
        OPEN_FILES.. => Finding::ok("open files", found),
        _ => Finding::new("open files", Health::Warn, found, &advice),
    }
}

/// Memory that may be locked matters where buffers are pinned for a GPU.
pub(super) fn locked_memory(has_gpu: bool) -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let found =
        limit.map_or("no limit".to_owned(), |limit| format!("{} at most", bytes(limit as f64)));
    match limit {
        Some(limit) if limit < LOCKED && has_gpu => {
            let advice = "before a run: ulimit -l unlimited, for pinned buffers";
            Finding::new("locked memory", Health::Warn, found, advice)
        }
        Some(limit) if limit < LOCKED => {
            let advice = "nothing to do: only a GPU's pinned buffers need more";
            Finding::new("locked memory", Health::Ok, found, advice)
        }
        _ => Finding::ok("locked memory", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::made_up::write;

    const MEMINFO: &str =
        "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n";

    #[test]
    fn the_tightest_cgroup_around_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        assert_eq!(memory(root).found, "not known on this system");
        write(root, "proc/meminfo", MEMINFO);
        assert_eq!(
            (memory(root).health, &*memory(root).found),
            (Health::Ok, "8.19 GB free of 16.4 GB")
        );
        write(root, "proc/self/cgroup", "0::/job/step\n");
        write(root, "sys/fs/cgroup/job/step/memory.max", "max\n");
        assert_eq!(memory(root).health, Health::Ok);
        write(root, "sys/fs/cgroup/job/memory.max", "1073741824\n");
        let found = memory(root);
        assert_eq!(found.health, Health::Warn);
        assert!(found.found.ends_with("its cgroup allows 1.07 GB"), "{found:?}");
        // Version 1 beside it, whose root says a huge number for "no limit".
        write(root, "proc/self/cgroup", "5:cpu:/\n4:memory:/job\n");
        write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory(root).health, Health::Ok);
    }
}
