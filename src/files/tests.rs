//! Files with a real folder and a real index.

use super::*;

async fn put(
    files: &Files,
    limits: &FileLimits,
    owner: &str,
    name: &str,
    bytes: &[u8],
) -> Result<FileMeta, FileError> {
    files.put(limits, owner, (name, None), UPLOADED, bytes).await
}

fn small() -> FileLimits {
    FileLimits { max_bytes: 100, quota_bytes: 150, quota_files: 3, ..FileLimits::default() }
}

fn blobs(dir: &Path) -> usize {
    let folders = std::fs::read_dir(dir.join("files")).unwrap().map(|f| f.unwrap());
    let of = |f: std::fs::DirEntry| std::fs::read_dir(f.path()).unwrap().count();
    folders.map(of).sum()
}

#[tokio::test]
async fn a_file_is_its_owners_alone_and_ends_with_its_time() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::manual());
    let files = Files::new(Some(dir.path()), Store::in_memory(), clock.clone());
    let limits = FileLimits::default();
    let file = put(&files, &limits, "alice", "../a b.txt", b"hello").await.unwrap();
    assert_eq!((file.name.as_str(), file.mime.as_str(), file.size), ("a b.txt", "text/plain", 5));
    assert_eq!(file.blake3, blake3::hash(b"hello").to_hex().as_str());
    assert_eq!(files.get("alice", &file.id).await.unwrap(), file);
    assert_eq!(files.read(&file, 5).await.unwrap(), b"hello");
    assert!(matches!(files.read(&file, 4).await, Err(FileError::TooLarge { max: 4 })));
    for (owner, id) in [("bob", file.id.as_str()), ("alice", "0"), ("alice", "../../x"), ("alice", "%")] {
        assert!(matches!(files.get(owner, id).await, Err(FileError::NotFound)), "{owner} {id}");
    }
    assert!(matches!(files.remove("bob", &file.id).await, Err(FileError::NotFound)));
    assert!(files.list("bob", 0, 10).await.unwrap().is_empty());
    clock.advance(limits.keep);
    assert!(matches!(files.get("alice", &file.id).await, Err(FileError::NotFound)));
    assert!(files.list("alice", 0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn equal_bytes_lie_once_and_go_with_the_last_file_that_has_them() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::system());
    let store = Store::in_memory();
    let files = Files::new(Some(dir.path()), store.clone(), clock);
    let limits = FileLimits::default();
    let one = put(&files, &limits, "alice", "a", b"same").await.unwrap();
    let two = put(&files, &limits, "bob", "b", b"same").await.unwrap();
    assert!(one.id != two.id && blobs(dir.path()) == 1);
    files.remove("alice", &one.id).await.unwrap();
    assert_eq!(files.read(&two, 10).await.unwrap(), b"same");
    files.remove("bob", &two.id).await.unwrap();
    assert_eq!(files.sweep().await.unwrap(), 0, "an upload that is just being finished keeps its bytes");
    // An hour later, as far as the sweep can see.
    let later = Clock::manual();
    later.advance(Duration::from_millis(Clock::system().unix_ms()) + Duration::from_hours(1));
    let files = Files::new(Some(dir.path()), store, later);
    assert_eq!(files.sweep().await.unwrap(), 1);
    assert_eq!(blobs(dir.path()), 0);
}

#[tokio::test]
async fn what_is_too_much_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::new(Some(dir.path()), Store::in_memory(), Clock::manual());
    let limits = small();
    assert!(matches!(put(&files, &limits, "a", "x", &[0; 101]).await, Err(FileError::TooLarge { max: 100 })));
    // A sender that does not say how much there is finds out on the way.
    let mut upload = files.begin(&limits, "a", None, "x", None).await.unwrap();
    upload.write(&[0; 60]).await.unwrap();
    assert!(matches!(upload.write(&[0; 60]).await, Err(FileError::TooLarge { .. })));
    drop(upload);
    put(&files, &limits, "a", "x", &[1; 100]).await.unwrap();
    assert!(matches!(
        put(&files, &limits, "a", "y", &[2; 51]).await,
        Err(FileError::Full { bytes: 100, .. })
    ));
    // Two that begin at once share the room that is left: the index has the last word.
    let mut first = files.begin(&limits, "a", None, "p", None).await.unwrap();
    let mut second = files.begin(&limits, "a", None, "q", None).await.unwrap();
    first.write(&[3; 50]).await.unwrap();
    second.write(&[4; 50]).await.unwrap();
    first.finish(UPLOADED).await.unwrap();
    assert!(matches!(second.finish(UPLOADED).await, Err(FileError::Full { .. })));
    assert!(put(&files, &limits, "b", "x", &[1; 100]).await.is_ok(), "another caller has its own room");
    for n in 0..3 {
        put(&files, &limits, "c", "x", &[n]).await.unwrap();
    }
    assert!(matches!(put(&files, &limits, "c", "x", b"4").await, Err(FileError::Full { files: 3, .. })));
    assert!(std::fs::read_dir(dir.path().join("files/drafts")).unwrap().next().is_none(), "no draft stays");
}

#[tokio::test]
async fn types_are_those_of_the_list_and_without_a_place_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let limits = FileLimits { types: vec!["image/*".into(), "text/csv".into()], ..FileLimits::default() };
    assert!(limits.takes("image/png") && limits.takes("text/csv") && !limits.takes("text/html"));
    let files = Files::new(Some(dir.path()), Store::in_memory(), Clock::manual());
    let refused = files.put(&limits, "a", ("x.bin", Some("Text/HTML; a=b")), UPLOADED, b"").await;
    assert!(matches!(refused, Err(FileError::Type(t)) if t == "text/html"));
    let none = Files::new(None, Store::in_memory(), Clock::manual());
    assert!(matches!(put(&none, &FileLimits::default(), "a", "x", b"1").await, Err(FileError::NoPlace)));
    assert!(none.list("a", 0, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn lists_go_on_where_they_ended() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::new(Some(dir.path()), Store::in_memory(), Clock::manual());
    for n in 0..5u8 {
        put(&files, &FileLimits::default(), "a", &format!("{n}"), &[n]).await.unwrap();
    }
    let first = files.list("a", 0, 3).await.unwrap();
    let rest = files.list("a", first[2].seq + 1, 3).await.unwrap();
    let names: Vec<&str> = first.iter().chain(&rest).map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["0", "1", "2", "3", "4"]);
}
