//! How ranks of several processes get to the hub: a door that only the job passes. What they do there does not belong here.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::folder;
use crate::job::{Job, Meeting};
use crate::link::{Broken, Link, Packet, wait};
use crate::message::{Malformed, Message, STRANGERS_LIMIT, decode};
use crate::token::{Exchange, Side, nonce};

const AGAIN: Duration = Duration::from_millis(5);

/// Where the hub lets ranks in. Dropping it takes the socket away.
pub(crate) enum Door {
    Folder { listener: UnixListener, socket: PathBuf, remove: Option<PathBuf> },
    Tcp(TcpListener),
}

fn socket_path(folder: &Path, name: &str, number: u32) -> PathBuf {
    folder.join(format!("{name}-{number}.sock"))
}

impl Door {
    /// For group `number` of the job.
    pub(crate) fn open(meeting: &Meeting, number: u32) -> Result<Door, Error> {
        let failed = |what: String, why: io::Error, help| Error::Meeting { what: what.into(), why: why.to_string().into(), help };
        match meeting {
            Meeting::Folder { folder, name, kept } => {
                let socket = socket_path(folder, name, number);
                let listener = bind(folder, &socket).map_err(|why| {
                    let help = "the ranks of a host meet in a folder below XDG_RUNTIME_DIR, else TMPDIR: name one that is short, can be written, and is yours alone; each job needs its own MASTER_PORT";
                    failed(format!("rank 0 could not listen on `{}`", socket.display()), why, help)
                })?;
                Ok(Door::Folder { listener, socket, remove: (!kept).then(|| folder.clone()) })
            }
            Meeting::Tcp { host, port, .. } => {
                let listener = listen(host, *port).map_err(|why| {
                    let help =
                        "rank 0 listens on MACO_PORT, else on the port behind MASTER_PORT: set MACO_PORT to a free one, on all ranks";
                    failed(format!("rank 0 could not listen on port {port}"), why, help)
                })?;
                Ok(Door::Tcp(listener))
            }
        }
    }

    /// Who waits at the door, if somebody does; an error says why it was sent away.
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        let accepted = match self {
            Door::Folder { listener, .. } => listener.accept().map(|(stream, _)| OwnedFd::from(stream)),
            Door::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }),
        };
        match accepted {
            Ok(socket) => {
                if let Door::Folder { .. } = self {
                    folder::of_same_user(&socket)?;
                }
                Ok(Some(socket))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What was sent last may be lost when the connection closes at once (TCP, with data that nobody has read).
    pub(crate) fn lingers(&self) -> bool {
        matches!(self, Door::Tcp(_))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Door::Folder { listener, .. } => listener.as_fd(),
            Door::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Door::Folder { socket, remove, .. } = self {
            let _ = fs::remove_file(socket);
            if let Some(folder) = remove {
                // Fails while another job of this user meets there.
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

fn bind(folder: &Path, socket: &Path) -> io::Result<UnixListener> {
    let mut tries = 0;
    loop {
        folder::private(folder)?;
        let error = match UnixListener::bind(socket) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok(listener);
            }
            Err(error) => error,
        };
        tries += 1;
        match error.kind() {
            _ if tries > 10 => return Err(error),
            // Another job has just removed the folder.
            ErrorKind::NotFound => {}
            // A job that was killed has left it, if nobody listens.
            ErrorKind::AddrInUse => match UnixStream::connect(socket) {
                Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => fs::remove_file(socket)?,
                _ => return Err(error),
            },
            _ => return Err(error),
        }
    }
}

/// On all addresses of this host, or on its own if the job does not leave it.
fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let loopback = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next()).filter(|found| found.ip().is_loopback());
    let listener = match loopback {
        Some(address) => TcpListener::bind(address)?,
        None => TcpListener::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
            .or_else(|_| TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Why a rank was not let in.
enum Shut {
    /// It may be later.
    Yet(String),
    /// It never will.
    Out(Error),
}

/// Goes to the hub as a rank of this job, and tries again until `until`.
pub(crate) fn join(job: &Job, number: u32, deadline: Duration, until: Instant) -> Result<Link, Error> {
    loop {
        let why = match connect(&job.meeting, number, until).map_err(|error| error.to_string()) {
            Err(why) => why,
            Ok(socket) => match greet(socket, job, number, until) {
                Ok(link) => return Ok(link),
                Err(Shut::Yet(why)) => why,
                Err(Shut::Out(error)) => return Err(error),
            },
        };
        if Instant::now() + AGAIN >= until {
            return Err(meeting_error(
                job,
                number,
                format!("no answer within {deadline:?}: {why}"),
                "see whether rank 0 was started and what it says; MASTER_ADDR and port must be the same on all ranks",
            ));
        }
        std::thread::sleep(AGAIN);
    }
}

fn meeting_error(job: &Job, number: u32, why: String, help: &'static str) -> Error {
    let place = match &job.meeting {
        Meeting::Folder { folder, name, .. } => format!("`{}`", socket_path(folder, name, number).display()),
        Meeting::Tcp { host, port, .. } => format!("{host}:{port}"),
    };
    Error::Meeting { what: format!("rank {} could not join rank 0 at {place}", job.rank).into(), why: why.into(), help }
}

fn connect(meeting: &Meeting, number: u32, until: Instant) -> io::Result<OwnedFd> {
    match meeting {
        Meeting::Folder { folder, name, .. } => {
            folder::check(folder)?;
            let stream = UnixStream::connect(socket_path(folder, name, number))?;
            folder::of_same_user(&stream)?;
            Ok(stream.into())
        }
        Meeting::Tcp { host, port, .. } => {
            let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                let left = until.saturating_duration_since(Instant::now()).clamp(AGAIN, Duration::from_secs(2));
                match TcpStream::connect_timeout(&address, left) {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(stream.into());
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// Each side shows the other that it belongs to the job.
fn greet(socket: OwnedFd, job: &Job, number: u32, until: Instant) -> Result<Link, Shut> {
    let yet = |broken: Broken| match broken {
        Broken::Malformed(Malformed::Version(_)) => {
            Shut::Out(meeting_error(job, number, broken.to_string(), "build the programs of all ranks with the same version of MACO"))
        }
        broken => Shut::Yet(broken.to_string()),
    };
    let system = |error: io::Error| Shut::Yet(error.to_string());
    let token = match &job.meeting {
        Meeting::Tcp { token, .. } => Some(token),
        Meeting::Folder { .. } => None,
    };
    let mut link = Link::new(socket, STRANGERS_LIMIT, 0).map_err(system)?;
    let challenge = next(&mut link, until).map_err(yet)?;
    let Ok(Message::Challenge { nonce: of_hub }) = decode(&challenge) else { return Err(yet(Malformed::Body.into())) };
    let exchange = Exchange { of_hub, of_rank: nonce().map_err(system)?, rank: job.rank, ranks: job.ranks, number };
    let proof = exchange.proof(token, Side::Rank);
    link.send(Packet::new(&Message::Hello { rank: job.rank, ranks: job.ranks, number, nonce: exchange.of_rank, proof }, vec![]));
    let answer = next(&mut link, until).map_err(yet)?;
    let wrong_token = |why: &str| {
        let help = "MACO_TOKEN must be the same on all ranks, and MASTER_ADDR and port be those of this job";
        Shut::Out(meeting_error(job, number, why.to_owned(), help))
    };
    match decode(&answer) {
        Ok(Message::Welcome { proof }) if exchange.proves(token, Side::Hub, &proof) => Ok(link),
        Ok(Message::Welcome { .. }) => Err(wrong_token("who listens there does not have this job's token")),
        Ok(Message::Stranger) => Err(wrong_token("this rank's token is not that of rank 0")),
        _ => Err(yet(Malformed::Body.into())),
    }
}

/// The next message, by `until`.
fn next(link: &mut Link, until: Instant) -> Result<Vec<u8>, Broken> {
    loop {
        link.flush()?;
        if let Some(received) = link.receive()? {
            return Ok(received.body);
        }
        if Instant::now() >= until {
            return Err(Broken::System(ErrorKind::TimedOut.into()));
        }
        wait(&mut [link.interest()], Some(until))?;
    }
}
