//! Notices edits of a home: only the files that a home is made of, never the state kept beside them.
//!
//! It tells *that* something changed, not what: a reload reads the whole home and takes over what is the same.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, MetadataKind, ModifyKind};
use notify::{Config, Event, EventKind, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

/// The folders of a home (contract §1.1), watched with all that is in them.
const FOLDERS: [&str; 3] = ["scripts", "policies", "index"];
/// The files beside them.
const FILES: [&str; 2] = ["docent.toml", "docent.lock"];
/// A change is told once it has been quiet for this long: editors and `git checkout` write in bursts.
const QUIET: Duration = Duration::from_millis(100);
/// But not later than this after the first: something that writes without end must not stop reloads.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often files are looked at where the system has no events.
const POLL: Duration = Duration::from_secs(2);

/// A watch on a home's files; it ends when dropped.
pub struct HomeWatch {
    home: PathBuf,
    watcher: Box<dyn Watcher + Send>,
    watched: BTreeSet<PathBuf>,
    events: mpsc::Receiver<()>,
}

impl std::fmt::Debug for HomeWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HomeWatch").field(&self.home).finish()
    }
}

/// Watches a home. `ignore` is a folder whose changes do not count (the data directory may be inside).
pub fn watch(home: &Path, ignore: Option<&Path>) -> Result<HomeWatch, notify::Error> {
    // The system reports absolute, resolved paths.
    let home = std::path::absolute(home)?;
    let ignore = ignore.map(std::path::absolute).transpose()?;
    let (sender, events) = mpsc::channel(1);
    let root = home.clone();
    let tell = move |event: Result<Event, notify::Error>| {
        // An error (a lost event, an overflow) may have hidden a change: look again.
        if event.map_or(true, |e| counts(&e, &root, ignore.as_deref())) {
            // A full channel already tells of a change.
            sender.try_send(()).ok();
        }
    };
    let watcher: Box<dyn Watcher + Send> = match RecommendedWatcher::new(tell.clone(), Config::default()) {
        Ok(watcher) => Box::new(watcher),
        Err(e) => {
            tracing::warn!(error = %e, "no file events from the system, looking at the home from time to time");
            Box::new(PollWatcher::new(tell, Config::default().with_poll_interval(POLL))?)
        }
    };
    let mut watch = HomeWatch { home, watcher, watched: BTreeSet::new(), events };
    watch.watcher.watch(&watch.home.clone(), RecursiveMode::NonRecursive)?;
    watch.follow_folders();
    Ok(watch)
}

impl HomeWatch {
    /// Waits until something changed and things are quiet again. `None`: the watch has ended.
    pub async fn changed(&mut self) -> Option<()> {
        self.events.recv().await?;
        let burst =
            async { while let Ok(Some(())) = tokio::time::timeout(QUIET, self.events.recv()).await {} };
        // Too busy to become quiet is told as well.
        tokio::time::timeout(PATIENCE, burst).await.ok();
        self.follow_folders();
        Some(())
    }

    /// Watches folders of the home that have come into being.
    fn follow_folders(&mut self) {
        for folder in FOLDERS.map(|f| self.home.join(f)) {
            if !folder.is_dir() {
                // It may come back as another folder.
                self.watched.remove(&folder);
            } else if !self.watched.contains(&folder) {
                match self.watcher.watch(&folder, RecursiveMode::Recursive) {
                    Ok(()) => drop(self.watched.insert(folder)),
                    Err(e) => tracing::warn!(path = %folder.display(), error = %e, "cannot watch a folder"),
                }
            }
        }
    }
}

fn counts(event: &Event, home: &Path, ignore: Option<&Path>) -> bool {
    let changes = match event.kind {
        // Reading a home must not look like an edit of it.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(MetadataKind::AccessTime)) => false,
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) => true,
        EventKind::Other => event.need_rescan(),
    };
    changes && (event.paths.is_empty() || event.paths.iter().any(|p| belongs(p, home, ignore)))
}

/// Whether a path is part of the home: one of its files, or in one of its folders.
fn belongs(path: &Path, home: &Path, ignore: Option<&Path>) -> bool {
    if ignore.is_some_and(|i| path.starts_with(i)) {
        return false;
    }
    let first = path.strip_prefix(home).ok().and_then(|p| p.components().next());
    let Some(first) = first.and_then(|c| c.as_os_str().to_str()) else { return false };
    FILES.contains(&first) || FOLDERS.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_homes_own_files_count() {
        let home = Path::new("/h");
        let yes = |p: &str| belongs(Path::new(p), home, Some(Path::new("/h/scripts/state")));
        assert!(yes("/h/docent.toml") && yes("/h/scripts/git/upstream.toml") && yes("/h/policies/a.rhai"));
        assert!(!yes("/h/target/debug/x") && !yes("/h/.git/index") && !yes("/x/docent.toml") && !yes("/h"));
        assert!(!yes("/h/scripts/state/jobs.db"));
    }

    #[tokio::test]
    async fn an_edit_is_told_once_and_a_read_never() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("docent.toml"), "a").unwrap();
        let mut watch = watch(dir.path(), None).unwrap();
        let mut told =
            async |ms| tokio::time::timeout(Duration::from_millis(ms), watch.changed()).await.is_ok();
        crate::json::read_capped(&dir.path().join("docent.toml"), 10).unwrap();
        assert!(!told(300).await, "reading is no edit");
        std::fs::create_dir(dir.path().join("policies")).unwrap();
        assert!(told(5_000).await, "a new folder");
        std::fs::write(dir.path().join("policies/a.rhai"), "b").unwrap();
        assert!(told(5_000).await, "a file in a folder that came later");
        std::fs::write(dir.path().join("docent.toml"), "b").unwrap();
        std::fs::write(dir.path().join("docent.toml"), "c").unwrap();
        assert!(told(5_000).await, "a burst");
        assert!(!told(300).await, "is told once");
        std::fs::write(dir.path().join("other.txt"), "b").unwrap();
        assert!(!told(300).await, "not a file of the home");
    }
}
