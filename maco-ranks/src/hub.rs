//! The thread to which all ranks are connected: it collects one value of each and gives all to all, or tells all why it cannot. It decides nothing else.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::failure::Failure;
use crate::group::{MAX_VALUE, longest_answer};
use crate::link::{Broken, Link, MAX_DESCRIPTORS, Packet, Received, wait};
use crate::meet::Door;
use crate::message::{LONGEST_OPERATION, Message, STRANGERS_LIMIT, decode};
use crate::token::{Exchange, Nonce, Side, Token, nonce};

/// Most connections that have not proved yet that they belong to the job; the oldest gives way.
const MOST_GUESTS: usize = 64;
/// How long one of them may take.
const GUESTS_TIME: Duration = Duration::from_secs(5);
/// How long the last words to the ranks may take.
const FAREWELL: Duration = Duration::from_secs(1);
const LINGER: Duration = Duration::from_millis(250);

/// Where ranks come in, as long as some are missing.
pub(crate) struct Entrance {
    pub(crate) door: Door,
    pub(crate) token: Option<Token>,
    pub(crate) number: u32,
}

enum Seat {
    Empty,
    Here(Link),
    /// It has said farewell.
    Left,
    Lost,
}

struct Guest {
    link: Link,
    nonce: Nonce,
    until: Instant,
}

type Value = (Result<Vec<u8>, String>, Option<OwnedFd>);

/// What is collected now.
struct Round {
    operation: String,
    values: Vec<Option<Value>>,
    until: Instant,
    deadline: Duration,
    /// Whose deadline it is.
    of: u32,
}

pub(crate) struct Hub {
    seats: Vec<Seat>,
    guests: Vec<Guest>,
    entrance: Option<Entrance>,
    lingers: bool,
    round: Option<Round>,
    failure: Option<Failure>,
}

impl Hub {
    /// `links` are of the ranks from 0 that are there already: all, or that of rank 0 alone and an entrance for the others.
    pub(crate) fn new(ranks: u32, links: Vec<Link>, entrance: Option<Entrance>) -> Hub {
        let mut seats: Vec<Seat> = links.into_iter().map(Seat::Here).collect();
        for seat in &mut seats {
            if let Seat::Here(link) = seat {
                admit(link);
            }
        }
        seats.resize_with(ranks as usize, || Seat::Empty);
        let lingers = entrance.as_ref().is_some_and(|entrance| entrance.door.lingers());
        Hub { seats, guests: Vec::new(), entrance, lingers, round: None, failure: None }
    }

    /// Until rank 0 has gone.
    pub(crate) fn run(mut self) {
        while matches!(self.seats[0], Seat::Here(_)) {
            self.close_if_late();
            let Ok(ready) = self.wait() else { break };
            self.step(&ready);
            self.flush();
        }
        self.say_farewell();
    }

    /// Which of door, guests and seats, in this order, have something.
    fn wait(&self) -> std::io::Result<Vec<bool>> {
        let door = self.entrance.iter().map(|entrance| PollFd::from_borrowed_fd(entrance.door.as_fd(), PollFlags::IN));
        let guests = self.guests.iter().map(|guest| guest.link.interest());
        let mut interests: Vec<PollFd<'_>> = door.chain(guests).collect();
        let mut of_seats = Vec::with_capacity(self.seats.len());
        for seat in &self.seats {
            if let Seat::Here(link) = seat {
                of_seats.push(Some(interests.len()));
                interests.push(link.interest());
            } else {
                of_seats.push(None);
            }
        }
        let others = interests.len() - of_seats.iter().flatten().count();
        let until = self.guests.iter().map(|guest| guest.until).chain(self.round.iter().map(|round| round.until)).min();
        wait(&mut interests, until)?;
        let ready: Vec<bool> = interests.iter().map(|interest| !interest.revents().is_empty()).collect();
        let seats = of_seats.iter().map(|at| at.is_some_and(|at| ready[at]));
        Ok(ready[..others].iter().copied().chain(seats).collect())
    }

    fn step(&mut self, ready: &[bool]) {
        let at_door = usize::from(self.entrance.is_some());
        let (others, of_seats) = ready.split_at(at_door + self.guests.len());
        for rank in (0..self.seats.len()).filter(|&rank| of_seats[rank]) {
            self.hear(rank as u32);
        }
        self.hear_guests(&others[at_door..]);
        if at_door == 1 && others[0] {
            self.open();
        }
        if self.entrance.is_some() && !self.seats.iter().any(|seat| matches!(seat, Seat::Empty)) {
            // All are there: nobody else has business here.
            self.entrance = None;
            self.guests.clear();
        }
    }

    fn open(&mut self) {
        let Some(entrance) = &self.entrance else { return };
        // One at a time: who comes in crowds does not keep the ranks waiting.
        let Ok(Some(socket)) = entrance.door.accept() else { return };
        let (Ok(mut link), Ok(nonce)) = (Link::new(socket, STRANGERS_LIMIT, 0), nonce()) else { return };
        link.send(Packet::new(&Message::Challenge { nonce }, vec![]));
        if link.flush().is_err() {
            return;
        }
        if self.guests.len() == MOST_GUESTS {
            self.guests.remove(0);
        }
        self.guests.push(Guest { link, nonce, until: Instant::now() + GUESTS_TIME });
    }

    fn hear_guests(&mut self, ready: &[bool]) {
        let now = Instant::now();
        let guests = std::mem::take(&mut self.guests);
        for (n, mut guest) in guests.into_iter().enumerate() {
            // Whoever is not understood, or silent for too long, is dropped: the job goes on.
            match if ready[n] { guest.link.receive() } else { Ok(None) } {
                Ok(None) if now < guest.until => self.guests.push(guest),
                Ok(Some(received)) => self.greet(guest, &received.body),
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn greet(&mut self, guest: Guest, body: &[u8]) {
        let Some(entrance) = &self.entrance else { return };
        let Guest { mut link, nonce: of_hub, .. } = guest;
        let Ok(Message::Hello { rank, ranks: found, number, nonce: of_rank, proof }) = decode(body) else { return };
        let exchange = Exchange { of_hub, of_rank, rank, ranks: found, number };
        if !exchange.proves(entrance.token.as_ref(), Side::Rank, &proof) {
            link.send(Packet::new(&Message::Stranger, vec![]));
            let _ = link.flush();
            link.shut();
            return;
        }
        // It is for another group of the same job: it will try again.
        if number != entrance.number {
            return;
        }
        let proof = exchange.proof(entrance.token.as_ref(), Side::Hub);
        link.send(Packet::new(&Message::Welcome { proof }, vec![]));
        if let Some(failure) = &self.failure {
            link.send(failed(failure));
        }
        admit(&mut link);
        let expected = self.seats.len() as u32;
        if found != expected {
            // Told to the others and to it, which has no seat.
            let failure = Failure::Count { rank, found, expected };
            link.send(failed(&failure));
            let _ = link.flush();
            link.shut();
            self.fail(failure);
        } else if let Some(seat @ Seat::Empty) = self.seats.get_mut(rank as usize) {
            *seat = Seat::Here(link);
        } else {
            link.send(failed(&Failure::Twice { rank }));
            let _ = link.flush();
            link.shut();
            self.fail(Failure::Twice { rank });
        }
    }

    fn hear(&mut self, rank: u32) {
        while let Seat::Here(link) = &mut self.seats[rank as usize] {
            match link.receive() {
                Ok(Some(received)) => self.handle(rank, received),
                Ok(None) => return,
                Err(broken) => self.lose(rank, &broken),
            }
        }
    }

    fn handle(&mut self, rank: u32, Received { body, descriptors }: Received) {
        match decode(&body) {
            Ok(Message::Round { operation, deadline_ms, left_ms, value })
                if operation.len() <= LONGEST_OPERATION && value.map_or_else(str::len, <[u8]>::len) <= MAX_VALUE =>
            {
                let value = value.map(<[u8]>::to_vec).map_err(str::to_owned);
                let [deadline, left] = [deadline_ms, left_ms].map(Duration::from_millis);
                self.collect(rank, operation, deadline, left, (value, descriptors.into_iter().next()));
            }
            Ok(Message::Leave) => {
                self.seats[rank as usize] = Seat::Left;
                let operation = self.round.as_ref().map(|round| round.operation.clone());
                let here = self.seats.iter().any(|seat| matches!(seat, Seat::Here(_)));
                // Without rank 0 there is no hub.
                if operation.is_some() || rank == 0 && here {
                    self.fail(Failure::Ended { rank, operation });
                }
            }
            _ => {
                self.seats[rank as usize] = Seat::Lost;
                self.fail(Failure::Garbled { rank });
            }
        }
    }

    fn lose(&mut self, rank: u32, broken: &Broken) {
        self.seats[rank as usize] = Seat::Lost;
        self.fail(match broken {
            Broken::Malformed(_) => Failure::Garbled { rank },
            _ => Failure::Lost { rank, operation: self.round.as_ref().map(|round| round.operation.clone()) },
        });
    }

    fn collect(&mut self, rank: u32, operation: &str, deadline: Duration, left: Duration, value: Value) {
        if self.failure.is_some() {
            // It has been told.
            return;
        }
        if let Some(left) = self.seats.iter().position(|seat| matches!(seat, Seat::Left)) {
            return self.fail(Failure::Ended { rank: left as u32, operation: Some(operation.to_owned()) });
        }
        // The answer must be there before the rank gives up.
        let until = Instant::now() + (left - (left / 8).min(Duration::from_millis(250)));
        let ranks = self.seats.len();
        let round = self.round.get_or_insert_with(|| Round {
            operation: operation.to_owned(),
            values: (0..ranks).map(|_| None).collect(),
            until,
            deadline,
            of: rank,
        });
        if round.operation != operation {
            let first = round.values.iter().position(Option::is_some).unwrap_or(0) as u32;
            let one = (first, round.operation.clone());
            return self.fail(Failure::Order { one, other: (rank, operation.to_owned()) });
        }
        if until < round.until {
            (round.until, round.deadline, round.of) = (until, deadline, rank);
        }
        if round.values[rank as usize].replace(value).is_some() {
            return self.lose(rank, &crate::message::Malformed::Body.into());
        }
        if round.values.iter().all(Option::is_some) {
            self.answer();
        }
    }

    fn answer(&mut self) {
        let Some(round) = self.round.take() else { return };
        let (values, descriptors): (Vec<_>, Vec<_>) = round.values.into_iter().flatten().unzip();
        let mut descriptors: Vec<OwnedFd> = descriptors.into_iter().flatten().collect();
        // Those of all ranks, or none.
        if descriptors.len() != values.len() || descriptors.len() > MAX_DESCRIPTORS || values.iter().any(Result::is_err) {
            descriptors.clear();
        }
        let values = values.iter().map(|value| value.as_deref().map_err(String::as_str)).collect();
        let packet = Packet::new(&Message::Values { values }, descriptors);
        self.tell(&packet);
    }

    fn close_if_late(&mut self) {
        let Some(round) = self.round.as_ref().filter(|round| round.until <= Instant::now()) else { return };
        let missing = (0..).zip(&round.values).filter(|(_, value)| value.is_none()).map(|(rank, _)| rank).collect();
        let (operation, deadline, of) = (round.operation.clone(), round.deadline, round.of);
        self.fail(Failure::Late { operation, missing, deadline, of });
        self.flush();
    }

    fn fail(&mut self, failure: Failure) {
        self.round = None;
        if self.failure.is_none() {
            self.tell(&failed(&failure));
            self.failure = Some(failure);
        }
    }

    fn tell(&mut self, packet: &Packet) {
        for seat in &mut self.seats {
            if let Seat::Here(link) = seat {
                link.send(packet.clone());
            }
        }
    }

    fn flush(&mut self) {
        loop {
            let broken = self.seats.iter_mut().enumerate().find_map(|(rank, seat)| match seat {
                Seat::Here(link) => link.flush().err().map(|broken| (rank as u32, broken)),
                _ => None,
            });
            let Some((rank, broken)) = broken else { return };
            self.lose(rank, &broken);
        }
    }

    fn say_farewell(mut self) {
        self.entrance = None;
        let mut links: Vec<Link> =
            self.seats.into_iter().filter_map(|seat| if let Seat::Here(link) = seat { Some(link) } else { None }).collect();
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until {
            links.retain_mut(|link| match link.flush() {
                Ok(true) => {
                    link.shut();
                    self.lingers
                }
                Ok(false) => true,
                Err(_) => false,
            });
            let until = if links.iter().any(Link::has_outgoing) { until } else { until.min(Instant::now() + LINGER) };
            if links.is_empty() || wait(&mut links.iter().map(Link::interest).collect::<Vec<_>>(), Some(until)).is_err() {
                return;
            }
            links.retain_mut(|link| {
                loop {
                    match link.receive() {
                        Ok(Some(_)) => {}
                        Ok(None) => break true,
                        Err(_) => break false,
                    }
                }
            });
            if Instant::now() >= until {
                return;
            }
        }
    }
}

/// From now on a rank of the job.
fn admit(link: &mut Link) {
    link.set_limit(MAX_VALUE + LONGEST_OPERATION + STRANGERS_LIMIT, 1);
}

fn failed(failure: &Failure) -> Packet {
    Packet::new(&Message::Failed { failure: failure.clone() }, vec![])
}

/// The other end: limits of what the hub answers.
pub(crate) fn admitted(link: &mut Link, ranks: u32) {
    link.set_limit(longest_answer(ranks), (ranks as usize).min(MAX_DESCRIPTORS));
}
