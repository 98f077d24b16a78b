//! Where the sockets of a user's runs are: a folder that nobody else may enter, a socket for each run,
//! named for its process.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::process::{Pid, geteuid, test_kill_process};

/// A run that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    pub(crate) pid: u32,
    pub(crate) path: PathBuf,
}

/// The name of a socket, which is this process's while this lives.
#[derive(Debug)]
pub(crate) struct Claim {
    number: u32,
    pub(crate) path: PathBuf,
}

/// Of this process's runs, the numbers in use and the sockets.
static TAKEN: Mutex<BTreeMap<u32, PathBuf>> = Mutex::new(BTreeMap::new());

/// Claims a path for a socket of this process: `<pid>.sock`, `<pid>-2.sock` and so on.
pub(crate) fn claim() -> io::Result<Claim> {
    let folder = folder()?;
    let mut taken = TAKEN.lock();
    let free = (1..).find(|number| !taken.contains_key(number));
    let number = free.expect("a process has fewer runs than numbers");
    let pid = std::process::id();
    let path = folder.join(match number {
        1 => format!("{pid}.sock"),
        n => format!("{pid}-{n}.sock"),
    });
    // What is there is of a process that had this number before.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    taken.insert(number, path.clone());
    Ok(Claim { number, path })
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock();
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the socket is gone");
        }
        taken.remove(&self.number);
    }
}

/// Removes the sockets of this process, which is about to exit without dropping anything, as far as
/// nobody is about to change them.
pub(crate) fn remove_sockets() {
    let Some(taken) = TAKEN.try_lock() else { return };
    for path in taken.values() {
        if let Err(error) = fs::remove_file(path) {
            tracing::debug!(path = %path.display(), %error, "the socket is left behind");
        }
    }
}

/// The runs of this user that can be asked. Sockets of processes that are gone are removed.
pub(crate) fn sockets() -> Vec<Socket> {
    let folders = candidates().into_iter().filter(|folder| is_ours(folder).is_ok());
    let entries = folders.filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let mut sockets: Vec<_> = entries.filter_map(|entry| socket(&entry.path())).collect();
    sockets.sort_by(|a, b| (a.pid, &a.path).cmp(&(b.pid, &b.path)));
    sockets
}

/// Why folders that are there are not looked into, a line each.
pub(crate) fn refused() -> Vec<String> {
    let refusals = candidates().into_iter().filter_map(|folder| is_ours(&folder).err());
    let there = refusals.filter(|error| error.kind() != io::ErrorKind::NotFound);
    there.map(|error| error.to_string()).collect()
}

fn socket(path: &Path) -> Option<Socket> {
    let pid = path.file_name()?.to_str()?.strip_suffix(".sock")?.split('-').next()?;
    let pid: u32 = pid.parse().ok()?;
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    let is_dead = test_kill_process(process) == Err(rustix::io::Errno::SRCH)
        // Another process may have its number by now, which does not listen.
        || UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
    if is_dead {
        if let Err(error) = fs::remove_file(path) {
            tracing::debug!(path = %path.display(), %error, "a stale socket can't be removed");
        }
        return None;
    }
    Some(Socket { pid, path: path.to_owned() })
}

/// The folder that sockets are made in.
fn folder() -> io::Result<PathBuf> {
    let mut refused = None;
    for folder in candidates() {
        match made(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

fn candidates() -> Vec<PathBuf> {
    if let Some(only) = std::env::var_os("FOREBAY_SOCKETS") {
        return vec![PathBuf::from(only)];
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|folder| folder.is_absolute()).map(|dir| dir.join("forebay"));
    let shared = PathBuf::from(format!("/tmp/forebay-{}", geteuid().as_raw()));
    runtime.into_iter().chain([shared]).collect()
}

fn made(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    is_ours(folder)
}

/// Anybody could have made a folder of that name in a shared place, or a link.
fn is_ours(folder: &Path) -> io::Result<()> {
    let refused = |why: &str| {
        let text = format!("{} {why}", folder.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return refused("is no folder");
    }
    if found.uid() != geteuid().as_raw() {
        return refused("belongs to somebody else");
    }
    if found.permissions().mode() & 0o077 != 0 {
        return refused("is open to others: `chmod 700` it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_others_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("forebay");
        made(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        made(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(made(&folder).unwrap_err().to_string().ends_with("`chmod 700` it"));
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert!(made(&link).unwrap_err().to_string().ends_with("is no folder"));
        assert!(geteuid().is_root() || is_ours(Path::new("/")).is_err());
    }

    #[test]
    fn sockets_of_dead_processes_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = place.path().join(name);
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            path
        };
        // No process has so large a number; and this one does not listen.
        let (dead, deaf) = (at("2147483646.sock"), at(&format!("{}-9.sock", std::process::id())));
        assert_eq!((socket(&dead), socket(&deaf)), (None, None));
        assert!(!dead.exists() && !deaf.exists());
        let other = place.path().join("notes.txt");
        fs::write(&other, "kept").unwrap();
        assert_eq!(socket(&other), None);
        assert!(other.exists());
    }
}
