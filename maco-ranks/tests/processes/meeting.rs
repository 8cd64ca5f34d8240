//! How processes meet, and who is not let in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use maco_ranks::message::{Message, frame};

use crate::{Rendezvous, ends, fine, nothing_left, until};

#[test]
fn ranks_meet_in_a_folder_and_leave_nothing() {
    for ranks in [1, 2, 3, 4, 6, 8] {
        let rendezvous = Rendezvous::folder();
        fine(&ends(rendezvous.start(ranks, "all")));
        let Rendezvous::Folder(folder) = &rendezvous else { unreachable!() };
        nothing_left(&folder.path().join("job"));
    }
}

#[test]
fn ranks_meet_over_tcp() {
    for ranks in [2, 3, 8] {
        fine(&ends(Rendezvous::tcp().start(ranks, "tcp")));
    }
}

#[test]
fn torchruns_variables_suffice_on_one_host() {
    let base = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let ranks = (0..3u32).map(|rank| {
            let mut command = crate::rank_command("all");
            for (variable, value) in
                [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", 3), ("LOCAL_WORLD_SIZE", 3), ("MASTER_PORT", 29500)]
            {
                command.env(variable, value.to_string());
            }
            command.env("MASTER_ADDR", "localhost").env("XDG_RUNTIME_DIR", base.path()).env_remove("MACO_JOB_FOLDER");
            command.spawn().unwrap()
        });
        fine(&ends(ranks.collect()));
        nothing_left(base.path());
        // The socket of a job that was killed is in nobody's way.
        if run == 0 {
            let folder = base.path().join(format!("maco-{}", rustix::process::geteuid().as_raw()));
            std::fs::create_dir(&folder).unwrap();
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
            drop(std::os::unix::net::UnixListener::bind(folder.join("29500-0-0.sock")).unwrap());
        }
    }
}

/// Three ranks of a launcher whose variables these are; `#` is the rank.
fn launched(case: &str, variables: &[(&str, &str)]) {
    let base = tempfile::tempdir().unwrap();
    let ranks = (0..3).map(|rank: u32| {
        let mut command = crate::rank_command(case);
        command.env("XDG_RUNTIME_DIR", base.path()).env_remove("MACO_JOB_FOLDER").env_remove("RANK");
        command.envs(variables.iter().map(|(variable, value)| (variable, value.replace('#', &rank.to_string()))));
        command.spawn().unwrap()
    });
    fine(&ends(ranks.collect()));
    nothing_left(base.path());
}

#[test]
fn variables_of_mpi_and_slurm_suffice_on_one_host() {
    let (rank, ranks) = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
    let (local_rank, local_ranks) = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    launched("all", &[(rank, "#"), (ranks, "3"), (local_rank, "#"), (local_ranks, "3"), ("PMIX_NAMESPACE", "prterun-here-12@1")]);
    let port = ("MASTER_PORT", "29500");
    launched("all", &[("PMI_RANK", "#"), ("PMI_SIZE", "3"), ("MPI_LOCALRANKID", "#"), ("MPI_LOCALNRANKS", "3"), port]);
    let (job, step, tasks) = (("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0"), "SLURM_STEP_TASKS_PER_NODE");
    launched(
        "all",
        &[("SLURM_PROCID", "#"), ("SLURM_NTASKS", "3"), ("SLURM_LOCALID", "#"), ("SLURM_NODEID", "0"), (tasks, "3"), job, step],
    );
}

#[test]
fn tasks_of_slurm_on_several_hosts_meet_on_the_first() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let (job, step, tasks) = (("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_TASKS_PER_NODE", "1(x3)"));
    let place = [("SLURM_LOCALID", "0"), ("SLURM_NODEID", "#"), ("SLURM_STEP_NODELIST", "127.0.0.[1-3]")];
    let meeting = [("SLURM_PROCID", "#"), ("SLURM_NTASKS", "3"), ("MACO_PORT", &*port), ("MACO_TOKEN", crate::TOKEN)];
    launched("tcp", &[&meeting[..], &place, &[job, step, tasks]].concat());
}

#[test]
fn a_folder_that_others_enter_is_refused_by_all() {
    let rendezvous = Rendezvous::folder();
    let Rendezvous::Folder(folder) = &rendezvous else { unreachable!() };
    std::fs::set_permissions(folder.path().join("job"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let children = (0..2).map(|rank| rendezvous.rank(rank, 2, "meet").env("DEADLINE", "500").spawn().unwrap());
    for (rank, ended) in ends(children.collect()).iter().enumerate() {
        assert_eq!(ended.status, Some(94), "{ended:?}");
        assert!(ended.said[0].contains(&format!("rank {rank} could not")) && ended.said[0].contains("others may enter it"), "{ended:?}");
    }
}

/// Until rank 0 listens.
fn connect(port: u16) -> TcpStream {
    let mut stream = None;
    until("rank 0 listens", || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// All that comes until the connection is closed by the other side.
fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

#[test]
fn strangers_are_refused_and_the_job_goes_on() {
    let rendezvous = Rendezvous::tcp();
    let Rendezvous::Tcp(port) = rendezvous else { unreachable!() };
    // The last rank comes when the strangers have gone.
    let mut children: Vec<_> = (0..2).map(|rank| rendezvous.rank(rank, 3, "tcp").spawn().unwrap()).collect();
    let hello = |proof| frame(&Message::Hello { rank: 2, ranks: 3, number: 0, nonce: [1; 32], proof }, 0);
    let mut long = frame(&Message::Leave, 0);
    long[8..12].copy_from_slice(&(1u32 << 30).to_le_bytes());
    let round = Message::Round { operation: "join", deadline_ms: 9, left_ms: 9, value: Ok(b"") };
    for (what, bytes, answered) in [
        ("no proof", hello([0; 32]), true),
        ("a wrong proof", hello([7; 32]), true),
        ("another protocol", b"GET / HTTP/1.1\r\n\r\n".to_vec(), false),
        ("random bytes", (0..400u32).map(|n| (n * 151 % 251) as u8).collect(), false),
        ("a message that is too long", long, false),
        ("a round without a hello", frame(&round, 0), false),
        ("nothing", vec![], false),
    ] {
        let mut stream = connect(port);
        let mut challenge = [0; 45];
        stream.read_exact(&mut challenge).unwrap();
        let begin = Instant::now();
        if bytes.is_empty() {
            // One that never says a word holds up nobody.
            let silent = stream;
            thread::spawn(move || rest(silent));
            continue;
        }
        stream.write_all(&bytes).unwrap();
        let answer = rest(stream);
        assert!(begin.elapsed() < Duration::from_secs(4), "{what}: {:?}", begin.elapsed());
        assert_eq!(answer, if answered { frame(&Message::Stranger, 0) } else { vec![] }, "{what}");
    }
    // A crowd of silent ones.
    let crowd: Vec<TcpStream> = (0..200).map(|_| connect(port)).collect();
    // Who comes behind it is heard.
    let mut stream = connect(port);
    stream.read_exact(&mut [0; 45]).unwrap();
    stream.write_all(&hello([7; 32])).unwrap();
    assert_eq!(rest(stream), frame(&Message::Stranger, 0));
    // A process with another token learns why it is not let in.
    let other = ends(vec![rendezvous.rank(2, 3, "tcp").env("MACO_TOKEN", "the token of another job").spawn().unwrap()]);
    assert_eq!(other[0].status, Some(94), "{other:?}");
    assert!(other[0].said[0].contains("rank 2 could not join") && other[0].said[0].contains("MACO_TOKEN"), "{other:?}");
    assert!(!other[0].all.contains("the token of another job"));
    children.push(rendezvous.rank(2, 3, "tcp").spawn().unwrap());
    fine(&ends(children));
    drop(crowd);
}

#[test]
fn a_false_rank_0_is_not_believed() {
    // It listens first, and says what a hub says, without the token.
    let rendezvous = Rendezvous::tcp();
    let Rendezvous::Tcp(port) = rendezvous else { unreachable!() };
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let rank = rendezvous.rank(1, 2, "tcp").spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&frame(&Message::Challenge { nonce: [9; 32] }, 0)).unwrap();
    stream.write_all(&frame(&Message::Welcome { proof: [9; 32] }, 0)).unwrap();
    let ended = ends(vec![rank]);
    assert!(ended[0].said[0].contains("does not have this job's token"), "{ended:?}");
}

#[test]
fn over_tcp_a_token_is_required() {
    let rendezvous = Rendezvous::tcp();
    for (token, words) in [(None, "MACO0093: MACO_TOKEN is not set"), (Some("short"), "MACO0093: MACO_TOKEN has 5 bytes")] {
        let mut command = rendezvous.rank(0, 2, "tcp");
        match token {
            None => command.env_remove("MACO_TOKEN"),
            Some(token) => command.env("MACO_TOKEN", token),
        };
        let ended = ends(vec![command.spawn().unwrap()]);
        assert!(ended[0].status == Some(93) && ended[0].said[0].contains(words), "{ended:?}");
    }
}

#[test]
fn two_processes_of_one_rank_and_other_sizes_are_everybodys_error() {
    for (twice, size, words) in [(1, 3, "two processes came as rank 1"), (2, 4, "rank 2 expects 4 ranks, rank 0 expects 3")] {
        for rendezvous in [Rendezvous::folder(), Rendezvous::tcp()] {
            let mut children: Vec<_> = (0..2).map(|rank| rendezvous.rank(rank, 3, "meet").spawn().unwrap()).collect();
            // When the others wait.
            thread::sleep(Duration::from_millis(300));
            let mut last = rendezvous.rank(twice, 3, "meet");
            last.env("WORLD_SIZE", size.to_string());
            if matches!(rendezvous, Rendezvous::Folder(_)) {
                last.env("LOCAL_WORLD_SIZE", size.to_string());
            }
            children.push(last.spawn().unwrap());
            for ended in ends(children) {
                assert!(ended.status == Some(95) && ended.said[0].contains(words), "{ended:?}");
            }
        }
    }
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_said() {
    let folder: PathBuf = std::env::temp_dir().join("x".repeat(100));
    let rendezvous = Rendezvous::folder();
    let ended = ends(vec![rendezvous.rank(0, 2, "meet").env("MACO_JOB_FOLDER", &folder).spawn().unwrap()]);
    std::fs::remove_dir(&folder).unwrap();
    assert!(ended[0].status == Some(94) && ended[0].said[0].contains("name one that is short"), "{ended:?}");
}
