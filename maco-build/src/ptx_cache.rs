//! PTX by the content of everything it was made from: a change that is taken back, another variant or another branch costs no compilation.
//!
//! How PTX is made does not belong here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::Error;
use crate::files::{create_dir, fingerprint, read, write};

/// How many texts of one crate and variant are kept.
const KEPT: usize = 4;

/// The texts of one device crate in one variant.
pub(crate) struct PtxCache {
    /// `target/maco/ptx`
    folder: PathBuf,
    /// The name of the crate's library and of the variant.
    stem: String,
    /// Compiler, flags, manifest, lock file: all that the text depends on beside the sources.
    fixed: u64,
    begun: SystemTime,
}

impl PtxCache {
    /// `fixed` is all that the text depends on beside the sources.
    pub(crate) fn new<T: AsRef<[u8]>>(maco: &Path, stem: String, fixed: impl IntoIterator<Item = T>) -> PtxCache {
        PtxCache { folder: maco.join("ptx"), stem, fixed: fingerprint(fixed), begun: SystemTime::now() }
    }

    /// The list of the sources that the crate had the last time.
    fn list(&self) -> PathBuf {
        self.folder.join(format!("{}.sources", self.stem))
    }

    /// Where the text made from these sources is; `None` if one cannot be read.
    fn place(&self, sources: &[PathBuf]) -> Option<PathBuf> {
        let contents = sources.iter().map(|file| fs::read(file).ok()).collect::<Option<Vec<_>>>()?;
        let names = sources.iter().map(|file| file.to_string_lossy().into_owned().into_bytes());
        let key = fingerprint(std::iter::once(self.fixed.to_le_bytes().to_vec()).chain(names).chain(contents));
        Some(self.folder.join(format!("{}-{key:016x}.ptx", self.stem)))
    }

    /// The text, and its sources, if it was made before from what the sources hold now.
    pub(crate) fn find(&self) -> Option<(String, Vec<PathBuf>)> {
        let sources: Vec<PathBuf> = read(&self.list()).ok()?.lines().map(PathBuf::from).collect();
        let ptx = read(&self.place(&sources)?).ok()?;
        Some((ptx, sources))
    }

    /// Keeps a text, unless one of its sources was changed while it was made.
    pub(crate) fn keep(&self, ptx: &str, sources: &[PathBuf]) -> Result<(), Error> {
        let changed = |file: &PathBuf| fs::metadata(file).and_then(|data| data.modified()).is_ok_and(|time| time >= self.begun);
        let (false, Some(place)) = (sources.iter().any(changed), self.place(sources)) else { return Ok(()) };
        create_dir(&self.folder)?;
        self.make_room();
        write(&place, ptx)?;
        let lines: Vec<String> = sources.iter().map(|file| file.to_string_lossy().into_owned()).collect();
        write(&self.list(), lines.join("\n"))
    }

    /// Takes the oldest texts away, so that there is room for one more.
    fn make_room(&self) {
        let prefix = format!("{}-", self.stem);
        let own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
        let age = |path: PathBuf| Some((fs::metadata(&path).and_then(|data| data.modified()).ok()?, path));
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut texts: Vec<(SystemTime, PathBuf)> = entries.filter(own).filter_map(age).collect();
        texts.sort();
        let excess = (texts.len() + 1).saturating_sub(KEPT);
        texts.iter().take(excess).for_each(|(_, path)| {
            let _ = fs::remove_file(path); // another build may have taken it away
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_text_is_found_by_the_content_of_its_sources() {
        let folder = std::env::temp_dir().join(format!("maco-ptx-cache-{}", std::process::id()));
        create_dir(&folder).unwrap();
        let source = folder.join("kernels.rs");
        let sources = [source.clone()];
        let cache = |flags: &str| {
            let mut cache = PtxCache::new(&folder, "user-plain".to_owned(), [flags]);
            cache.begun += Duration::from_secs(60); // the sources are older than the build
            cache
        };
        fs::write(&source, "one").unwrap();
        assert!(cache("a").find().is_none());
        cache("a").keep("ptx of one", &sources).unwrap();
        assert_eq!(cache("a").find().map(|found| found.0).as_deref(), Some("ptx of one"));
        assert!(cache("b").find().is_none(), "other flags");
        fs::write(&source, "two").unwrap();
        assert!(cache("a").find().is_none(), "another text");
        cache("a").keep("ptx of two", &sources).unwrap();
        fs::write(&source, "one").unwrap();
        assert_eq!(cache("a").find(), Some(("ptx of one".to_owned(), sources.to_vec())), "a change that is taken back");
        // One that changed meanwhile is not kept.
        let late = PtxCache { begun: SystemTime::UNIX_EPOCH, ..cache("c") };
        late.keep("ptx", &sources).unwrap();
        assert!(late.find().is_none());
        for n in 0..2 * KEPT {
            fs::write(&source, format!("{n}")).unwrap();
            cache("a").keep("more", &sources).unwrap();
        }
        let texts =
            fs::read_dir(folder.join("ptx")).unwrap().flatten().filter(|file| file.path().extension().is_some_and(|end| end == "ptx"));
        assert_eq!(texts.count(), KEPT);
        fs::remove_dir_all(folder).unwrap();
    }
}
