//! Where a store lies: what its URL and options mean. Reads nothing itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use url::Url;

use super::error::redacted;
use super::pace::Paced;
use super::{StoreError, StoreOptions, sample};

type Client = Arc<dyn ObjectStore>;
type Connect = Box<dyn Fn() -> Result<Client, object_store::Error> + Send + Sync>;

pub(super) enum Place {
    Local(PathBuf),
    Remote(Remote),
}

pub(super) struct Remote {
    connect: Connect,
    client: OnceLock<Client>,
    prefix: Key,
    suffix_ranges: bool,
}

/// The stores of `memory://`, which live as long as the process.
static MEMORY: LazyLock<Mutex<BTreeMap<String, Client>>> = LazyLock::new(Mutex::default);

/// What `url` and `options` mean, and the URL as it may be shown.
pub(super) fn open(
    url: &str,
    options: &StoreOptions,
    pace: &Paced,
) -> Result<(String, Place), StoreError> {
    let shown = redacted(url);
    let wrong = |why: String| StoreError::Open { url: shown.clone(), why };
    if url.trim().is_empty() {
        return Err(wrong(
            "it has no URL: write a path, file://, memory://, http(s)://, s3://, gs://, az:// or \
             sample://"
                .to_owned(),
        ));
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        no_options(options).map_err(wrong)?;
        return Ok((shown.clone(), Place::Local(PathBuf::from(url))));
    };
    let parsed = || Url::parse(url).map_err(|error| wrong(format!("{error}")));
    let place = match scheme {
        "file" => {
            no_options(options).map_err(&wrong)?;
            let path = parsed()?.to_file_path();
            Place::Local(path.map_err(|()| {
                wrong("a file URL has no host: write `file:///` and the path".into())
            })?)
        }
        "sample" => {
            no_options(options).map_err(&wrong)?;
            Place::Local(sample::find_or_make(rest).map_err(wrong)?)
        }
        "memory" => {
            no_options(options).map_err(&wrong)?;
            let made = || Arc::new(InMemory::new()) as Client;
            let mut all = MEMORY.lock();
            Place::given(
                Arc::clone(all.entry(rest.to_owned()).or_insert_with(made)),
                Key::default(),
            )
        }
        "http" | "https" => {
            let place = http(parsed()?, options, pace);
            place.map_err(|error| wrong(redacted(&error.to_string())))?
        }
        "s3" | "s3a" | "gs" | "az" | "azure" | "abfs" | "abfss" => {
            let place = cloud(scheme, &parsed()?, options, pace);
            place.map_err(|error| wrong(redacted(&error.to_string())))?
        }
        other => {
            let why = format!(
                "`{other}://` is not known: write a path, file://, memory://, http(s)://, s3://, \
                 gs://, az:// or sample://"
            );
            return Err(wrong(why));
        }
    };
    Ok((shown, place))
}

fn no_options(options: &StoreOptions) -> Result<(), String> {
    match options.keys().next() {
        None => Ok(()),
        Some(key) => Err(format!("it takes no options, but `{key}` was given")),
    }
}

type Failure = Box<dyn std::error::Error>;

fn http(url: Url, options: &StoreOptions, pace: &Paced) -> Result<Place, Failure> {
    let mut client = ClientOptions::new().with_allow_http(true);
    for (key, value) in options {
        client = client.with_config(known::<ClientConfigKey>(key)?, value);
    }
    let mut root = url.clone();
    root.set_path("");
    root.set_query(None);
    let prefix = Key::from_url_path(url.path())?;
    let pace = pace.clone();
    let connect = move || {
        let builder = HttpBuilder::new().with_url(root.as_str()).with_retry(retries());
        let builder = builder.with_http_connector(pace.clone());
        Ok(Arc::new(builder.with_client_options(client.clone()).build()?) as Client)
    };
    Place::remote(Box::new(connect), prefix, true)
}

fn cloud(scheme: &str, url: &Url, options: &StoreOptions, pace: &Paced) -> Result<Place, Failure> {
    let paced = pace.clone();
    let prefix = object_store::ObjectStoreScheme::parse(url)?.1;
    let address = url.as_str();
    let (connect, suffix_ranges): (Connect, _) = match scheme {
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::from_env()
                .with_url(address)
                .with_retry(retries())
                .with_http_connector(paced);
            for (key, value) in options {
                builder = builder.with_config(known::<AmazonS3ConfigKey>(key)?, value);
            }
            (Box::new(move || Ok(Arc::new(builder.clone().build()?) as Client)), true)
        }
        "gs" => {
            let mut builder = GoogleCloudStorageBuilder::from_env()
                .with_url(address)
                .with_retry(retries())
                .with_http_connector(paced);
            for (key, value) in options {
                builder = builder.with_config(known::<GoogleConfigKey>(key)?, value);
            }
            (Box::new(move || Ok(Arc::new(builder.clone().build()?) as Client)), true)
        }
        _ => {
            let mut builder = MicrosoftAzureBuilder::from_env()
                .with_url(address)
                .with_retry(retries())
                .with_http_connector(paced);
            for (key, value) in options {
                builder = builder.with_config(known::<AzureConfigKey>(key)?, value);
            }
            (Box::new(move || Ok(Arc::new(builder.clone().build()?) as Client)), false)
        }
    };
    Place::remote(connect, prefix, suffix_ranges)
}

fn known<K: std::str::FromStr>(key: &str) -> Result<K, String> {
    key.parse().map_err(|_| format!("it has no option `{key}`"))
}

/// A few quick tries of our own; what takes longer is for the stage's `retry` to say.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 3, retry_timeout: Duration::from_secs(30), ..Default::default() }
}

impl Place {
    pub(super) fn given(client: Client, prefix: Key) -> Place {
        let connect: Connect = Box::new(move || Ok(Arc::clone(&client)));
        Place::Remote(Remote { connect, client: OnceLock::new(), prefix, suffix_ranges: true })
    }

    /// A first client is made at once, so that missing settings are found now.
    fn remote(connect: Connect, prefix: Key, suffix_ranges: bool) -> Result<Place, Failure> {
        let client = OnceLock::from(connect()?);
        Ok(Place::Remote(Remote { connect, client, prefix, suffix_ranges }))
    }

    pub(super) fn has_suffix_ranges(&self) -> bool {
        match self {
            Place::Local(_) => true,
            Place::Remote(remote) => remote.suffix_ranges,
        }
    }

    /// A new client.
    pub(super) fn connect(&self) -> Result<Client, object_store::Error> {
        match self {
            Place::Local(_) => unreachable!("files are read without a client"),
            Place::Remote(remote) => (remote.connect)(),
        }
    }

    /// The client for data.
    pub(super) fn client(&self) -> Result<&Client, object_store::Error> {
        match self {
            Place::Local(_) => unreachable!("files are read without a client"),
            Place::Remote(remote) => {
                if let Some(client) = remote.client.get() {
                    return Ok(client);
                }
                let client = (remote.connect)()?;
                Ok(remote.client.get_or_init(|| client))
            }
        }
    }

    pub(super) fn path(&self, key: &str) -> Result<Key, object_store::Error> {
        let Place::Remote(remote) = self else { unreachable!("files are read without a client") };
        let mut path = remote.prefix.clone();
        for part in Key::parse(key)?.parts() {
            path = path.join(part);
        }
        Ok(path)
    }

    /// Opens the file of `key`.
    pub(super) fn file(&self, key: &str) -> io::Result<File> {
        // What is no file, such as a pipe that nobody writes to, must not keep the run waiting for ever.
        let at_once = OFlags::NONBLOCK.bits() as i32;
        let path = self.file_path(key)?;
        let file = File::options().read(true).custom_flags(at_once).open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_file() || kind.is_dir() {
            return Ok(file);
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, and no file"))
    }

    /// The path of `key`, which can't lie outside of the store.
    pub(super) fn file_path(&self, key: &str) -> io::Result<PathBuf> {
        let Place::Local(root) = self else { unreachable!("only files have paths") };
        let key = Path::new(key);
        if !key.components().all(|part| matches!(part, Component::Normal(_))) {
            let why = "a key must not lead out of the store";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(root.join(key))
    }

    /// The names at the top, where they can be listed at no cost.
    pub(super) fn list(&self) -> Vec<String> {
        let Place::Local(root) = self else { return Vec::new() };
        let Ok(entries) = root.read_dir() else { return Vec::new() };
        let directories = entries.flatten().filter(|entry| entry.path().is_dir());
        let mut names: Vec<_> =
            directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// Runs the future that `make` makes on a runtime of its own, so that this works inside any runtime
/// too.
pub(super) fn on_a_thread_of_its_own<F>(make: impl FnOnce() -> F + Send) -> io::Result<F::Output>
where
    F: Future<Output: Send>,
{
    std::thread::scope(|scope| {
        let run = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            Ok(builder.enable_all().build()?.block_on(make()))
        };
        let thread = std::thread::Builder::new().name("forebay:open".into());
        match thread.spawn_scoped(scope, run)?.join() {
            Ok(output) => output,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
