//! What is known of each word of memory: by whom it was last used, and what was released there.

use std::collections::HashMap;

/// What has happened before, by agent.
#[derive(Clone, Default)]
pub(in crate::exec) struct Clock(pub Vec<u32>);

impl Clock {
    pub fn of(&self, agent: usize) -> u32 {
        self.0.get(agent).copied().unwrap_or(0)
    }

    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, &theirs) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(theirs);
        }
    }

    pub fn set(&mut self, agent: usize, to: u32) {
        if self.0.len() <= agent {
            self.0.resize(agent + 1, 0);
        }
        self.0[agent] = to;
    }
}

/// The bytes of a word, by whom, when by the agent's own clock, and where in the program. Clock 0: none.
#[derive(Clone, Copy, Default)]
pub(super) struct Access {
    pub agent: u32,
    pub bytes: u8,
    pub clock: u32,
    pub line: u32,
}

impl Access {
    /// With the bytes of `before`, if the same agent had them at the same time. Others, which an order since may have come behind, are left out.
    pub fn with(self, before: Access) -> Access {
        let is_same = before.agent == self.agent && before.clock == self.clock;
        Access { bytes: self.bytes | if is_same { before.bytes } else { 0 }, ..self }
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Cell {
    pub written: Access,
    pub read: [Access; 2],
}

/// What relaxed writes and arrivals of a device's agents have left at a word: for their own device, and for all.
pub(super) struct Left {
    pub device: usize,
    pub own: Clock,
    pub wide: Clock,
}

/// The last access that is not weak of one device, one scope, and one kind.
#[derive(Clone, Copy)]
pub(super) struct Strong {
    pub access: Access,
    pub device: usize,
    pub writes: bool,
    /// Its scope is the device or less.
    pub narrow: bool,
}

/// Words of a page.
const PAGE: usize = 256;

#[derive(Default)]
pub(super) struct Shadow {
    /// By number of the page: index into `pages`.
    numbers: HashMap<u64, usize>,
    pages: Vec<Box<[Cell; PAGE]>>,
    /// Pages of memory that was freed.
    spare: Vec<usize>,
    /// The page that was used last, its number one higher; 0: none.
    last: (u64, usize),
    words: HashMap<u64, Vec<Left>>,
    /// Looked at where there are several devices.
    strong: HashMap<u64, Vec<Strong>>,
}

impl Shadow {
    pub fn cell(&mut self, word: u64) -> &mut Cell {
        let (page, place) = (word / PAGE as u64, (word % PAGE as u64) as usize);
        if self.last.0 != page + 1 {
            let Shadow { numbers, pages, spare, .. } = self;
            let index = *numbers.entry(page).or_insert_with(|| match spare.pop() {
                Some(index) => {
                    pages[index].fill(Cell::default());
                    index
                }
                None => {
                    pages.push(Box::new([Cell::default(); PAGE]));
                    pages.len() - 1
                }
            });
            self.last = (page + 1, index);
        }
        &mut self.pages[self.last.1][place]
    }

    pub fn left(&self, word: u64) -> &[Left] {
        self.words.get(&word).map_or(&[], |left| left)
    }

    /// Something of a device has left this at a word, behind what others have, or in its place.
    pub fn leave(&mut self, word: u64, new: Left, goes_on: bool) {
        let all = self.words.entry(word).or_default();
        if !goes_on {
            // Mostly the place of the one that goes.
            all.truncate(1);
            match all.first_mut() {
                Some(old) => *old = new,
                None => all.push(new),
            }
            return;
        }
        match all.iter_mut().find(|left| left.device == new.device) {
            Some(old) => {
                old.own.join(&new.own);
                old.wide.join(&new.wide);
            }
            None => all.push(new),
        }
    }

    pub fn strong(&self, word: u64) -> &[Strong] {
        self.strong.get(&word).map_or(&[], |all| all)
    }

    pub fn note_strong(&mut self, word: u64, new: Strong) {
        let all = self.strong.entry(word).or_default();
        match all.iter_mut().find(|old| (old.device, old.writes, old.narrow) == (new.device, new.writes, new.narrow)) {
            Some(old) => *old = Strong { access: new.access.with(old.access), ..new },
            None => all.push(new),
        }
    }

    /// Forgets memory that was freed: nobody gets these addresses again.
    pub fn forget(&mut self, ranges: &[(u64, u64)]) {
        let gone = |word: u64| ranges.iter().any(|&(start, end)| (start / 4..end.div_ceil(4)).contains(&word));
        let Shadow { numbers, spare, .. } = self;
        numbers.retain(|page, index| {
            // Allocations have pages of their own.
            let stays = !(0..PAGE as u64).any(|word| gone(page * PAGE as u64 + word));
            if !stays {
                spare.push(*index);
            }
            stays
        });
        self.words.retain(|&word, _| !gone(word));
        self.strong.retain(|&word, _| !gone(word));
        self.last = (0, 0);
    }
}
