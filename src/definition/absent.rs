//! What there is instead of a definition that is not there: the nearest name, and the others.

use std::path::Path;

use crate::nearest::nearest;

/// More names are not listed.
const SHOWN: usize = 20;

/// What to write instead of `file`, which is not there; none if it is.
pub(super) fn instead(file: &Path) -> Option<String> {
    if file.exists() {
        return None;
    }
    // A name alone is one in `pipelines/`.
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("pipelines"));
    let shown = folder.display();
    let Ok(entries) = folder.read_dir() else {
        return Some(match parent {
            Some(_) => format!("there is no folder `{shown}`"),
            None => {
                "there is no folder `pipelines` here: go to the folder that holds it, or write a \
                     first pipeline with `forebay init`"
                    .to_owned()
            }
        });
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<_> = paths.filter_map(|path| Some((name(&path)?, path))).collect();
    found.sort();
    if found.is_empty() {
        return Some(format!("there are no definitions in `{shown}`"));
    }
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = file.file_stem().unwrap_or_default().to_string_lossy();
    let meant = nearest(&wanted, &names);
    let meant = found.iter().find(|(name, _)| Some(name.as_str()) == meant);
    let meant = meant.map(|(name, path)| match parent {
        Some(_) => format!("did you mean `{}`? ", path.display()),
        None => format!("did you mean `{name}`? "),
    });
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    let listed = names.iter().take(SHOWN).map(|name| format!("`{name}`"));
    let listed = listed.collect::<Vec<_>>().join(", ");
    Some(format!("{}`{shown}` has {listed}{more}", meant.unwrap_or_default()))
}

/// The name of a definition; files of cases have none.
fn name(path: &Path) -> Option<String> {
    let is_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
    let name = path.file_stem()?.to_str().filter(|_| is_yaml)?;
    (!name.ends_with(".test")).then(|| name.to_owned())
}
