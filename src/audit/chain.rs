//! The chain: a keyed tag over every line and the one before it, and the sealed head that tells where it ends.

use std::path::Path;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::json;
use crate::secret::Secret;

/// A tag in bytes: the whole of a blake3 hash.
pub(super) type Tag = [u8; 32];

/// The file that holds the key, where the settings give none.
const KEY_FILE: &str = "key";
/// Bytes of the key file at most: 64 hexadecimal digits and a line end.
const KEY_FILE_BYTES_MAX: usize = 128;
/// The file that tells where the chain begins and ends.
const HEAD_FILE: &str = "head.json";
/// Bytes of it at most.
const HEAD_BYTES_MAX: usize = 4 * 1024;
/// What stands between a record's own members and its tag.
const TAG_MEMBER: &str = ",\"tag\":\"";
/// Bytes that the seal adds to a record: the member, 64 digits, the quote and the brace.
pub(super) const SEAL_BYTES: usize = TAG_MEMBER.len() + 66;

/// What the chain is keyed with. Whoever has it can write a log anew; keep it elsewhere than the log if that matters.
#[derive(Clone, PartialEq, Eq)]
pub struct AuditKey(Tag);

impl std::fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditKey")
    }
}

impl AuditKey {
    /// A key from secret material of the settings.
    pub fn of(material: &Secret) -> Self {
        Self(blake3::derive_key("docent 2026 audit chain", material.expose().as_bytes()))
    }

    /// The key of a folder of records: its own file's. `None`: there is none, or it cannot be read.
    pub fn stored(dir: &Path) -> Option<Self> {
        let text = json::read_text_capped(&dir.join(KEY_FILE), KEY_FILE_BYTES_MAX).ok()?;
        (text.trim().len() == 64).then(|| Self::of(&Secret::new(text.trim())))
    }

    /// The key of a folder, drawn and stored where there is none yet. Only its owner may read the file.
    pub(super) fn stored_or_drawn(dir: &Path) -> std::io::Result<Self> {
        if let Some(key) = Self::stored(dir) {
            return Ok(key);
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let text = blake3::Hash::from_bytes(random).to_hex();
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(dir.join(KEY_FILE)) {
            Ok(mut file) => {
                std::io::Write::write_all(&mut file, text.as_bytes())?;
                Ok(Self::of(&Secret::new(text.as_str())))
            }
            // Another process was first, and has written it by now or will not be waited for.
            Err(e) => Self::stored(dir).ok_or(e),
        }
    }

    /// The key by which arguments are hashed: not the chain's own, which signs.
    pub(super) fn of_arguments(&self) -> Tag {
        blake3::derive_key("docent 2026 audit arguments", &self.0)
    }

    fn tag(&self, before: &Tag, body: &[u8]) -> Tag {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(before).update(body);
        *hasher.finalize().as_bytes()
    }

    /// Makes a record (a JSON object as text) a line of the log: its tag is the last member, without a line end.
    pub(super) fn seal(&self, before: &Tag, record: &mut String) -> Tag {
        if record.ends_with('}') {
            record.pop();
        }
        let tag = self.tag(before, record.as_bytes());
        record.push_str(TAG_MEMBER);
        record.push_str(&blake3::Hash::from_bytes(tag).to_hex());
        record.push_str("\"}");
        tag
    }

    /// The tag of a line that follows `before`; `None` where it was changed or belongs elsewhere.
    pub(super) fn open(&self, before: &Tag, line: &str) -> Option<Tag> {
        let (body, rest) = line.rsplit_once(TAG_MEMBER)?;
        let told = from_hex(rest.strip_suffix("\"}")?)?;
        let tag = self.tag(before, body.as_bytes());
        bool::from(told.ct_eq(&tag)).then_some(tag)
    }
}

/// A tag as text.
pub(super) fn hex(tag: &Tag) -> String {
    blake3::Hash::from_bytes(*tag).to_hex().to_string()
}

/// A tag from its text.
pub(super) fn from_hex(text: &str) -> Option<Tag> {
    blake3::Hash::from_hex(text).ok().map(|h| *h.as_bytes())
}

/// Where the chain begins and ends. Its own tag shows a change; that it is written after the records makes a
/// missing end show, too.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of the first record kept.
    pub(super) first: u64,
    /// The tag before the first record kept.
    pub(super) before: String,
    /// The file that is written to.
    pub(super) file: String,
    /// Its bytes after the last record.
    pub(super) bytes: u64,
    /// The number of the last record; 0 for none.
    pub(super) seq: u64,
    /// Its tag.
    pub(super) tag: String,
    /// The tag over all of this.
    #[serde(default)]
    seal: String,
}

impl Head {
    /// A head for a log that begins now.
    pub(super) fn new() -> Self {
        let zero = hex(&[0; 32]);
        Self { first: 1, before: zero.clone(), tag: zero, ..Self::default() }
    }

    fn sealed_part(&self) -> String {
        let Self { first, before, file, bytes, seq, tag, seal: _ } = self;
        format!("head/{first}/{before}/{file}/{bytes}/{seq}/{tag}")
    }

    /// Reads the head of a folder. `Ok(None)`: there is none; an error tells what is wrong with it.
    pub(super) fn read(dir: &Path, key: &AuditKey) -> Result<Option<Self>, String> {
        let path = dir.join(HEAD_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let bytes = json::read_capped(&path, HEAD_BYTES_MAX).map_err(|e| format!("{HEAD_FILE}: {e}"))?;
        let head: Self = json::parse_as(&bytes, HEAD_BYTES_MAX).map_err(|e| format!("{HEAD_FILE}: {e}"))?;
        let seal = hex(&key.tag(&[0; 32], head.sealed_part().as_bytes()));
        if bool::from(seal.as_bytes().ct_eq(head.seal.as_bytes())) {
            Ok(Some(head))
        } else {
            Err(format!("{HEAD_FILE} was changed, or the key is not the one it was written with"))
        }
    }

    /// Writes it, whole or not at all.
    pub(super) fn write(&mut self, dir: &Path, key: &AuditKey) -> std::io::Result<()> {
        self.seal = hex(&key.tag(&[0; 32], self.sealed_part().as_bytes()));
        let next = dir.join("head.json.next");
        std::fs::write(&next, json::to_bytes(self))?;
        std::fs::rename(&next, dir.join(HEAD_FILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_opens_only_as_it_was_written_and_where_it_stood() {
        let key = AuditKey::of(&Secret::new("k"));
        let zero = [0; 32];
        let mut line = r#"{"seq":1,"a":"b"}"#.to_owned();
        let tag = key.seal(&zero, &mut line);
        assert!(line.starts_with(r#"{"seq":1,"a":"b","tag":""#) && line.ends_with("\"}"), "{line}");
        assert_eq!(key.open(&zero, &line), Some(tag));
        assert_eq!(key.open(&tag, &line), None, "moved");
        assert_eq!(key.open(&zero, &line.replace("\"b\"", "\"c\"")), None, "changed");
        assert_eq!(AuditKey::of(&Secret::new("j")).open(&zero, &line), None, "another key");
        assert_eq!(key.open(&zero, "{}"), None);
    }

    #[test]
    fn a_head_tells_when_it_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        let key = AuditKey::stored_or_drawn(dir.path()).unwrap();
        assert_eq!(AuditKey::stored(dir.path()), Some(key.clone()), "drawn once");
        assert_eq!(Head::read(dir.path(), &key), Ok(None));
        let mut head = Head { seq: 3, ..Head::new() };
        head.write(dir.path(), &key).unwrap();
        assert_eq!(Head::read(dir.path(), &key).unwrap().unwrap().seq, 3);
        let text = json::read_text_capped(&dir.path().join(HEAD_FILE), 10_000).unwrap();
        std::fs::write(dir.path().join(HEAD_FILE), text.replace("\"seq\":3", "\"seq\":2")).unwrap();
        assert!(Head::read(dir.path(), &key).unwrap_err().contains("was changed"));
    }
}
