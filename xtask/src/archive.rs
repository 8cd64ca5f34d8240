//! The programs of a bundle in one file: many of them hold the same MACO and the same device code, which is kept once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tar::{Archive, Builder};
use zstd::{Decoder, Encoder};

use crate::failure::Failure;

/// Of 1 to 22. It takes minutes: 688 MiB of tests are 46 MiB then, and 60 at 15, which is more than can be carried.
const LEVEL: i32 = 19;
/// 2 to this is how many bytes lie between two that are the same, at most.
const WINDOW: u32 = 29;

/// Where tests and other programs lie in `dist`, and the program that takes them out: this one, packed by `gzip`, which every machine has.
pub const TESTS: &str = "tests.tar.zst";
pub const PROGRAMS: &str = "programs.tar.zst";
pub const UNPACKER: &str = "xtask";
pub const PACKED_UNPACKER: &str = "xtask.gz";

/// Packs programs by name.
pub fn pack(programs: &[(String, PathBuf)], to: &Path) -> Result<(), Failure> {
    let file = File::create(to).map_err(Failure::io("pack", to))?;
    let mut encoder = Encoder::new(file, LEVEL).map_err(Failure::io("pack", to))?;
    encoder.window_log(WINDOW).map_err(Failure::io("pack", to))?;
    encoder.long_distance_matching(true).map_err(Failure::io("pack", to))?;
    encoder.multithread(std::thread::available_parallelism().map_or(1, usize::from) as u32).map_err(Failure::io("pack", to))?;
    let mut tar = Builder::new(encoder);
    for (name, path) in programs {
        tar.append_path_with_name(path, name).map_err(Failure::io("pack", path))?;
    }
    tar.into_inner().and_then(Encoder::finish).map_err(Failure::io("pack", to))?;
    Ok(())
}

/// Takes the named programs out of an archive into `folder`.
pub fn unpack(archive: &Path, folder: &Path, names: &[String]) -> Result<(), Failure> {
    let file = File::open(archive).map_err(Failure::io("unpack", archive))?;
    let mut decoder = Decoder::with_buffer(BufReader::new(file)).map_err(Failure::io("unpack", archive))?;
    decoder.window_log_max(WINDOW).map_err(Failure::io("unpack", archive))?;
    let mut missing: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut others = Vec::new();
    for entry in Archive::new(decoder).entries().map_err(Failure::io("unpack", archive))? {
        let mut entry = entry.map_err(Failure::io("unpack", archive))?;
        let name = entry.path().map_err(Failure::io("unpack", archive))?.to_string_lossy().into_owned();
        if missing.remove(&*name) {
            entry.unpack_in(folder).map_err(Failure::io("unpack into", folder))?;
            if missing.is_empty() {
                return Ok(());
            }
        } else {
            others.push(name);
        }
    }
    let missing: Vec<&str> = missing.into_iter().collect();
    Err(Failure::Text(format!("no `{}` in {}; there are: {}", missing.join("`, `"), archive.display(), others.join(", "))))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let folder = std::env::temp_dir().join(format!("maco-archive-{}", std::process::id()));
        let out = folder.join("out");
        fs::create_dir_all(&out).unwrap();
        let programs: Vec<(String, PathBuf)> = ["a", "b", "c"].map(|name| (name.to_owned(), folder.join(format!("{name}-0123")))).into();
        // The same megabyte, which no window of a few kilobytes sees again.
        let mut state = 1u32;
        let same: Vec<u8> =
            (0..1 << 20).map(|_| (state = state.wrapping_mul(0x9E37_79B9) ^ (state >> 15), (state >> 24) as u8).1).collect();
        for (name, path) in &programs {
            fs::write(path, [name.as_bytes(), &same].concat()).unwrap();
            crate::fetch::make_executable(path).unwrap();
        }
        let archive = folder.join(TESTS);
        pack(&programs, &archive).unwrap();
        assert!(fs::metadata(&archive).unwrap().len() < 3 << 19, "kept once");
        unpack(&archive, &out, &["c".to_owned(), "a".to_owned()]).unwrap();
        assert!(fs::read(out.join("c")).unwrap() == [b"c", &*same].concat() && out.join("a").exists() && !out.join("b").exists());
        std::process::Command::new(out.join("a")).spawn().expect_err("noise, but allowed to run: not `permission denied`");
        let text = unpack(&archive, &out, &["b".to_owned(), "d".to_owned()]).unwrap_err().to_string();
        assert!(text.contains("no `d` in") && text.contains("there are: a, c"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
