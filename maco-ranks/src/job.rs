//! What this process is in its job, as the environment says it: by the variables of MACO's launcher, of `torchrun`, of MPI or of Slurm.

use std::path::PathBuf;

use crate::MAX_RANKS;
use crate::error::Error;
use crate::folder::{self, FOLDER};
use crate::launcher::{Launcher, Variables};
use crate::token::Token;

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

    /// Whether a launcher has started this process as a rank: one whose variables [`Job::from_env`] reads.
    pub fn is_launched() -> bool {
        Launcher::find(&Variables(&|name| std::env::var(name).ok())).is_some()
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Job, Error> {
        let variables = Variables(&get);
        // Without any, what `maco launch` sets is missing.
        let launcher = Launcher::find(&variables).unwrap_or(Launcher::Torchrun);
        let [rank, ranks, local_rank] = launcher.names();
        variables.number(rank, 0, MAX_RANKS - 1)?;
        let ranks = variables.number(ranks, 1, MAX_RANKS)?;
        let rank = variables.number(rank, 0, ranks - 1)?;
        let local_ranks = launcher.local_ranks(&variables, ranks)?;
        let local_rank = variables.number(local_rank, 0, local_ranks - 1)?;
        let meeting = if let (Launcher::Torchrun, Some(folder)) = (launcher, variables.text(FOLDER)) {
            Meeting::Folder { folder: folder.into(), name: "ranks".into(), kept: true }
        } else if local_ranks == ranks {
            let user = rustix::process::geteuid().as_raw();
            // One rank meets nobody.
            let name = if ranks == 1 && launcher != Launcher::Torchrun { "one".into() } else { launcher.key(&variables)? };
            Meeting::Folder { folder: folder::base().join(format!("maco-{user}")), name, kept: false }
        } else {
            let (host, port) = (launcher.host(&variables)?, launcher.port(&variables)?);
            Meeting::Tcp { host, port, token: Token::of_environment(get("MACO_TOKEN").as_deref())? }
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
        changed(&TORCHRUN, changes)
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

    const OPEN_MPI: [(&str, &str); 5] = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "3"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
        ("PMIX_NAMESPACE", "prterun-node7-1234@1"),
    ];
    const PMI: [(&str, &str); 5] =
        [("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "3"), ("MASTER_PORT", "7000")];
    const SLURM: [(&str, &str); 8] = [
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "3"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "3"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "2"),
        ("SLURM_STEP_NODELIST", "node[7-8]"),
    ];

    /// The job of an environment in which some variables are otherwise.
    fn changed(environment: &[(&str, &str)], changes: &[(&str, Option<&str>)]) -> Result<Job, Error> {
        Job::from_variables(|name| match changes.iter().find(|(changed, _)| *changed == name) {
            Some((_, value)) => value.map(str::to_owned),
            None => environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
        })
    }

    #[test]
    fn ranks_of_mpi_and_slurm_meet_in_a_folder_by_the_number_of_their_job() {
        for (environment, expected) in [(&OPEN_MPI[..], "prterun-node7-1234-1"), (&PMI, "mpi-7000"), (&SLURM, "slurm-77-2")] {
            let job = changed(environment, &[]).unwrap();
            assert_eq!((job.rank, job.ranks, job.local_rank, job.local_ranks), (1, 3, 1, 3));
            let Meeting::Folder { folder, name, kept: false } = job.meeting else { panic!("one host") };
            assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("maco-") && name == expected, "{folder:?} {name}");
        }
        // Its name fits into the path of a socket.
        let long = format!("{}-99", "host".repeat(50));
        let Meeting::Folder { name, .. } = changed(&OPEN_MPI, &[("PMIX_NAMESPACE", Some(&long))]).unwrap().meeting else { panic!() };
        assert!(name.len() == 40 && name.ends_with("t-99"), "{name}");
        // An older Open MPI says the port; one rank needs none.
        let port = [("PMIX_NAMESPACE", None), ("MASTER_PORT", Some("7001"))];
        let Meeting::Folder { name, .. } = changed(&OPEN_MPI, &port).unwrap().meeting else { panic!() };
        assert_eq!(name, "mpi-7001");
        let one = [("PMI_RANK", Some("0")), ("PMI_SIZE", Some("1")), ("MPI_LOCALRANKID", Some("0")), ("MPI_LOCALNRANKS", Some("1"))];
        assert_eq!(changed(&PMI, &[&one[..], &[("MASTER_PORT", None)]].concat()).unwrap().ranks, 1);
    }

    #[test]
    fn ranks_of_mpi_and_slurm_on_several_hosts_meet_over_tcp_with_a_token() {
        let token = ("MACO_TOKEN", Some("0123456789abcdef"));
        let address = [("MASTER_ADDR", Some("node1")), ("MASTER_PORT", Some("7000"))];
        for (environment, count, few) in [
            (&OPEN_MPI[..], "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            (&PMI, "MPI_LOCALNRANKS", "2"),
            (&SLURM, "SLURM_STEP_TASKS_PER_NODE", "2,1"),
        ] {
            let two_hosts = [&[(count, Some(few))][..], &address].concat();
            let error = changed(environment, &two_hosts).err().unwrap().to_string();
            assert!(error.starts_with("MACO0093: MACO_TOKEN is not set"), "{error}");
            for (own, expected) in [(None, 7001), (Some("7500"), 7500)] {
                let job = changed(environment, &[&two_hosts[..], &[token, ("MACO_PORT", own)]].concat()).unwrap();
                assert_eq!((job.local_rank, job.local_ranks), (1, 2));
                let Meeting::Tcp { host, port, .. } = job.meeting else { panic!() };
                assert_eq!((&*host, port), ("node1", expected));
            }
        }
        // Slurm says both itself.
        for (list, expected) in [(("SLURM_JOB_NODELIST", None), "node7"), (("SLURM_STEP_NODELIST", None), "10.0.0.3")] {
            let two_hosts = [("SLURM_STEP_TASKS_PER_NODE", Some("2,1")), ("SLURM_LAUNCH_NODE_IPADDR", Some("10.0.0.3")), token, list];
            let Meeting::Tcp { host, port, .. } = changed(&SLURM, &two_hosts).unwrap().meeting else { panic!() };
            assert_eq!((&*host, port), (expected, 15_000 + 77 * 31 + 2));
        }
    }

    #[test]
    fn torchrun_counts_inside_of_slurm_and_mpi() {
        let all = [&TORCHRUN[..], &OPEN_MPI, &SLURM].concat();
        assert_eq!(changed(&all, &[]).unwrap().ranks, 4);
        assert_eq!(changed(&all, &[("RANK", None)]).unwrap().ranks, 3);
        // The launcher's folder is for its own ranks.
        let Meeting::Folder { kept, .. } = changed(&SLURM, &[(FOLDER, Some("/run/maco-1"))]).unwrap().meeting else { panic!() };
        assert!(!kept);
    }

    #[test]
    fn errors_name_the_variable_of_the_launcher() {
        for (environment, variable, value, words) in [
            (&OPEN_MPI[..], "OMPI_COMM_WORLD_RANK", Some("3"), "is `3`, expected a number from 0 to 2"),
            (&OPEN_MPI, "OMPI_COMM_WORLD_SIZE", None, "is not set"),
            (&OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK", Some("x"), "is `x`"),
            (&OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE", Some("4"), "expected a number from 1 to 3"),
            (&PMI, "PMI_SIZE", Some("0"), "expected a number from 1 to"),
            (&PMI, "MPI_LOCALRANKID", None, "is not set"),
            (&PMI, "MPI_LOCALNRANKS", None, "is not set"),
            (&PMI, "MASTER_PORT", None, "is not set\nhelp: set MASTER_ADDR"),
            (&SLURM, "SLURM_NTASKS", None, "is not set"),
            (&SLURM, "SLURM_LOCALID", Some("3"), "expected a number from 0 to 2"),
            (&SLURM, "SLURM_STEP_TASKS_PER_NODE", Some("3("), "is `3(`, which has no number of tasks"),
            (&SLURM, "SLURM_STEP_TASKS_PER_NODE", None, "is not set"),
            (&SLURM, "SLURM_NODEID", None, "is not set"),
            (&SLURM, "SLURM_JOB_ID", None, "is not set"),
        ] {
            let error = changed(environment, &[(variable, value)]).err().unwrap_or_else(|| panic!("{variable} {value:?}"));
            assert_eq!(error.code(), 93);
            assert!(error.to_string().starts_with(&format!("MACO0093: {variable} ")) && error.to_string().contains(words), "{error}");
        }
        let two_hosts = [("OMPI_COMM_WORLD_LOCAL_SIZE", Some("2")), ("MACO_TOKEN", Some("0123456789abcdef"))];
        let error = changed(&OPEN_MPI, &two_hosts).err().unwrap().to_string();
        assert!(error.starts_with("MACO0093: MASTER_ADDR is not set\nhelp: set MASTER_ADDR to the host of rank 0"), "{error}");
    }
}
