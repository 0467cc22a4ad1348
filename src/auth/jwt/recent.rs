//! Tokens that were checked a moment ago: a signature costs up to a tenth of a millisecond, and an agent sends the
//! same token with every request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::policy::Principal;

/// Tokens held in each of the two halves.
const HALF_MAX: usize = 4_096;

type Digest = [u8; 32];

#[derive(Debug, Default)]
struct Halves {
    version: u64,
    young: HashMap<Digest, (u64, Arc<Principal>)>,
    old: HashMap<Digest, (u64, Arc<Principal>)>,
}

/// Callers by the hash of their token, for the keys of one version, each until its token expires.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Halves>);

impl Recent {
    /// The caller of a token that was checked with these keys and is still valid.
    pub(super) fn find(&self, digest: &Digest, version: u64, now: u64) -> Option<Arc<Principal>> {
        let halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = halves.young.get(digest).or_else(|| halves.old.get(digest));
        let (until, principal) = found.filter(|_| halves.version == version)?;
        (*until > now).then(|| Arc::clone(principal))
    }

    /// Keeps one. Other keys than before forget all: one that is gone signed them perhaps.
    pub(super) fn keep(&self, digest: Digest, version: u64, until: u64, principal: &Arc<Principal>) {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.version != version {
            *halves = Halves { version, ..Halves::default() };
        }
        if halves.young.len() >= HALF_MAX {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(digest, (until, Arc::clone(principal)));
    }
}
