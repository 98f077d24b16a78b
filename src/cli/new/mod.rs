//! `new` and `init`: a crate with an operator of one's own, and a pipeline to begin with. Nothing that is
//! there is overwritten.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::Exit;
use super::terminal::{note, out, say};
use crate::definition::Catalog;

/// The files of a crate; the first two have places that are filled in.
const FILES: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.in")),
    (".gitignore", "/target\n/.forebay\n"),
    ("src/lib.rs", include_str!("template/lib.rs")),
    ("src/main.rs", include_str!("template/main.rs")),
    ("pipelines/first.yaml", include_str!("template/first.yaml")),
    ("tests/pipelines.rs", include_str!("template/pipelines.rs")),
];

/// What the starter says that editors read.
const SCHEMA: &str = "forebay.schema.json";

const STARTER: &str = include_str!("template/starter.yaml");

/// Makes a crate with an operator of your own, a pipeline that uses it, and a test
///
/// Its binary is the whole `forebay` command with your operators in it.
///
/// Example: forebay new acme && cd acme && cargo run -- run first
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct NewArgs {
    /// The crate's folder, which must not be there; its last part is the crate's name
    name: PathBuf,
    /// A checkout of Forebay that the crate depends on. Without it, the one that this command was built
    /// in, if there is one, else the version on crates.io
    #[arg(long, value_name = "FOLDER")]
    forebay: Option<PathBuf>,
}

/// Writes a pipeline to begin with: it runs as it is, and its comments say what each line is for; and
/// beside it the schema that editors check it by
///
/// Example: forebay init pipelines/mine.yaml && forebay run mine
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct InitArgs {
    /// The file, which must not be there
    #[arg(default_value = "pipelines/first.yaml")]
    file: PathBuf,
}

pub(super) fn new(args: &NewArgs) -> Exit {
    let made = crate_name(&args.name).and_then(|name| {
        let forebay = dependency(args.forebay.as_deref())?;
        let wrong = |error: io::Error| format!("{} can't be made: {error}", args.name.display());
        make(&args.name, name, &forebay).map_err(wrong)
    });
    match made {
        Ok(()) => {
            let folder = args.name.display();
            FILES.iter().for_each(|(file, _)| out(&format!("{folder}/{file}\n")));
            note(&format!(
                "next:\n  cd {folder}\n  cargo run -- run first\n  cargo run -- ops own.celsius\n  \
                 cargo test\n"
            ));
            Exit::Done
        }
        Err(error) => {
            say(&format!("error: {error}\n"));
            Exit::Wrong
        }
    }
}

pub(super) fn init(args: &InitArgs, catalog: &Catalog) -> Exit {
    let file = &args.file;
    let shown = file.display().to_string();
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    if !file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
        say(&format!(
            "error: `{shown}` is no name for a pipeline: write `pipelines/{name}.yaml`\n"
        ));
        return Exit::Wrong;
    }
    // A JSON string is one of YAML's, whatever the file is called.
    let quoted = serde_json::Value::from(&*name).to_string();
    let text = STARTER.replace("{{FILE}}", &shown).replace("{{NAME}}", &quoted);
    match write_new(file, &text) {
        Ok(()) => {
            out(&format!("{shown}\n"));
            let schema = file.with_file_name(SCHEMA);
            let shown_schema = schema.display();
            // One that is there may know more operators.
            if !schema.exists() {
                if let Err(error) = write_new(&schema, &format!("{:#}\n", catalog.schema())) {
                    say(&format!("error: {shown_schema} can't be made: {error}\n"));
                    return Exit::Wrong;
                }
                out(&format!("{shown_schema}\n"));
            }
            note(&format!("next:\n  forebay run {shown}\n"));
            Exit::Done
        }
        Err(error) => {
            say(&format!("error: {shown} can't be made: {error}\n"));
            Exit::Wrong
        }
    }
}

/// The name of the crate in `folder`.
fn crate_name(folder: &Path) -> Result<&str, String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if !begins || !name.chars().all(fits) {
        return Err(format!(
            "`{name}` is no name for a crate: write letters, digits, `-` and `_`, a letter first"
        ));
    }
    // Each is the name of a crate that this one needs, or that cargo refuses.
    let taken = ["forebay", "operators", "schemars", "serde", "std", "core", "test"];
    match taken.contains(&name) {
        true => Err(format!("a crate can't be called `{name}`: choose another name")),
        false => Ok(name),
    }
}

/// What the crate's manifest says of Forebay.
fn dependency(given: Option<&Path>) -> Result<String, String> {
    let is_checkout = |folder: &Path| folder.join("src/definition").is_dir();
    let version = || format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = match given {
        Some(given) if is_checkout(given) => given
            .canonicalize()
            .map_err(|error| format!("{} can't be read: {error}", given.display()))?,
        Some(given) => return Err(format!("{} is no checkout of Forebay", given.display())),
        // What cargo fetched is found by its version.
        None if built_in.components().any(|part| part.as_os_str() == "registry") => {
            return Ok(version());
        }
        None if is_checkout(built_in) => built_in.to_owned(),
        None => return Ok(version()),
    };
    let folder = serde_json::Value::from(folder.to_string_lossy()).to_string();
    Ok(format!("{{ path = {folder} }}"))
}

fn make(folder: &Path, name: &str, forebay: &str) -> io::Result<()> {
    if folder.exists() {
        return Err(io::Error::other("it is there: choose another name"));
    }
    for (file, text) in FILES {
        let text = text.replace("{{NAME}}", name).replace("{{FOREBAY}}", forebay);
        write_new(&folder.join(file), &text)?;
    }
    Ok(())
}

/// Writes a file that is not there yet, and the folders that it lies in.
fn write_new(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::File::create_new(file) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(io::Error::other("it is there: choose another name"))
        }
        Err(error) => Err(error),
    }
}
