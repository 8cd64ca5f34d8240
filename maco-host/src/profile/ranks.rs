//! The profiles of all ranks of a job on one timeline: whose they must be, and how they come together. What they come to is in `rank_summary`.

use std::path::Path;

use maco_ranks::{Group, MAX_VALUE};

use super::chrome::{offsets, write, write_to};
use super::read::read;
use super::{Profile, RankClock};
use crate::agreement::own_or_all;
use crate::error::Error;
use crate::files::{FileError, TRACE, text};

/// Profiles of all ranks of a job, or one profile: each on the clock of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct RankProfiles {
    profiles: Vec<Profile>,
}

impl RankProfiles {
    /// The profiles of all ranks of a job, in any order, or that of a plan of one rank. All ranks have recorded the same launch: nobody else can know it.
    ///
    /// # Errors
    /// MACO0102 when they are of several jobs or megakernels, or a rank is missing or there twice.
    pub fn of(profiles: Vec<Profile>) -> Result<RankProfiles, FileError> {
        RankProfiles::named((0..).map(|number: u32| format!("profile {number}")).zip(profiles).collect())
    }

    /// Merges the traces that the ranks have written, in any order.
    ///
    /// # Errors
    /// MACO0064 for a file that cannot be read, MACO0102 as of [`RankProfiles::of`].
    pub fn merge_chrome(paths: &[impl AsRef<Path>]) -> Result<RankProfiles, FileError> {
        let mut named = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            named.extend(read(path, &text(TRACE, path)?)?.into_iter().map(|profile| (path.display().to_string(), profile)));
        }
        RankProfiles::named(named)
    }

    /// Reads a trace of all ranks, or of one: then of that alone.
    ///
    /// # Errors
    /// MACO0064 when it cannot be read, MACO0102 when it is not of all ranks.
    pub fn read_chrome(path: impl AsRef<Path>) -> Result<RankProfiles, FileError> {
        let path = path.as_ref();
        let profiles = read(path, &text(TRACE, path)?)?;
        match profiles.len() {
            1 => Ok(RankProfiles { profiles }),
            _ => RankProfiles::named(profiles.into_iter().map(|profile| (path.display().to_string(), profile)).collect()),
        }
    }

    /// Writes them into one file, in the format of [`Profile::write_chrome`].
    ///
    /// # Errors
    /// MACO0064 when the file cannot be written.
    pub fn write_chrome(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        write(path.as_ref(), &self.profiles)
    }

    /// In the order of ranks.
    pub fn ranks(&self) -> &[Profile] {
        &self.profiles
    }

    /// Nanoseconds of each rank from time 0 of the first one to its own.
    pub fn shifts(&self) -> Vec<u64> {
        offsets(&self.profiles).into_iter().map(|offset| offset.shift).collect()
    }

    /// From the begin of the first rank to the end of the last one, in nanoseconds.
    pub fn elapsed(&self) -> u64 {
        self.profiles.iter().zip(self.shifts()).map(|(profile, shift)| shift + profile.elapsed).max().unwrap_or(0)
    }

    /// By how many nanoseconds times of two ranks may be wrong against each other, either way.
    pub fn clock_error(&self) -> u64 {
        let mut errors: Vec<u64> = self.profiles.iter().filter_map(|profile| profile.rank).map(|clock| clock.error).collect();
        errors.sort_unstable_by(|a, b| b.cmp(a));
        if self.profiles.len() > 1 { errors.iter().take(2).sum() } else { 0 }
    }

    /// What each rank has, and its name, once they belong together; one that has no other ranks is all by itself.
    fn named(named: Vec<(String, Profile)>) -> Result<RankProfiles, FileError> {
        let refused = |what: String| Err(FileError::Merge { what: what.into() });
        if let [(_, profile)] = &named[..]
            && profile.rank.is_none()
        {
            return Ok(RankProfiles { profiles: vec![profile.clone()] });
        }
        let mut ranks: Vec<(RankClock, String, Profile)> = Vec::with_capacity(named.len());
        for (name, profile) in named {
            let Some(clock) = profile.rank else {
                return refused(format!("{name} was recorded by a plan of one rank, or by ranks of several hosts"));
            };
            if let Some((first, other, base)) = ranks.first() {
                if (clock.job, clock.ranks) != (first.job, first.ranks) {
                    return refused(format!("{name} is of another job than {other}"));
                }
                if profile.megakernel != base.megakernel {
                    return refused(format!("{name} is of megakernel `{}`, {other} of `{}`", profile.megakernel, base.megakernel));
                }
                if !profile.operations.iter().map(|call| &call.name).eq(base.operations.iter().map(|call| &call.name)) {
                    return refused(format!("{name} has other calls than {other}"));
                }
            }
            ranks.push((clock, name, profile));
        }
        ranks.sort_by_key(|(clock, ..)| clock.rank);
        if let Some([(clock, one, _), (_, other, _)]) = ranks.array_windows().find(|[(a, ..), (b, ..)]| a.rank == b.rank) {
            return refused(format!("{one} and {other} are both of rank {}", clock.rank));
        }
        let Some(&(RankClock { ranks: all, .. }, ..)) = ranks.first() else { return refused("there is none".into()) };
        if let Some(missing) = (0..all).find(|&rank| ranks.get(rank as usize).is_none_or(|(clock, ..)| clock.rank != rank)) {
            return refused(format!("rank {missing} of {all} is missing"));
        }
        Ok(RankProfiles { profiles: ranks.into_iter().map(|(.., profile)| profile).collect() })
    }

    /// What all ranks of the group give each other, as the files that they would write: all get all, or the error of one. Messages are bounded, so they go in pieces.
    pub(crate) fn gather(group: &Group, megakernel: &str, own: Result<Profile, Error>) -> Result<RankProfiles, Error> {
        let written = own.map(|profile| {
            let mut bytes = Vec::new();
            // Writing to memory does not fail.
            let _ = write_to(&mut bytes, &[profile]);
            bytes
        });
        let length = written.as_ref().map(|bytes| (bytes.len() as u64).to_le_bytes()).map_err(Error::to_string);
        let operation = format!("profile of megakernel {megakernel}");
        let lengths = group.vote(&operation, length.as_ref().map(|length| &length[..]).map_err(String::as_str));
        let written = own_or_all(written, lengths.as_ref().map(drop).map_err(Clone::clone))?;
        let longest = lengths?.iter().filter_map(|length| length.first_chunk()).map(|length| u64::from_le_bytes(*length)).max();
        let mut all: Vec<Vec<u8>> = vec![Vec::new(); group.ranks() as usize];
        let mut rest = &written[..];
        for _ in 0..longest.unwrap_or(0).div_ceil(MAX_VALUE as u64) {
            let (piece, behind) = rest.split_at(rest.len().min(MAX_VALUE));
            rest = behind;
            for (bytes, piece) in all.iter_mut().zip(group.vote(&operation, Ok(piece))?) {
                bytes.extend(piece);
            }
        }
        let mut named = Vec::with_capacity(all.len());
        for (rank, bytes) in all.iter().enumerate() {
            let name = format!("the profile of rank {rank}");
            named.extend(read(Path::new(&name), bytes)?.into_iter().map(|profile| (name.clone(), profile)));
        }
        Ok(RankProfiles::named(named)?)
    }
}
