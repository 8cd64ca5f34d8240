//! Whose variables say what this process is in its job: those of `maco launch` and `torchrun`, of Open MPI, of MPICH and its kin, or of Slurm.
//!
//! What a job is, and how its ranks meet, does not belong here.

use crate::error::Error;

const STARTED: &str = "start the program with `maco launch -n 4 -- program`, `torchrun`, `mpirun` or `srun`, which set it; for one rank use `Communicator::single()`";
const ADDRESS: &str = "set MASTER_ADDR to the host of rank 0 and MASTER_PORT to a free port, on all ranks; each job needs its own port";

/// An environment.
pub(crate) struct Variables<'a>(pub(crate) &'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// One that is there and not empty.
    pub(crate) fn text(&self, variable: &str) -> Option<String> {
        (self.0)(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// A number in this range.
    pub(crate) fn number(&self, variable: &'static str, least: u32, most: u32) -> Result<u32, Error> {
        let value = (self.0)(variable).ok_or_else(|| missing(variable))?;
        let found = value.trim().parse::<u32>().ok().filter(|number| (least..=most).contains(number));
        found.ok_or_else(|| Error::Environment {
            variable,
            fault: format!("is `{value}`, expected a number from {least} to {most}").into(),
            help: "correct it, or leave it to the launcher",
        })
    }

    fn port(&self, variable: &'static str) -> Result<u16, Error> {
        Ok(self.number(variable, 1, u32::from(u16::MAX))? as u16)
    }
}

fn missing(variable: &'static str) -> Error {
    let help = if matches!(variable, "MASTER_ADDR" | "MASTER_PORT") { ADDRESS } else { STARTED };
    Error::Environment { variable, fault: "is not set".into(), help }
}

/// Who has started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// `torchrun`, `maco launch`, and who sets their variables.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH (Hydra), of Intel MPI, and others with PMI.
    Pmi,
    /// `srun`.
    Slurm,
}

impl Launcher {
    /// The innermost: `torchrun` may be started by `srun`, and so may the daemons of `mpirun`, of whose variables these are then not the rank's.
    pub(crate) fn find(variables: &Variables<'_>) -> Option<Launcher> {
        let is_set = |variable| (variables.0)(variable).is_some();
        // A batch script, which runs once, has SLURM_PROCID too, but no step.
        let step = is_set("SLURM_PROCID") && is_set("SLURM_STEP_ID");
        if is_set("RANK") {
            Some(Launcher::Torchrun)
        } else if is_set("OMPI_COMM_WORLD_RANK") {
            Some(Launcher::OpenMpi)
        } else if is_set("PMI_RANK") && (is_set("MPI_LOCALRANKID") || !step) {
            Some(Launcher::Pmi)
        } else {
            // `srun --mpi=pmi2` sets PMI_RANK.
            step.then_some(Launcher::Slurm)
        }
    }

    /// The variables of rank, number of ranks, and rank on this host.
    pub(crate) fn names(self) -> [&'static str; 3] {
        match self {
            Launcher::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            Launcher::OpenMpi => ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
            Launcher::Pmi => ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
            Launcher::Slurm => ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        }
    }

    /// How many of `ranks` ranks are on this host.
    pub(crate) fn local_ranks(self, variables: &Variables<'_>, ranks: u32) -> Result<u32, Error> {
        match self {
            Launcher::Torchrun => variables.number("LOCAL_WORLD_SIZE", 1, ranks),
            Launcher::OpenMpi => variables.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, ranks),
            Launcher::Pmi => variables.number("MPI_LOCALNRANKS", 1, ranks),
            Launcher::Slurm => {
                let node = variables.number("SLURM_NODEID", 0, ranks - 1)?;
                // A step may have fewer nodes than its job.
                let variable = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
                let variable =
                    if variables.text(variable[0]).is_none() && variables.text(variable[1]).is_some() { variable[1] } else { variable[0] };
                let list = variables.text(variable).ok_or_else(|| missing(variable))?;
                tasks(&list, node).filter(|found| (1..=ranks).contains(found)).ok_or_else(|| Error::Environment {
                    variable,
                    fault: format!("is `{list}`, which has no number of tasks from 1 to {ranks} for node {node}, that of SLURM_NODEID")
                        .into(),
                    help: "leave it to `srun`",
                })
            }
        }
    }

    /// What distinguishes this job from others of the same user on the same host, as part of a file's name.
    pub(crate) fn key(self, variables: &Variables<'_>) -> Result<String, Error> {
        let id = match self {
            Launcher::Torchrun => {
                // Of a job that `torchrun` starts again no old rank may meet a new one.
                let restart = variables.text("TORCHELASTIC_RESTART_COUNT").and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
                return Ok(format!("{}-{restart}", variables.port("MASTER_PORT")?));
            }
            Launcher::OpenMpi => variables.text("PMIX_NAMESPACE"),
            Launcher::Pmi => None,
            Launcher::Slurm => {
                let [job, step] = slurm(variables)?;
                Some(format!("slurm-{job}-{step}"))
            }
        };
        let id = match id {
            Some(id) => id,
            None => format!("mpi-{}", variables.port("MASTER_PORT")?),
        };
        // What distinguishes jobs stands behind the host's name; a socket's path has 107 bytes at most.
        let name: Vec<char> = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Ok(name[name.len().saturating_sub(40)..].iter().collect())
    }

    /// The host of rank 0.
    pub(crate) fn host(self, variables: &Variables<'_>) -> Result<String, Error> {
        let listed = || {
            let list = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"].iter().find_map(|list| variables.text(list));
            // Tasks are placed from the first node on. Where `srun` itself was started may be no node of the job.
            list.and_then(|list| first_host(&list)).or_else(|| variables.text("SLURM_LAUNCH_NODE_IPADDR"))
        };
        let host = variables.text("MASTER_ADDR");
        host.or_else(|| if self == Launcher::Slurm { listed() } else { None }).ok_or_else(|| missing("MASTER_ADDR"))
    }

    /// The port on which rank 0 listens.
    pub(crate) fn port(self, variables: &Variables<'_>) -> Result<u16, Error> {
        if variables.text("MACO_PORT").is_some() {
            return variables.port("MACO_PORT");
        }
        if self == Launcher::Slurm && variables.text("MASTER_PORT").is_none() {
            let [job, step] = slurm(variables)?.map(u64::from);
            // Below the ports that systems give away by themselves.
            return Ok(15_000 + ((job * 31 + step) % 17_000) as u16);
        }
        // `torchrun` itself listens on MASTER_PORT, and so does rank 0 of a program that uses PyTorch.
        let port = variables.port("MASTER_PORT")?;
        Ok(port.checked_add(1).unwrap_or(port - 1))
    }
}

/// The numbers of the job and of its step.
fn slurm(variables: &Variables<'_>) -> Result<[u32; 2], Error> {
    Ok([variables.number("SLURM_JOB_ID", 0, u32::MAX)?, variables.number("SLURM_STEP_ID", 0, u32::MAX)?])
}

/// How many tasks node `node` has in a list of Slurm's: `4(x2),3` are 4, 4 and 3.
fn tasks(list: &str, node: u32) -> Option<u32> {
    let mut behind = 0u32;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        behind = behind.checked_add(nodes)?;
        if node < behind {
            return tasks.parse().ok();
        }
    }
    None
}

/// The first host of a list of Slurm's: `node07` of `node[07-12,20],login1`.
fn first_host(list: &str) -> Option<String> {
    let (mut host, mut rest) = (String::new(), list.chars());
    while let Some(c) = rest.next() {
        match c {
            ',' => break,
            '[' => {
                let numbers: String = rest.by_ref().take_while(|c| *c != ']').collect();
                host.push_str(numbers.split([',', '-']).next()?);
            }
            c => host.push(c),
        }
    }
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_slurm_are_read() {
        let all = |list| (0..4).map(|node| tasks(list, node)).collect::<Vec<_>>();
        assert_eq!(all("4"), [Some(4), None, None, None]);
        assert_eq!(all("4(x2),3"), [Some(4), Some(4), Some(3), None]);
        assert_eq!(all("1,2(x2),5(x9)"), [Some(1), Some(2), Some(2), Some(5)]);
        for wrong in ["", "x", "4(x", "4(x)", "(x2)", "4(x2", "4(x99999999999)"] {
            assert_eq!(all(wrong), [None; 4], "{wrong}");
        }
        for (list, first) in [
            ("node7", Some("node7")),
            ("node[07-12,20],login1", Some("node07")),
            ("a,b", Some("a")),
            ("rack[2-3]node[4,5]-ib", Some("rack2node4-ib")),
            ("node[3]", Some("node3")),
            ("", None),
        ] {
            assert_eq!(first_host(list).as_deref(), first, "{list}");
        }
    }

    #[test]
    fn the_innermost_launcher_counts() {
        let (torchrun, open_mpi, pmi) = (&["RANK"][..], &["OMPI_COMM_WORLD_RANK"][..], &["PMI_RANK", "MPI_LOCALRANKID"][..]);
        let (step, pmi_of_slurm) = (&["SLURM_PROCID", "SLURM_STEP_ID"][..], &["PMI_RANK"][..]);
        for (set, found) in [
            (vec![], None),
            (vec![torchrun], Some(Launcher::Torchrun)),
            (vec![torchrun, open_mpi, pmi, step], Some(Launcher::Torchrun)),
            (vec![open_mpi, pmi, step], Some(Launcher::OpenMpi)),
            (vec![pmi, step], Some(Launcher::Pmi)),
            (vec![pmi_of_slurm], Some(Launcher::Pmi)),
            (vec![pmi_of_slurm, step], Some(Launcher::Slurm)),
            (vec![step], Some(Launcher::Slurm)),
            (vec![&["SLURM_PROCID"]], None),
        ] {
            let get = |name: &str| set.iter().any(|names| names.contains(&name)).then(|| "0".to_owned());
            assert_eq!(Launcher::find(&Variables(&get)), found, "{set:?}");
        }
    }
}
