//! The guide in `docs/`: every block of every page is tried, so that no page says what isn't so.
//!
//! - `yaml`: a whole definition. It is checked and run to its end, without an error or a warning.
//!   A first line `# pipelines/mine.yaml` gives it a name that later blocks of the page know.
//! - `yaml,check-only`: checked and not run, for the reason on its line `# not run here: ...`.
//! - `yaml,wrong`: a file that later commands of the page complain about.
//! - `yaml,stages`, `yaml,top`: stages, or keys beside them, checked within a whole definition.
//! - `yaml,cases`: a file of cases for `forebay test`.
//! - `sh`: commands, run in the page's folder. `# exit code 2` behind one says how it ends.
//! - `text`: what the last command of the block before printed, apart from what it measured.
//! - `text,picture`: a drawing.
//! - `rust`: a doctest, see `src/guide.rs`.

mod links;
mod output;
mod page;

use std::collections::BTreeSet;
use std::path::Path;

use page::{Page, block_names};

/// One test a page, so that they run side by side.
macro_rules! pages {
    ($($name:ident $file:literal)*) => {
        const PAGES: &[&str] = &[$($file),*];
        $(#[test] fn $name() { Page::open($file).try_all() })*
    };
}

pages! {
    the_introduction_holds "introduction.md"
    getting_started_holds "getting-started.md"
    concepts_hold "concepts.md"
    windows_and_batches_hold "windows.md"
    reading_zarr_holds "reading.md"
    from_storage_to_gpu_holds "gpu.md"
    writing_results_holds "writing.md"
    the_yaml_reference_holds "yaml.md"
    the_command_line_holds "commands.md"
    finding_the_bottleneck_holds "bottleneck.md"
    when_things_go_wrong_holds "failures.md"
    going_on_holds "checkpoints.md"
    the_rust_api_holds "rust.md"
    coming_from_elsewhere_holds "coming-from.md"
}

#[test]
fn every_page_is_tried_and_in_the_summary_and_no_link_is_broken() {
    let mut there = BTreeSet::new();
    for entry in Path::new("docs/src").read_dir().expect("the guide").flatten() {
        assert!(entry.path().is_file(), "{entry:?}: pages lie in one folder");
        there.insert(entry.file_name().into_string().expect("UTF-8"));
    }
    assert!(there.remove("SUMMARY.md"));
    let tried: BTreeSet<_> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(tried, there, "pages that are tried, and pages that are there");
    let listed: BTreeSet<_> = links::of("SUMMARY.md").into_iter().collect();
    assert_eq!(listed, there, "pages in the summary, and pages that are there");
    for page in PAGES {
        links::resolve(page);
    }
}

#[test]
fn every_page_with_rust_is_a_doctest() {
    let doctests = std::fs::read_to_string("src/guide.rs").expect("the doctests");
    for page in PAGES {
        let has_rust = block_names(page).iter().any(|name| name == "rust");
        let is_tried = doctests.contains(&format!("\"../docs/src/{page}\""));
        assert_eq!(has_rust, is_tried, "{page} has Rust, and stands in src/guide.rs");
    }
}
