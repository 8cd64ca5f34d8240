//! The ranks of a job as one of them sees them: exchange of small values, barrier and vote, each with a deadline.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use crate::error::Error;
use crate::failure::Failure;
use crate::folder::lost_note;
use crate::hub::{Entrance, Hub, admitted};
use crate::job::{Job, Meeting};
use crate::link::{Broken, Link, Packet, Received, wait};
use crate::meet::{self, Door};
use crate::message::{LONGEST_OPERATION, Message, decode};

/// Most bytes that a rank gives at once.
pub const MAX_VALUE: usize = 1 << 20;
/// How long a rank waits for the others where it is not told otherwise.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a farewell may take.
const FAREWELL: Duration = Duration::from_millis(100);
/// Groups that this process has joined, for their names: every rank counts the same.
static GROUPS: AtomicU32 = AtomicU32::new(0);

/// Longest body that the hub sends: the values of all ranks.
pub(crate) fn longest_answer(ranks: u32) -> usize {
    (ranks as usize).saturating_mul(MAX_VALUE + 16).saturating_add(1 << 16).min(u32::MAX as usize)
}

/// The ranks of a job, and which of them this one is. Dropping it is the farewell to the others.
pub struct Group {
    rank: u32,
    ranks: u32,
    local_rank: u32,
    local_ranks: u32,
    /// See [`Group::job`].
    job: u64,
    one_host: bool,
    deadline_ms: AtomicU64,
    /// None: there is one rank.
    client: Option<Mutex<Client>>,
    /// Rank 0 has it, where ranks are processes.
    hub: Option<JoinHandle<()>>,
}

struct Client {
    link: Option<Link>,
    error: Option<Error>,
    /// Where a launcher looks for notes.
    notes: Option<PathBuf>,
}

/// What all ranks gave.
pub(crate) struct Answer {
    pub(crate) values: Vec<Result<Vec<u8>, String>>,
    /// Of all ranks, or none.
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Group {
    /// One rank that is all.
    pub fn single() -> Group {
        Group::new(0, 1, 0, 1, job_number(), None)
    }

    fn new(rank: u32, ranks: u32, local_rank: u32, local_ranks: u32, job: u64, link: Option<Link>) -> Group {
        let client = link.map(|link| Mutex::new(Client { link: Some(link), error: None, notes: None }));
        let deadline_ms = AtomicU64::new(DEADLINE.as_millis() as u64);
        Group { rank, ranks, local_rank, local_ranks, job, one_host: true, deadline_ms, client, hub: None }
    }

    /// A thread of this process; `link` goes to the hub.
    pub(crate) fn thread(rank: u32, ranks: u32, job: u64, mut link: Link) -> Group {
        admitted(&mut link, ranks);
        Group::new(rank, ranks, rank, ranks, job, Some(link))
    }

    /// Joins the other ranks of the job; returns when all are there. [`Group::set_deadline`] is then `deadline`.
    ///
    /// # Errors
    /// MACO0094 if this rank cannot get to rank 0 by the deadline, MACO0095 if another one does not come.
    pub fn join(job: Job, deadline: Duration) -> Result<Group, Error> {
        if job.ranks == 1 {
            let group = Group::single();
            group.set_deadline(deadline);
            return Ok(group);
        }
        let (number, until) = (GROUPS.fetch_add(1, Ordering::Relaxed), Instant::now() + deadline);
        let one_host = matches!(job.meeting, Meeting::Folder { .. });
        let notes = match &job.meeting {
            Meeting::Folder { folder, kept: true, .. } => Some(folder.clone()),
            _ => None,
        };
        let (mut link, hub) = if job.rank == 0 {
            let door = Door::open(&job.meeting, number)?;
            let token = match job.meeting {
                Meeting::Tcp { token, .. } => Some(token),
                Meeting::Folder { .. } => None,
            };
            let entrance = Entrance { door, token, number };
            let (link, hub) = pair()
                .and_then(|(own, hubs)| {
                    let hub = Hub::new(job.ranks, vec![hubs], Some(entrance));
                    Ok((own, thread::Builder::new().name("maco hub".into()).spawn(|| hub.run())?))
                })
                .map_err(|why| no_socket(0, &why))?;
            (link, Some(hub))
        } else {
            (meet::join(&job, number, deadline, until)?, None)
        };
        admitted(&mut link, job.ranks);
        let mut group = Group::new(job.rank, job.ranks, job.local_rank, job.local_ranks, job_number(), Some(link));
        (group.hub, group.one_host) = (hub, one_host);
        if let Some(client) = &mut group.client {
            client.get_mut().unwrap_or_else(PoisonError::into_inner).notes = notes;
        }
        group.set_deadline(deadline);
        // The number of rank 0 is everybody's.
        let numbers = all_of("join", group.exchange_until("join", Ok(&group.job.to_le_bytes()), None, until)?.values)?;
        let number = numbers.first().and_then(|number| number.first_chunk());
        group.job = number.map_or(group.job, |number| u64::from_le_bytes(*number));
        Ok(group)
    }

    /// Which rank this is, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Which of the ranks of this host it is, from 0: the number of its GPU, if each has one.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// How many ranks are on this host.
    pub fn local_ranks(&self) -> u32 {
        self.local_ranks
    }

    /// A number that all ranks of this job have, and those of no other one.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Whether all ranks are on this host, and can share memory.
    pub fn one_host(&self) -> bool {
        self.one_host
    }

    /// How long this rank waits for the others. The shortest of those that wait counts for all.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms.load(Ordering::Relaxed))
    }

    /// Changes [`Group::deadline`], 60 s at first.
    pub fn set_deadline(&self, deadline: Duration) {
        self.deadline_ms.store(deadline.as_millis().clamp(1, u128::from(u64::MAX / 8)) as u64, Ordering::Relaxed);
    }

    /// Returns when all ranks have come here.
    ///
    /// # Errors
    /// MACO0095, the same on every rank, when one does not come.
    pub fn barrier(&self) -> Result<(), Error> {
        self.vote("barrier", Ok(&[])).map(drop)
    }

    /// The bytes of all ranks, in their order; at most [`MAX_VALUE`] of each.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one gives more; the same on every rank.
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.vote("all-gather of bytes", Ok(bytes))
    }

    /// The values of all ranks, if all have one: `operation` is what they are at, for messages and to find a rank that is somewhere else.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one gives an error; the same on every rank.
    pub fn vote(&self, operation: &str, value: Result<&[u8], &str>) -> Result<Vec<Vec<u8>>, Error> {
        all_of(operation, self.exchange(operation, value, None)?.values)
    }

    /// Whether a rank was lost, as far as it is known; does not wait. For loops that only compute.
    ///
    /// # Errors
    /// MACO0095.
    pub fn check(&self) -> Result<(), Error> {
        let Some(client) = &self.client else { return Ok(()) };
        self.check_of(&mut client.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// [`Group::check`], unless another thread of this rank is at an operation: that learns of it.
    ///
    /// # Errors
    /// MACO0095.
    pub fn try_check(&self) -> Result<(), Error> {
        match self.client.as_ref().map(Mutex::try_lock) {
            None | Some(Err(TryLockError::WouldBlock)) => Ok(()),
            Some(Ok(mut client)) => self.check_of(&mut client),
            Some(Err(TryLockError::Poisoned(client))) => self.check_of(&mut client.into_inner()),
        }
    }

    fn check_of(&self, client: &mut Client) -> Result<(), Error> {
        match client.receive(self, Instant::now()) {
            Ok(Some(_)) => Err(client.fail(Failure::Garbled { rank: 0 }.into())),
            Ok(None) => Ok(()),
            // All others may end: it matters when one of them is needed.
            Err(Error::Failed(failure)) if matches!(*failure, Failure::Ended { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a value, perhaps with a file descriptor, and gets all.
    pub(crate) fn exchange(&self, operation: &str, value: Result<&[u8], &str>, descriptor: Option<OwnedFd>) -> Result<Answer, Error> {
        self.exchange_until(operation, value, descriptor, Instant::now() + self.deadline())
    }

    fn exchange_until(
        &self,
        operation: &str,
        value: Result<&[u8], &str>,
        descriptor: Option<OwnedFd>,
        until: Instant,
    ) -> Result<Answer, Error> {
        let too_long = value
            .ok()
            .filter(|value| value.len() > MAX_VALUE)
            .map(|value| format!("{} bytes, at most {MAX_VALUE} go at once", value.len()));
        // Everybody is told.
        let value = too_long.as_deref().map_or(value.map_err(|text| shortened(text, LONGEST_TEXT)), Err);
        let operation = shortened(operation, LONGEST_OPERATION);
        let Some(client) = &self.client else {
            return Ok(Answer {
                values: vec![value.map(<[u8]>::to_vec).map_err(str::to_owned)],
                descriptors: descriptor.into_iter().collect(),
            });
        };
        let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let [deadline_ms, left_ms] = [self.deadline(), left].map(|time| time.as_millis() as u64);
        let message = Message::Round { operation, deadline_ms, left_ms, value };
        client.send(Packet::new(&message, descriptor.into_iter().collect()));
        let Some(Received { body, descriptors }) = client.receive(self, until)? else {
            let (missing, deadline) = (vec![0], self.deadline());
            return Err(client.fail(Failure::Late { operation: operation.into(), missing, deadline, of: self.rank }.into()));
        };
        match decode(&body) {
            Ok(Message::Values { values }) if values.len() == self.ranks as usize => {
                let values = values.into_iter().map(|value| value.map(<[u8]>::to_vec).map_err(str::to_owned)).collect();
                Ok(Answer { values, descriptors })
            }
            _ => Err(client.fail(Failure::Garbled { rank: 0 }.into())),
        }
    }
}

/// One that no other job has: the keys of a hash table are random.
pub(crate) fn job_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Longest error text of a rank.
const LONGEST_TEXT: usize = 16 << 10;

/// The front of a text.
fn shortened(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// The values, or the error of those that have none.
pub(crate) fn all_of(operation: &str, values: Vec<Result<Vec<u8>, String>>) -> Result<Vec<Vec<u8>>, Error> {
    let failed: Box<[u32]> = (0..).zip(&values).filter(|(_, value)| value.is_err()).map(|(rank, _)| rank).collect();
    match values.iter().find_map(|value| value.as_ref().err()) {
        Some(text) => {
            let alike = values.iter().all(|value| value.as_ref() == Err(text));
            Err(Error::Refused { operation: operation.into(), failed, text: text.as_str().into(), alike })
        }
        None => Ok(values.into_iter().flatten().collect()),
    }
}

impl Client {
    /// After a failure nothing is sent any more.
    fn send(&mut self, packet: Packet) {
        if let Some(link) = &mut self.link {
            link.send(packet);
        }
    }

    /// The next message but a failure, which is an error from now on; none at `until`.
    fn receive(&mut self, group: &Group, until: Instant) -> Result<Option<Received>, Error> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        loop {
            let Some(link) = &mut self.link else { unreachable!("a client without a link has an error") };
            // What has come counts, even if nothing can be sent any more.
            let flushed = link.flush();
            let broken = match link.receive() {
                Ok(Some(received)) => match decode(&received.body) {
                    Ok(Message::Failed { failure }) => return Err(self.fail(failure.into())),
                    Ok(_) => return Ok(Some(received)),
                    Err(_) => return Err(self.fail(Failure::Garbled { rank: 0 }.into())),
                },
                Ok(None) => flushed.err(),
                Err(broken) => Some(broken),
            };
            match broken {
                Some(Broken::Malformed(_)) => return Err(self.fail(Failure::Garbled { rank: 0 }.into())),
                // The hub is a thread of rank 0.
                Some(Broken::Closed) => return Err(self.fail(Failure::Lost { rank: 0, operation: None }.into())),
                Some(Broken::System(why)) => return Err(self.fail(no_socket(group.rank, &why))),
                None if Instant::now() >= until => return Ok(None),
                None => {}
            }
            if let Err(why) = wait(&mut [link.interest()], Some(until)) {
                return Err(self.fail(no_socket(group.rank, &why)));
            }
        }
    }

    /// Every later operation fails with this error.
    fn fail(&mut self, error: Error) -> Error {
        // The others learn that this rank does not go on, if they do not know it.
        self.link = None;
        if let (Error::Failed(failure), Some(notes)) = (&error, &self.notes)
            && let Failure::Lost { rank, .. } = **failure
        {
            // Without it the launcher takes whom it sees first.
            let _ = fs::write(lost_note(notes, rank), "");
        }
        self.error.get_or_insert(error).clone()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            let mut client = client.into_inner().unwrap_or_else(PoisonError::into_inner);
            // A rank that panics is lost.
            if let (Some(link), false) = (&mut client.link, thread::panicking()) {
                link.send(Packet::new(&Message::Leave, vec![]));
                let until = Instant::now() + FAREWELL;
                while let Ok(false) = link.flush() {
                    if Instant::now() >= until || wait(&mut [link.interest()], Some(until)).is_err() {
                        break;
                    }
                }
            }
        }
        if let Some(hub) = self.hub.take() {
            // It ends without rank 0; what it may have panicked of is of no use to the user here.
            let _ = hub.join();
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group(rank {} of {})", self.rank, self.ranks)
    }
}

/// The ends of a rank and of the hub.
pub(crate) fn pair() -> io::Result<(Link, Link)> {
    let (rank, hub) = UnixStream::pair()?;
    Ok((Link::new(rank.into(), 0, 0)?, Link::new(hub.into(), 0, 0)?))
}

pub(crate) fn no_socket(rank: u32, why: &io::Error) -> Error {
    let what = format!("a socket of rank {rank} failed").into();
    Error::Meeting { what, why: why.to_string().into(), help: "see the limits of this process: open files, threads" }
}
