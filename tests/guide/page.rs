//! A page, its blocks, and the folder in which they are tried one after the other.

use std::path::Path;
use std::process::{Command, Stdio};

use forebay::definition::{Catalog, Definition, Problems, Set};
use tempfile::TempDir;

use super::output::assert_shows;

/// What stands between two fences.
struct Block {
    /// What the first fence says, such as `yaml,stages`.
    name: String,
    text: String,
    /// The page and the line, for messages.
    place: String,
}

pub(super) struct Page {
    blocks: Vec<Block>,
    folder: TempDir,
}

fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(Path::new("docs/src").join(page)).expect("a page");
    let mut blocks = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if let Some(name) = line.trim_start().strip_prefix("```") {
            assert!(!line.starts_with(' '), "{page}:{number}: a fence stands at the left edge");
            let inside = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
            let text = inside.fold(String::new(), |text, line| text + line + "\n");
            let place = format!("docs/src/{page}:{number}");
            blocks.push(Block { name: name.to_owned(), text, place });
        }
    }
    blocks
}

/// What the blocks of a page are.
pub(super) fn block_names(page: &str) -> Vec<String> {
    blocks(page).into_iter().map(|block| block.name).collect()
}

impl Page {
    pub(super) fn open(page: &str) -> Self {
        Page { blocks: blocks(page), folder: tempfile::tempdir().expect("a folder") }
    }

    pub(super) fn try_all(&self) {
        // What the commands of the block before printed.
        let mut printed: Option<String> = None;
        for block in &self.blocks {
            let place = &block.place;
            let before = printed.take();
            match block.name.as_str() {
                "yaml" => {
                    let file = self.write(block);
                    checked(block, &block.text);
                    let line = format!("forebay run {file} --no-record");
                    let (code, printed) = self.command(&line);
                    assert_eq!(code, 0, "{place}: {printed}");
                }
                "yaml,check-only" => {
                    self.write(block);
                    let has_reason = block.text.contains("# not run here: ");
                    assert!(has_reason, "{place}: it does not say why it is not run");
                    checked(block, &block.text);
                }
                "yaml,wrong" | "yaml,cases" => {
                    assert!(file_of(&block.text).is_some(), "{place}: it has no name");
                    self.write(block);
                }
                "yaml,stages" => within_stages(block),
                "yaml,top" => checked(block, &format!("{}{TOP}", block.text)),
                "sh" => printed = Some(self.commands(block)),
                "text" => {
                    let before = before.unwrap_or_else(|| panic!("{place}: no command before it"));
                    assert_shows(place, &block.text, &before);
                }
                "text,picture" | "rust" => {}
                other => panic!("{place}: a block is not `{other}`: see tests/guide/main.rs"),
            }
        }
    }

    /// Writes a block as a file of the page's folder, and gives its name.
    fn write(&self, block: &Block) -> String {
        let file = file_of(&block.text).unwrap_or("block.yaml");
        let path = self.folder.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, &block.text).expect("written");
        file.to_owned()
    }

    /// Runs the commands of a block, and gives what the last one printed.
    fn commands(&self, block: &Block) -> String {
        let mut last = String::new();
        for line in block.text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (line, comment) = line.split_once(" # ").unwrap_or((line, ""));
            let wanted = comment.split_once("exit code ").map_or(0, |(_, code)| {
                code.split(|c: char| !c.is_ascii_digit())
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or_else(|| panic!("{}: `{comment}` has no code", block.place))
            });
            let (code, printed) = self.command(line);
            assert_eq!(code, wanted, "{}: {line}\n{printed}", block.place);
            last = printed;
        }
        last
    }

    /// Runs one line in the page's folder, with the binary under test as `forebay`.
    fn command(&self, line: &str) -> (i32, String) {
        let binary = Path::new(env!("CARGO_BIN_EXE_forebay")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        // What hangs is a failure: `timeout` ends with 124.
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", "60", "sh", "-c", line])
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", binary.display()));
        command
            .env("FOREBAY_SOCKETS", self.folder.path().join("sockets"))
            .env_remove("FOREBAY_LOG");
        command.env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
        let done = command.output().expect("started");
        let text =
            [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (done.status.code().unwrap_or(-1), text.concat())
    }
}

/// The file that a block is, from a comment at its beginning: `# pipelines/mine.yaml`.
fn file_of(text: &str) -> Option<&str> {
    let mut comments = text.lines().map_while(|line| line.strip_prefix("# "));
    comments.find(|name| name.ends_with(".yaml") && !name.contains(' '))
}

/// The problems and warnings that `forebay check` has with a definition.
fn problems(text: &str) -> Result<(), Problems> {
    // Made if it is not there: a check alone does not make it.
    forebay::store::sample::ensure("era5", &|_, _| {}).expect("the sample");
    let catalog = Catalog::builtin();
    let definition = Definition::parse("guide.yaml", text, &catalog, &Set::new())?;
    let warnings = definition.survey(&catalog, false)?.warnings;
    if warnings.codes().next().is_none() { Ok(()) } else { Err(warnings) }
}

fn checked(block: &Block, text: &str) {
    problems(text).unwrap_or_else(|problems| panic!("{}: {problems}", block.place));
}

/// What stands below keys of the top.
const TOP: &str = "
version: 1
stages:
  - zarr.windows: { store: sample://era5, variables: [t2m], window: { time: 1 } }
  - zarr.fetch:
  - zarr.decode:
";

/// Stages that come before others, one after the other, so that each finds what it takes.
const BEFORE: [&str; 5] = [
    "zarr.windows: { store: sample://era5, variables: [t2m, u10, v10], window: { time: 1 } }",
    "batch: 4",
    "zarr.fetch:",
    "zarr.decode:",
    "device.upload:",
];

/// Checks stages behind as few others as they fit behind.
fn within_stages(block: &Block) {
    let mut told = Vec::new();
    for n in 0..=BEFORE.len() {
        let before: String = BEFORE[..n].iter().map(|stage| format!("  - {stage}\n")).collect();
        match problems(&format!("version: 1\nstages:\n{before}{}", block.text)) {
            Ok(()) => return,
            Err(problems) => told.push(problems.to_string()),
        }
    }
    panic!("{}: these stages fit nowhere: {}", block.place, told.join("\n"));
}
