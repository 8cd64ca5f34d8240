//! What this process is in its job, as the environment says it: `torchrun`'s variables, or those of MACO's launcher.

use std::path::PathBuf;

use crate::MAX_RANKS;
use crate::error::Error;
use crate::folder::{self, FOLDER};
use crate::token::Token;

const STARTED: &str =
    "start the program with `maco launch -n 4 -- program` or `torchrun`, which set it; for one rank use `Communicator::single()`";

/// Where the ranks of a job meet.
pub enum Meeting {
    /// On one host: a socket of this name in a folder that nobody else may enter.
    Folder {
        /// Its mode is 0700.
        folder: PathBuf,
        /// What distinguishes this job from others with the same folder.
        name: String,
        /// Whether a launcher removes the folder; else rank 0 does, when all are there.
        kept: bool,
    },
    /// Over TCP: whoever has the token belongs to the job.
    Tcp {
        /// Host of rank 0.
        host: String,
        /// Where rank 0 listens.
        port: u16,
        /// The secret of the job.
        token: Token,
    },
}

/// A process in its job.
pub struct Job {
    /// Which of the ranks, from 0.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// Which of those on its host, from 0.
    pub local_rank: u32,
    /// How many are on its host.
    pub local_ranks: u32,
    /// Where they meet.
    pub meeting: Meeting,
}

impl Job {
    /// As the environment says it.
    ///
    /// # Errors
    /// MACO0093 for a variable that is missing or wrong.
    pub fn from_env() -> Result<Job, Error> {
        Job::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Job, Error> {
        let number = |variable: &'static str, least: u32, most: u32| {
            let fault = |fault: String, help| Error::Environment { variable, fault: fault.into(), help };
            let value = get(variable).ok_or_else(|| fault("is not set".into(), STARTED))?;
            let found = value.trim().parse::<u32>().ok().filter(|number| (least..=most).contains(number));
            found.ok_or_else(|| {
                fault(format!("is `{value}`, expected a number from {least} to {most}"), "correct it, or leave it to the launcher")
            })
        };
        number("RANK", 0, MAX_RANKS - 1)?;
        let ranks = number("WORLD_SIZE", 1, MAX_RANKS)?;
        let rank = number("RANK", 0, ranks - 1)?;
        let local_ranks = number("LOCAL_WORLD_SIZE", 1, ranks)?;
        let local_rank = number("LOCAL_RANK", 0, local_ranks - 1)?;
        let meeting = if let Some(folder) = get(FOLDER).filter(|folder| !folder.is_empty()) {
            Meeting::Folder { folder: folder.into(), name: "ranks".into(), kept: true }
        } else {
            let port = number("MASTER_PORT", 1, u32::from(u16::MAX))? as u16;
            if local_ranks == ranks {
                // Of a job that `torchrun` starts again no old rank may meet a new one.
                let restart = get("TORCHELASTIC_RESTART_COUNT").and_then(|count| count.trim().parse::<u32>().ok()).unwrap_or(0);
                let user = rustix::process::geteuid().as_raw();
                Meeting::Folder { folder: folder::base().join(format!("maco-{user}")), name: format!("{port}-{restart}"), kept: false }
            } else {
                let host = get("MASTER_ADDR").filter(|host| !host.is_empty());
                let host = host.ok_or(Error::Environment { variable: "MASTER_ADDR", fault: "is not set".into(), help: STARTED })?;
                // `torchrun` itself listens on MASTER_PORT.
                let port = if get("MACO_PORT").is_some() {
                    number("MACO_PORT", 1, u32::from(u16::MAX))? as u16
                } else {
                    port.checked_add(1).unwrap_or(port - 1)
                };
                Meeting::Tcp { host, port, token: Token::of_environment(get("MACO_TOKEN").as_deref())? }
            }
        };
        Ok(Job { rank, ranks, local_rank, local_ranks, meeting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TORCHRUN: [(&str, &str); 6] = [
        ("RANK", "2"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "2"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "node7"),
        ("MASTER_PORT", "29500"),
    ];

    fn job(changes: &[(&str, Option<&str>)]) -> Result<Job, Error> {
        Job::from_variables(|name| match changes.iter().find(|(changed, _)| *changed == name) {
            Some((_, value)) => value.map(str::to_owned),
            None => TORCHRUN.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
        })
    }

    #[test]
    fn torchrun_on_one_host_meets_in_a_folder() {
        let job = job(&[]).unwrap();
        assert_eq!((job.rank, job.ranks, job.local_rank, job.local_ranks), (2, 4, 2, 4));
        let Meeting::Folder { folder, name, kept: false } = job.meeting else { panic!("one host") };
        assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("maco-") && name == "29500-0", "{folder:?} {name}");
    }

    #[test]
    fn torchrun_on_several_hosts_meets_over_tcp_with_a_token() {
        let two_hosts = [("LOCAL_WORLD_SIZE", Some("2")), ("LOCAL_RANK", Some("0"))];
        let token = ("MACO_TOKEN", Some("0123456789abcdef"));
        let error = job(&two_hosts).err().unwrap().to_string();
        assert!(error.starts_with("MACO0093: MACO_TOKEN is not set"), "{error}");
        for (own, expected) in [(None, 29501), (Some("7000"), 7000)] {
            let Meeting::Tcp { host, port, .. } = job(&[two_hosts[0], two_hosts[1], token, ("MACO_PORT", own)]).unwrap().meeting else {
                panic!()
            };
            assert_eq!((&*host, port), ("node7", expected));
        }
    }

    #[test]
    fn the_launchers_folder_needs_no_address() {
        let job = job(&[(FOLDER, Some("/run/maco-1")), ("MASTER_ADDR", None), ("MASTER_PORT", None)]).unwrap();
        assert!(matches!(job.meeting, Meeting::Folder { folder, .. } if folder.as_os_str() == "/run/maco-1"));
    }

    #[test]
    fn errors_name_the_variable() {
        for (variable, value, words) in [
            ("RANK", None, "is not set\nhelp: start the program with `maco launch"),
            ("RANK", Some("4"), "is `4`, expected a number from 0 to 3"),
            ("RANK", Some("-1"), "is `-1`"),
            ("WORLD_SIZE", None, "is not set"),
            ("WORLD_SIZE", Some("0"), "expected a number from 1 to"),
            ("WORLD_SIZE", Some("many"), "is `many`"),
            ("LOCAL_RANK", Some("4"), "expected a number from 0 to 3"),
            ("LOCAL_RANK", None, "is not set"),
            ("LOCAL_WORLD_SIZE", Some("5"), "expected a number from 1 to 4"),
            ("MASTER_PORT", Some("65536"), "is `65536`"),
            ("MASTER_PORT", None, "is not set"),
        ] {
            let error = job(&[(variable, value)]).err().unwrap_or_else(|| panic!("{variable} {value:?}"));
            assert_eq!(error.code(), 93);
            assert!(error.to_string().starts_with(&format!("MACO0093: {variable} ")) && error.to_string().contains(words), "{error}");
        }
    }
}
